package study

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"time"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// Runner carries out a study.
type Runner struct {
	Study   Study
	Options Options
	Dir     string // of all studies: this one's folder is Dir/NAME, the pool of runs Dir/runs
	AtOnce  int    // runs side by side; 0: as many as there are cores
	Command string // by which the study was called, for its page; empty: not told

	// OnPlan is told once how many runs the study has, and how many of them have ended before. OnEnd is told of each that ends, and
	// is never called by two goroutines at once. Hooks watches a run under the first of its arms; those of two runs are called by
	// two goroutines. Warmup watches the warm-up that runs from one start share, under the first of them. Any may be nil.
	OnPlan func(total, ended int)
	OnEnd  func(Ended)
	Hooks  func(arm string, seed uint64, c run.Config) run.Hooks
	Warmup func(arm string, seed uint64, c run.Config) func(step int, loss float64)

	Now func() time.Time // nil: time.Now
}

// Ended is a run that has ended.
type Ended struct {
	Arm    string // the first it belongs to
	Seed   uint64
	Count  int              // of the study's runs that have ended, this one among them
	Total  int              // runs of the study
	Result *results.Summary // nil: it ended with an error
	Failed string           // that error
	Dir    string
}

// Run carries out the study's runs, those apart that the pool has, judges them and writes study.json into the study's folder. When ctx ends, the runs under
// way stop with a checkpoint, from which the next call goes on, and Run returns the context's error. A run that ends with an error of
// its own is part of the result; one that cannot be begun, or finds the disk full, ends the study.
func (r Runner) Run(ctx context.Context) (*results.Study, error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.AtOnce < 1 {
		r.AtOnce = runtime.GOMAXPROCS(0)
	}
	began := r.Now()
	plan, err := newPlan(r.Study, r.Options)
	if err != nil {
		return nil, err
	}
	pool := newPool(r.Dir)
	if err := newCrew(r, plan, pool).run(ctx); err != nil {
		return nil, err
	}
	found, err := gather(plan, pool, r.Options)
	if err != nil {
		return nil, err
	}
	judgement, err := r.Study.Judge(found)
	if err != nil {
		return nil, err
	}
	s, err := r.account(plan, pool, found)
	if err != nil {
		return nil, err
	}
	s.Began, s.Ended = began.UTC(), r.Now().UTC()
	s.Sheet = r.sheet(s, found, pool, judgement)
	dir := Folder(r.Dir, r.Study.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return s, results.WriteStudy(dir, s)
}

// title is what the study's page is called.
func (s Study) title() string { return cmp.Or(s.Title, s.Name) }
