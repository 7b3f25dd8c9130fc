package wire

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

func TestABatchHasTheRequestedColumns(t *testing.T) {
	fields := extraFields(t, Column{"x_a", "int8"}, Column{"x_b", "utf8"})
	columns := []string{"x_b", "weight", "tokens", "id"}
	schema := sampleSchema(t, columns, fields...)
	draws := randomDraws(rand.New(rand.NewPCG(1, 1)), 9, fields)
	rec, err := new(Gatherer).Batch(draws, schema)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range columns {
		if rec.ColumnName(i) != name {
			t.Errorf("column %d is %s", i, rec.ColumnName(i))
		}
	}
	got, err := Draws(rec, fields)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range got {
		b, _, _ := findExtra(draws[i].Rollout.Extra, "x_b")
		found, _, _ := findExtra(d.Rollout.Extra, "x_b")
		if !slices.Equal(d.Rollout.Tokens, draws[i].Rollout.Tokens) || d.Weight != draws[i].Weight ||
			d.ID != draws[i].ID || string(b) != string(found) {
			t.Errorf("draw %d is %+v", i, d)
		}
		if d.Rollout.Mask != nil || d.Rollout.PromptID != "" || d.Probability != 0 {
			t.Errorf("draw %d has more than its columns: %+v", i, d)
		}
	}
}

func TestASamplingMaskThatDoesNotEndWithItsIDsIsNotSent(t *testing.T) {
	groups := randomGroups(rand.New(rand.NewPCG(2, 2)), 1)
	r := groups[0].Rollouts[0]
	r.SamplingMask = rollout.IDLists{Ends: []int32{0, 2}, IDs: []int32{1, 2, 3}}
	_, err := Rows(groups, nil)
	var field *rollout.FieldError
	if !errors.As(err, &field) || field.Row != 0 || field.Field != "sampling_mask" {
		t.Errorf("got %v", err)
	}
}

func TestUnknownSampleColumnsAreRefused(t *testing.T) {
	for want, columns := range map[string][]string{
		`columns: "token": want columns of a sampled batch; did you mean tokens?`:  {"id", "token"},
		`columns: "id": want each column once`:                                     {"id", "id"},
		`columns: "x_mine": want columns of a sampled batch: id, group, prompt_id`: {"x_mine"},
	} {
		_, err := SampleSchema(columns)
		if err == nil || !strings.HasPrefix(err.Error(), want) || CodeOf(err) != Invalid {
			t.Errorf("%v: got %v, want %s", columns, err, want)
		}
	}
}

func TestSchemasCarryTheirVersion(t *testing.T) {
	for _, s := range []*arrow.Schema{InsertSchema(), sampleSchema(t, nil), sampleSchema(t, []string{"id"})} {
		if v, ok := s.Metadata().GetValue(schemaKey); !ok || v != "1" {
			t.Errorf("metadata is %v", s.Metadata())
		}
	}
	if f := sampleSchema(t, []string{"advantage"}).Field(0); f.Nullable {
		t.Error("a draw's advantage may be null")
	}
}

func TestReleasedBatchesReturnTheirMemory(t *testing.T) {
	// The pool is asked for the same sizes again: with the memory back it allocates little, although a sync.Pool under
	// the race detector forgets a quarter of what it is given.
	var g Gatherer
	schema := sampleSchema(t, nil)
	r := rand.New(rand.NewPCG(1, 1))
	draws := make([]rollout.Draw, 16)
	for i := range draws {
		x := &rollout.Rollout{Tokens: make([]int32, 1000), Mask: make([]uint8, 1000), Logprobs: make([]float32, 1000),
			Versions: make([]rollout.Version, 1000)}
		for k := range x.Tokens {
			x.Tokens[k] = r.Int32()
		}
		draws[i] = rollout.Draw{ID: rollout.ID(i), Rollout: x}
	}
	const batches = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range batches {
		rec, err := g.Batch(draws, schema)
		if err != nil {
			t.Fatal(err)
		}
		rec.Release()
	}
	runtime.ReadMemStats(&after)
	bytes := int64(after.TotalAlloc-before.TotalAlloc) / batches
	if payload := int64(16 * 1000 * 13); bytes > payload*3/4 {
		t.Errorf("%d bytes are allocated for a batch of %d", bytes, payload)
	}
}

func TestGatherersAreSafeForConcurrentUse(t *testing.T) {
	var g Gatherer
	schema := sampleSchema(t, nil)
	var wait sync.WaitGroup
	for worker := range uint64(4) {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(worker, 9))
			for range 50 {
				want := randomDraws(r, 8, nil)
				rec, err := g.Batch(want, schema)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := Draws(rec, nil)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("worker %d: %v", worker, err)
				}
				rec.Release()
			}
		})
	}
	wait.Wait()
}
