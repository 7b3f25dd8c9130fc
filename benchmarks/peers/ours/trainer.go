package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// batch is the number of rollouts in a cycle, and of values in a row.
const batch = 64

// settings are the parameters of the sequence, the same for all peers.
type settings struct {
	folder       string
	group        int // rollouts inserted together
	version      int // of the table when it is full
	epsilon      float64
	exponent     float64
	ageDecay     float64
	beta         float64
	betaVersions int
}

// trainer runs cycles on a table.
type trainer struct {
	table   *replay.Table
	version rollout.Version
	bases   []float64   // [N] as the sequence and the followed updates have them
	values  [][]float64 // [rows][batch] for the updates, in turn
	row     int
	ids     []rollout.ID // of one update
}

// fill makes a table of the folder's entries, and inserts each at its own version.
func fill(ctx context.Context, s settings) (*trainer, error) {
	bases, err := read[float64](s.folder, "bases.f64")
	if err != nil {
		return nil, err
	}
	versions, err := read[rollout.Version](s.folder, "versions.i32")
	if err != nil {
		return nil, err
	}
	values, err := read[float64](s.folder, "values.f64")
	if err != nil {
		return nil, err
	}
	t := &trainer{bases: bases, ids: make([]rollout.ID, batch)}
	for i := 0; i < len(values); i += batch {
		t.values = append(t.values, values[i:i+batch])
	}
	if t.table, err = replay.New(s.options(len(bases))); err != nil {
		return nil, err
	}
	for i := 0; i < len(bases); i += s.group {
		if err := t.advanceTo(ctx, versions[i]); err != nil {
			return nil, err
		}
		if err := t.insert(ctx, bases[i:i+s.group]); err != nil {
			return nil, err
		}
	}
	return t, t.advanceTo(ctx, rollout.Version(s.version))
}

func (s settings) options(capacity int) replay.Options {
	return replay.Options{
		Capacity: capacity, Sampler: replay.Prioritized, Seed: 2,
		PriorityEpsilon: s.epsilon, PriorityExponent: s.exponent, AgeDecay: replay.Versions(s.ageDecay),
		ImportanceBeta: &s.beta, ImportanceAnneal: &s.betaVersions,
	}
}

func (t *trainer) advanceTo(ctx context.Context, v rollout.Version) error {
	if v <= t.version {
		return nil
	}
	t.version = v
	return t.table.Advance(ctx, v)
}

// insert adds a group at the table's version. Each rollout has slices of its own, as in training, so that the work of
// the garbage collector counts.
func (t *trainer) insert(ctx context.Context, bases []float64) error {
	var g rollout.Group
	for _, base := range bases {
		advantage := float32(base)
		x := &rollout.Rollout{PromptID: "prompt", Temperature: 1, TopP: 1, Advantage: &advantage}
		for i := range 12 {
			policy := i >= 4
			x.Tokens = append(x.Tokens, int32(i))
			if policy {
				x.Mask, x.Logprobs, x.Versions = append(x.Mask, 1), append(x.Logprobs, -1), append(x.Versions,
					t.version)
			} else {
				x.Mask, x.Logprobs, x.Versions = append(x.Mask, 0), append(x.Logprobs, 0), append(x.Versions,
					rollout.NoVersion)
			}
		}
		g.Rollouts = append(g.Rollouts, x)
	}
	next, err := t.table.Len(ctx)
	if err != nil {
		return err
	}
	next++
	ids, err := t.table.Insert(ctx, g)
	if err != nil {
		return err
	}
	if ids[0] != rollout.ID(next) {
		return fmt.Errorf("rollout %d of the sequence got id %d: want ids to be positions", next, ids[0])
	}
	return nil
}

// read returns a file of little-endian numbers.
func read[T float64 | rollout.Version](folder, name string) ([]T, error) {
	path := filepath.Join(folder, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers := make([]T, len(raw)/binary.Size(T(0)))
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, numbers); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return numbers, nil
}

// run times n cycles. Collecting a batch's ids is part of the update.
func (t *trainer) run(ctx context.Context, n int) (answer, error) {
	var sampling, updating, advancing time.Duration
	for range n {
		start := time.Now()
		batch, err := t.table.Sample(ctx, rollout.Request{Size: len(t.ids)})
		if err != nil {
			return answer{}, err
		}
		sampled := time.Now()
		if err := t.update(ctx, batch); err != nil {
			return answer{}, err
		}
		updated := time.Now()
		if err := t.advance(ctx); err != nil {
			return answer{}, err
		}
		advanced := time.Now()
		sampling += sampled.Sub(start)
		updating += updated.Sub(sampled)
		advancing += advanced.Sub(updated)
	}
	return answer{Sample: sampling.Seconds(), Update: updating.Seconds(), Advance: advancing.Seconds()}, nil
}

// update sets the priorities of a batch to the next row of values.
func (t *trainer) update(ctx context.Context, batch *rollout.Batch) error {
	values := t.values[t.row]
	t.row = (t.row + 1) % len(t.values)
	for i := range batch.Draws {
		t.ids[i] = batch.Draws[i].ID
	}
	return t.table.Update(ctx, t.ids, values)
}

func (t *trainer) advance(ctx context.Context) error {
	t.version++
	return t.table.Advance(ctx, t.version)
}

// follow runs n cycles and keeps t.bases up to date.
func (t *trainer) follow(ctx context.Context, n int) error {
	for range n {
		batch, err := t.table.Sample(ctx, rollout.Request{Size: len(t.ids)})
		if err != nil {
			return err
		}
		values := t.values[t.row]
		if err := t.update(ctx, batch); err != nil {
			return err
		}
		for i, d := range batch.Draws {
			t.bases[d.ID-1] = values[i]
		}
		if err := t.advance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// draw counts the draws of n batches.
func (t *trainer) draw(ctx context.Context, n int) (answer, error) {
	a := answer{Counts: make([]int, len(t.bases))}
	for b := range n {
		batch, err := t.table.Sample(ctx, rollout.Request{Size: len(t.ids)})
		if err != nil {
			return answer{}, err
		}
		for _, d := range batch.Draws {
			if d.Rollout == nil {
				return answer{}, fmt.Errorf("rollout %d was drawn without its contents", d.ID)
			}
			a.Counts[d.ID-1]++
			if b == 0 {
				a.IDs = append(a.IDs, int(d.ID-1))
				a.Weights = append(a.Weights, d.Weight)
			}
		}
	}
	return a, nil
}
