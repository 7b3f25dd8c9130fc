package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestRolloutsAreFoundAndShown(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Capacity: 64}})
	v.fill("a", group(3, 0), group(2, 0))
	find := func(q replay.Query) (ids []rollout.ID, matched int) {
		page := do[browse.Page](v, wire.Rollouts, wire.RolloutsRequest{Table: "a", Query: q})
		for _, r := range page.Rows {
			ids = append(ids, r.ID)
		}
		return ids, page.Matched
	}
	if ids, n := find(replay.Query{Where: "uses == 0", Skip: 1, Limit: 2}); n != 5 || !slices.Equal(ids, []rollout.ID{4, 3}) {
		t.Errorf("found %d, on the page %v: want 5, 4 and 3", n, ids)
	}
	shown := do[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 2})
	if shown.ID != 2 || len(shown.Mates) != 3 || len(shown.TokenIDs) != shown.Tokens || len(shown.Logprobs) != shown.Tokens {
		t.Errorf("rollout 2 is shown as %+v", shown)
	}
	for want, body := range map[string]any{
		"where: ":       wire.RolloutsRequest{Table: "a", Query: replay.Query{Where: "reward"}},
		"order: ":       wire.RolloutsRequest{Table: "a", Query: replay.Query{Order: "rewrd"}},
		"limit is 1001": wire.RolloutsRequest{Table: "a", Query: replay.Query{Limit: 1001}},
		"text: ":        wire.RolloutsRequest{Table: "a", Query: replay.Query{Text: strings.Repeat("x", 2000)}},
	} {
		_, err := try[browse.Page](v, wire.Rollouts, body)
		checkRefusal(t, err, wire.Invalid, want)
	}
	_, err := try[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 99})
	checkRefusal(t, err, wire.NotFound, "rollout 99", "has left")
}

// The life of a rollout names its callers, and is told after it has left.
func TestALifeIsShownAlsoOnceTheRolloutHasLeft(t *testing.T) {
	v := serve(t, Options{Caller: func(context.Context) string { return "trainer-0" }})
	v.create(wire.Table{Name: "a", Options: replay.Options{Capacity: 2, History: 8}})
	v.fill("a", group(1, 0))
	if _, err := v.get(wire.SampleRequest{Table: "a", Size: 1}); err != nil {
		t.Fatal(err)
	}
	do[wire.TableInfo](v, wire.UpdatePriorities, wire.PriorityUpdate{Table: "a", IDs: []uint64{1},
		Priorities: []float64{1}})
	v.fill("a", group(2, 0))
	shown := do[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 1})
	var told []string
	for _, e := range shown.Life.Events {
		told = append(told, string(e.Kind)+" by "+e.Caller)
	}
	want := []string{"inserted by trainer-0", "drawn by trainer-0", "reported by trainer-0", "evicted by "}
	if !shown.Left || !slices.Equal(told, want) || shown.Life.Events[1].Draw.Outcome != replay.Used {
		t.Errorf("rollout 1 is shown as %+v, with the life %q, want %q", shown, told, want)
	}
	there := do[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 2})
	if there.Left || len(there.Life.Events) != 1 || there.Life.Events[0].Kind != replay.WasInserted {
		t.Errorf("rollout 2 is shown as %+v", there)
	}
	_, err := try[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 99})
	checkRefusal(t, err, wire.NotFound, "rollout 99", "a table with history")
}

// readers lets a caller read the table of its own name.
type readers struct{}

func (readers) Authorize(ctx context.Context, table string, right wire.Right) error {
	if caller, _ := ctx.Value(readers{}).(string); caller != table || right != wire.ToRead {
		return wire.Errorf(wire.Denied, "not yours")
	}
	return nil
}

func TestOnlyThoseWhoMayReadATableSeeItsRollouts(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", group(3, 0))
	v.service.options.Access = readers{}
	for caller, want := range map[string]error{"a": nil, "b": wire.ErrDenied} {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), readers{}, caller))
		source := v.service.Rollouts("a")
		if page, err := source.Rollouts(ctx, replay.Query{Limit: 9}); !errors.Is(err, want) || (err == nil) != (len(page.Rows) == 3) {
			t.Errorf("%s sees %d rollouts, error %v", caller, len(page.Rows), err)
		}
		if shown, err := source.Rollout(ctx, 1); !errors.Is(err, want) || (err == nil) != (shown.ID == 1) {
			t.Errorf("%s sees rollout %d, error %v", caller, shown.ID, err)
		}
		cancel()
	}
}

// Memory for answers is charged before they are made, and free once they are read.
func TestAttackAnswersAboutRolloutsAreBounded(t *testing.T) {
	v := serve(t, Options{MaxMessageBytes: 2 << 20, MaxOutgoingBytes: 4 << 20})
	v.create(wire.Table{Name: "a", Options: replay.Options{Capacity: 64}})
	g := group(2, 0)
	g.Rollouts[0].Text = strings.Repeat("\x00", 100_000)
	g.Rollouts[1].Text = strings.Repeat("x", 1<<20)
	v.fill("a", g)
	shown := do[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 1})
	if shown.Text != g.Rollouts[0].Text {
		t.Errorf("the text came back with %d bytes", len(shown.Text))
	}
	_, err := try[any](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 2})
	checkRefusal(t, err, wire.TooLarge, "rollout 2", "reprise export --ids 2", "max_message_bytes")
	page := do[browse.Page](v, wire.Rollouts, wire.RolloutsRequest{Table: "a", Query: replay.Query{Limit: 1000}})
	for _, r := range page.Rows {
		if len(r.Text) > 300 || !r.Cut {
			t.Errorf("rollout %d: a row has %d bytes of text", r.ID, len(r.Text))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	source := v.service.Rollouts("a")
	if _, err := source.Rollouts(ctx, replay.Query{Limit: 100}); err != nil {
		t.Fatal(err)
	}
	if held := v.service.outgoing.all.used.Load(); held < 100*browse.RowBytes {
		t.Errorf("%d bytes are charged for 100 rows, want %d", held, 100*browse.RowBytes)
	}
	cancel()
	tests.Until(t, "the memory is free", func() bool { return v.service.outgoing.all.used.Load() == 0 })
}

// spelt says the ids of tokens, each by as many bytes, which JSON writes as six each.
type spelt struct{}

func (spelt) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(strings.Repeat("\x01", 5) + fmt.Sprint(id))
	}
	return b.String()
}

func (spelt) DecodedBytes(ids []int32) int64 { return 16 * int64(len(ids)) }

func TestRolloutsWithoutTextAreDecodedWithinWhatIsCharged(t *testing.T) {
	v := serve(t, Options{Decoder: spelt{}})
	v.create(wire.Table{Name: "a", Options: replay.Options{Capacity: 64}})
	c := rollout.Completion{}
	for i := range 2000 {
		c.Tokens, c.Logprobs = append(c.Tokens, int32(100+i)), append(c.Logprobs, -1)
	}
	long := rollout.New("sum", []int32{7, 8}, c)
	short := rollout.New("sum", []int32{7}, rollout.Completion{Tokens: []int32{9}, Logprobs: []float32{-1}})
	said := rollout.New("sum", []int32{7}, c)
	said.Text = "said"
	v.fill("a", rollout.Group{Rollouts: []*rollout.Rollout{long, short, said}})
	page := do[browse.Page](v, wire.Rollouts, wire.RolloutsRequest{Table: "a",
		Query: replay.Query{Limit: 9}})
	for i, want := range []string{spelt{}.Decode(c.Tokens)[:300], spelt{}.Decode([]int32{9}), "said"} {
		row := page.Rows[len(page.Rows)-1-i]
		if text, err := encodeJSON(row); err != nil || row.Text != want || row.Cut != (i == 0) ||
			len(text) > browse.RowBytes {
			t.Errorf("row %d of %d bytes says %q, %v, want %q", i, len(text), row.Text, row.Cut, want)
		}
	}
	for id, want := range map[uint64]*rollout.Rollout{1: long, 3: said} {
		shown := do[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: id})
		text, err := encodeJSON(shown)
		if most := v.service.tables["a"].shown().Bytes(want); err != nil || int64(len(text)) > most {
			t.Errorf("rollout %d takes %d bytes, %v: %d are charged", id, len(text), err, most)
		}
		if shown.Decoded != (want.Text == "") || shown.PromptText != (spelt{}).Decode(want.Tokens[:len(want.Tokens)-2000]) ||
			shown.Decoded && shown.Text != (spelt{}).Decode(c.Tokens) {
			t.Errorf("rollout %d is shown with prompt %q, and decoded text: %v", id, shown.PromptText, shown.Decoded)
		}
	}
}

func TestNoRowTakesMoreThanIsCharged(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Capacity: 64}})
	g := group(1, 0)
	g.Rollouts[0].Text, g.Rollouts[0].PromptID = strings.Repeat("\x01", 5000), strings.Repeat("\x02", 5000)
	v.fill("a", g)
	page := do[browse.Page](v, wire.Rollouts, wire.RolloutsRequest{Table: "a", Query: replay.Query{Limit: 1}})
	text, err := encodeJSON(page.Rows)
	if err != nil || len(text) > browse.RowBytes || len(text) < 6*600 {
		t.Errorf("a row takes %d bytes, error %v: at most %d are charged", len(text), err, browse.RowBytes)
	}
	whole, err := encodeJSON(do[browse.Rollout](v, wire.ShowRollout, wire.RolloutRequest{Table: "a", ID: 1}))
	if most := (browse.Table{}).Bytes(g.Rollouts[0]); err != nil || int64(len(whole)) > most {
		t.Errorf("the rollout takes %d bytes, error %v: at most %d are charged", len(whole), fmt.Sprint(err), most)
	}
}
