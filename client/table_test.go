package client

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestActionsTravelAsTheProtocolSays(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	const info = `{"table":"lab","version":7,"present":3}`
	for _, kind := range []string{wire.CreateTable, wire.DropTable, wire.Advance, wire.Rewind, wire.UpdatePriorities,
		wire.ReportDraws, wire.Restore, wire.Abandon, wire.PromptsReport} {
		f.answers[kind] = info
	}
	f.answers[wire.Checkpoint] = `{"table":"lab","version":7,"present":3,"name":"c","file_bytes":9}`
	f.answers[wire.ListCheckpoints] = `{"checkpoints":[{"name":"c","file_bytes":9,"saved":"2026-11-21T09:00:00Z"}]}`
	f.answers[wire.DeleteCheckpoint] = `{}`
	f.answers[wire.Scrub] = `{"table":"lab","copies":[{"node":"a"},{"node":"b","damage":["cut"]}]}`
	f.answers[wire.Start] = `{"grant":4,"groups":2,"version":7}`
	f.answers[wire.PromptsNext] = `{"prompts":[{"id":"p","ref":5}],"version":7}`
	f.answers[wire.Statistics] = `{"table":"lab","version":7,"present":3,"inserted":12,"staleness":[[0,2],[3,1]],"age_decay":"inf"}`
	ctx, c := context.Background(), table.client
	for _, call := range []struct {
		does func() error
		sent string
	}{
		{func() error {
			_, err := c.Create(ctx, wire.Table{Name: "lab", Options: replay.Options{Capacity: 5}})
			return err
		}, `create_table {"name":"lab","capacity":5}`},
		{func() error { return table.Advance(ctx, 7) }, `advance {"table":"lab","version":7}`},
		{func() error { return table.Rewind(ctx, 6) }, `rewind {"table":"lab","version":6}`},
		{func() error { return table.Update(ctx, []rollout.ID{1, 2}, []float64{0.5, 0}) },
			`update_priorities {"table":"lab","ids":[1,2],"priorities":[0.5,0]}`},
		{func() error {
			return table.Report(ctx, rollout.Feedback{ID: 3, Staleness: 2, Advantage: rollout.Measured(0), Tokens: 4,
				RatioSum: 4.5})
		}, `report {"table":"lab","request_id":"ID","draws":[{"id":3,"staleness":2,"advantage":0,"tokens":4,"ratio_sum":4.5}]`},
		{func() error { return table.Report(ctx) }, ""},
		{func() error {
			a, err := table.Checkpoint(ctx, "c")
			if a.Name != "c" || a.FileBytes != 9 || a.Version != 7 {
				t.Errorf("checkpoint: %+v", a)
			}
			return err
		}, `checkpoint {"table":"lab","name":"c"}`},
		{func() error { _, err := table.Restore(ctx, "c"); return err }, `restore {"table":"lab","name":"c"}`},
		{func() error {
			list, err := table.Checkpoints(ctx)
			if len(list) != 1 || list[0].Name != "c" || list[0].FileBytes != 9 || list[0].Saved.Year() != 2026 {
				t.Errorf("checkpoints: %+v", list)
			}
			return err
		}, `list_checkpoints {"table":"lab"}`},
		{func() error {
			a, err := table.Scrub(ctx)
			if len(a.Copies) != 2 || a.Copies[0].Node != "a" || a.Copies[1].Damage[0] != "cut" {
				t.Errorf("scrub: %+v", a)
			}
			return err
		}, `scrub {"table":"lab"}`},
		{func() error { return table.DeleteCheckpoint(ctx, "c") }, `delete_checkpoint {"table":"lab","name":"c"}`},
		{func() error {
			a, err := table.Start(ctx, 5, 8)
			if a.Grant != 4 || a.Groups != 2 {
				t.Errorf("start: %+v", a)
			}
			return err
		}, `start {"table":"lab","groups":5,"group_size":8}`},
		{func() error { return table.Abandon(ctx, 4, 2) }, `abandon {"table":"lab","grant":4,"groups":2}`},
		{func() error {
			a, err := table.PromptsNext(ctx, 16)
			if len(a.Prompts) != 1 || a.Prompts[0].Ref != 5 {
				t.Errorf("prompts: %+v", a)
			}
			return err
		}, `prompts_next {"table":"lab","batch":16}`},
		{func() error {
			return table.PromptsReport(ctx, wire.PromptResult{Prompt: wire.Prompt{ID: "p"}, Correct: 1, Total: 4})
		}, `prompts_report {"table":"lab","results":[{"id":"p","correct":1,"total":4}]}`},
		{func() error {
			s, err := table.Statistics(ctx)
			if err == nil && (s.Inserted != 12 || s.Staleness.Of(3) != 1 || s.Stats().Version != 7) {
				t.Errorf("stats: %+v", s)
			}
			return err
		}, `stats {"table":"lab"}`},
		{func() error {
			s, err := table.Stats(ctx)
			if err == nil && (s.Inserted != 12 || s.Staleness.Of(3) != 1 || s.Version != 7 || s.Present != 3) {
				t.Errorf("counts: %+v", s)
			}
			return err
		}, `stats {"table":"lab"}`},
		{func() error { return c.Drop(ctx, "lab") }, `drop_table {"table":"lab"}`},
	} {
		before := len(f.actions)
		if err := call.does(); err != nil {
			t.Errorf("%s: %v", call.sent, err)
		}
		switch sent := anyID(f.actions[before:]); {
		case call.sent == "" && len(sent) > 0:
			t.Errorf("nothing to say was said as %q", sent)
		case call.sent != "" && (len(sent) != 1 || !strings.HasPrefix(sent[0], call.sent)):
			t.Errorf("sent %q\nwant %q", sent, call.sent)
		}
	}
}

// anyID returns what was sent with "ID" for each request's id.
func anyID(sent []string) []string {
	ids := regexp.MustCompile(`"request_id":"[0-9a-f]{16}-[0-9]+"`)
	for i, text := range sent {
		sent[i] = ids.ReplaceAllString(text, `"request_id":"ID"`)
	}
	return sent
}

func TestAnActionIsRepeatedUntilItGetsThrough(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	f.failing(func(m string, n int) error {
		if n <= 2 && (m == "before advance" || m == "after advance") {
			return broken()
		}
		return nil
	})
	if err := table.Advance(context.Background(), 3); err != nil || f.table.Version() != 3 ||
		f.count("before advance") != 5 {
		t.Errorf("%v, version %d, %d attempts", err, f.table.Version(), f.count("before advance"))
	}
}

func TestATableThatARepeatedDropFindsGoneWasDropped(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	f.failing(func(m string, n int) error {
		switch {
		case m == "before drop_table" && n == 1:
			return broken()
		case m == "before drop_table":
			return wire.ToGRPC(wire.Errorf(wire.NotFound, "table lab is not there"))
		}
		return nil
	})
	if err := table.client.Drop(context.Background(), "lab"); err != nil {
		t.Errorf("the second attempt of a drop: %v", err)
	}
	if err := table.client.Drop(context.Background(), "lab"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("the first attempt at a table that is not there: %v", err)
	}
}

func TestALeaseIsNotSettledTwiceOverABrokenConnection(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	f.failing(func(m string, n int) error {
		if m == "before acknowledge" {
			return broken()
		}
		return nil
	})
	if err := table.Acknowledge(context.Background(), 1); err == nil || f.count("before acknowledge") != 1 {
		t.Errorf("%v after %d attempts", err, f.count("before acknowledge"))
	}
}

func TestAnAnswerThatIsNoJSONIsAnError(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	f.answers[wire.Info] = "<html>"
	if _, err := table.Info(context.Background()); err == nil || !strings.Contains(err.Error(), "<html>") ||
		!strings.Contains(err.Error(), "table lab of") {
		t.Errorf("%v", err)
	}
}

func TestLenAsksTheService(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	if _, err := table.Insert(context.Background(), group("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := table.Len(context.Background()); n != 2 || err != nil ||
		!slices.Contains(f.actions, `info {"table":"lab"}`) {
		t.Errorf("Len is %d, %v", n, err)
	}
}

func TestARepeatedReportHasTheIDOfTheFirst(t *testing.T) {
	f, table := connected(t, replay.Options{}, Options{})
	f.answers[wire.ReportDraws] = `{"table":"lab"}`
	f.failing(func(m string, n int) error {
		if m == "after report" && n == 1 {
			return broken()
		}
		return nil
	})
	for range 2 {
		if err := table.Report(context.Background(), rollout.Feedback{ID: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.actions) != 3 || f.actions[0] != f.actions[1] || f.actions[1] == f.actions[2] {
		t.Errorf("two reports, the first repeated, were sent as %q", f.actions)
	}
}
