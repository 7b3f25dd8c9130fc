package run

import (
	"bufio"
	"context"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// table is where a run's rollouts are: in the run itself ([embedded]) or in a service ([remote], [liveTable]). It is
// used from one goroutine.
type table interface {
	pipeline.Buffer
	described
	kept
}

// described tells what a run writes of its table.
type described interface {
	// Options returns the table's options with defaults filled in.
	Options() replay.Options
	// state returns what a line of metrics.jsonl says of it, after every update.
	state(ctx context.Context) (tableState, error)
	// summary returns what summary.json says of it, at the end.
	summary(ctx context.Context) (tableSummary, error)
}

// kept is part of a run's checkpoints.
type kept interface {
	// save makes the table part of the checkpoint in a folder, and restore puts it back to where it was then.
	save(ctx context.Context, dir string) error
	restore(ctx context.Context, dir string) error
	close() error
}

// tableState is what is cheap to know of a table.
type tableState struct {
	held      int     // rollouts
	neverUsed float64 // share of them without a use
	ageDecay  float64 // tau in versions, +Inf for none
}

// tableSummary is everything that a run tells of its table.
type tableSummary struct {
	tableState
	stats rollout.Stats
	ages  []results.AgePriority // of a prioritized sampler
	ess   []results.AgeESS
}

// openTable opens the table of a run: its own, or one of a service. A run that begins wants the latter empty.
func (c Config) openTable(ctx context.Context, vocab int, dir string, begins bool) (table, error) {
	if c.live() {
		return openLive(ctx, c, vocab, begins)
	}
	if c.remote != nil {
		return openRemote(ctx, *c.remote, c.replayOptions(vocab), dir, begins)
	}
	t, err := replay.New(c.replayOptions(vocab))
	if err != nil {
		return nil, under("replay", err)
	}
	return embedded{t}, nil
}

// embedded is a table in the run's own memory.
type embedded struct{ *replay.Table }

func (e embedded) state(ctx context.Context) (tableState, error) {
	in := e.Inspect()
	n, err := e.Len(ctx)
	return tableState{n, in.NeverUsedShare(), in.AgeDecay()}, err
}

func (e embedded) summary(ctx context.Context) (tableSummary, error) {
	stats, err := e.Stats(ctx)
	in := e.Inspect()
	state := tableState{stats.Present, in.NeverUsedShare(), in.AgeDecay()}
	return tableSummary{state, stats, agePriorities(in), ageESS(in)}, err
}

func (e embedded) save(_ context.Context, dir string) error {
	return writeStream(filepath.Join(dir, tableFile), func(w *bufio.Writer) error { return e.Snapshot(w) })
}

func (e embedded) restore(_ context.Context, dir string) error {
	f, err := os.Open(filepath.Join(dir, tableFile))
	if err != nil {
		return err
	}
	defer f.Close()
	return e.Restore(bufio.NewReader(f))
}

func (e embedded) close() error { return nil }

// agePriorities writes how a prioritized sampler's probabilities lie over ages as results hold it.
func agePriorities(in replay.Inspection) []results.AgePriority {
	var list []results.AgePriority
	for _, a := range in.ByAge() {
		list = append(list, results.AgePriority{Age: a.Age, Count: a.Units, Base: a.Base, Probability: a.Probability})
	}
	return list
}

// ageESS writes effective sample sizes by age as results hold them.
func ageESS(in replay.Inspection) []results.AgeESS {
	var list []results.AgeESS
	for _, a := range in.ESSByAge() {
		list = append(list, results.AgeESS{Age: a.First, Last: a.Last, ESS: a.ESS, Tokens: a.Tokens})
	}
	return list
}
