package study

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Runner carries out a study.
type Runner struct {
	Study   Study
	Options Options
	Dir     string // of all studies: this one's folder is Dir/NAME, the pool of runs Dir/runs
	AtOnce  int    // runs at once; 0: one per core
	Command string // that started the study, for its page; empty: not shown

	// OnPlan is called before the study's runs, and before those of each stage of its pilots, with their number and how
	// many of them had ended before. OnEnd is called for each run that ends, by one goroutine at a time. Hooks returns
	// the hooks of a run; the hooks of two runs may be called concurrently. Warmup watches the warm-up that several runs
	// share. Both get the first arm of the run. Any may be nil.
	OnPlan func(pilots bool, total, ended int)
	OnEnd  func(Ended)
	Hooks  func(arm string, seed uint64, c run.Config) run.Hooks
	Warmup func(arm string, seed uint64, c run.Config) func(step int, loss float64)

	From []*results.Archive // of this study or others: runs that they have are not carried out

	Now func() time.Time // nil: time.Now

	carryOut func(*plan) error            // returns when all runs have ended; nil: they have
	read     func(*job) (endedRun, error) // reads one that has
	ended    map[string]endedRun          // what was read, by digest
}

// Ended is a run that has ended.
type Ended struct {
	Arm    string // the first arm that has this run
	Seed   uint64
	Count  int              // of the study's runs that have ended, including this one
	Total  int              // of the study's runs
	Result *results.Summary // nil: it failed
	Failed string           // its error
	Dir    string
}

// Run carries out the runs that the pool does not have yet, judges the study, and writes study.json and runs.json.gz
// into its folder.
//
// When ctx ends, the runs under way stop with a checkpoint and Run returns the context's error; the next call resumes
// them. A run that fails by itself is part of the result. A run that cannot be started, or finds the disk full, ends
// the study.
func (r Runner) Run(ctx context.Context) (*results.Study, error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	r.AtOnce = cmp.Or(max(r.AtOnce, 0), runtime.GOMAXPROCS(0))
	began := r.Now()
	if r.Options.Seeds < 1 {
		return nil, &option.Error{Key: "--seeds", Value: r.Options.Seeds, Want: "1 or more"}
	}
	_, err := newPlan(r.Study.Name, r.Study.Arms(r.Options), nil)
	if err != nil { // before the pilots, which take long
		return nil, err
	}
	pool := newPool(r.Dir)
	for _, a := range r.From {
		if a.Quick != r.Options.Quick {
			return nil, &option.Error{Key: "--from", Value: a.Study, Want: "an archive of runs made with the same --quick"}
		}
	}
	r.read = func(j *job) (endedRun, error) {
		if a := r.archiveOf(j); a != nil {
			return archived(a)(j)
		}
		return pool.read(j)
	}
	r.carryOut = func(p *plan) error { return (&scheduler{Runner: r, plan: p, pool: pool}).run(ctx) }
	s := &results.Study{Machine: thisMachine(), AtOnce: r.AtOnce, Began: began.UTC()}
	a := &results.Archive{Study: r.Study.Name, Seeds: r.Options.Seeds, Quick: r.Options.Quick, Machine: s.Machine,
		AtOnce: r.AtOnce, Command: r.Command, Began: s.Began}
	stopped := r.judge(s, pool)
	a.Runs, a.Ended = r.condensed(), s.Ended
	if stopped != nil && (ctx.Err() == nil || len(a.Runs) == 0) {
		return nil, stopped
	}
	dir := Folder(r.Dir, r.Study.Name)
	unfinished := filepath.Join(dir, UnfinishedFile)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if stopped != nil {
		if err := results.WriteArchive(unfinished, a); err != nil {
			return nil, errors.Join(err, stopped)
		}
		return nil, stopped
	}
	return s, errors.Join(results.WriteArchive(filepath.Join(dir, results.ArchiveFile), a), results.WriteStudy(dir, s),
		remove(unfinished))
}

// archiveOf returns the archive that has a run, nil if none has.
func (r *Runner) archiveOf(j *job) *results.Archive {
	i := slices.IndexFunc(r.From, func(a *results.Archive) bool { return a.Runs[j.digest] != nil })
	if i < 0 {
		return nil
	}
	return r.From[i]
}

// UnfinishedFile is the archive of a study that was interrupted, of the runs that have ended, from which it can go on
// elsewhere.
const UnfinishedFile = "unfinished.json.gz"

// condensed returns all runs that were read.
func (r *Runner) condensed() map[string]*results.CondensedRun {
	all := make(map[string]*results.CondensedRun)
	for digest, k := range r.ended {
		all[digest] = results.Condense(k.run)
		all[digest].Failed = k.failed
	}
	return all
}

// FromArchive judges the runs of an archive, with this program's judges.
func FromArchive(a *results.Archive) (*results.Study, error) {
	study, err := ByName(a.Study)
	if err != nil {
		return nil, err
	}
	r := Runner{
		Study: study, Options: Options{Seeds: a.Seeds, Quick: a.Quick}, Command: a.Command,
		Now: func() time.Time { return a.Ended }, read: archived(a),
	}
	s := &results.Study{Machine: a.Machine, AtOnce: a.AtOnce, Began: a.Began}
	return s, r.judge(s, pool{})
}

// judge chooses what is to be chosen, carries out the study's runs, judges them, and completes study.json.
func (r *Runner) judge(s *results.Study, pool pool) error {
	r.ended = make(map[string]endedRun)
	choices, tried, err := r.runPilots()
	if err != nil {
		return err
	}
	plan, found, err := r.runAll(r.Study.Arms(r.Options), r.Study.seeds(r.Options.Seeds))
	if err != nil {
		return err
	}
	found.pilots = tried
	judgement, err := r.Study.Judge(found)
	if err != nil {
		return err
	}
	judgement.Sections = append(judgement.Sections, choices...)
	if err := r.describe(s, plan, found); err != nil {
		return err
	}
	s.Ended = r.Now().UTC()
	s.Sheet = r.sheet(s, found, pool, judgement)
	return nil
}

// runPilots runs the study's pilots, and tells what they chose. It returns their runs too.
func (r *Runner) runPilots() (chosen []results.Section, tried []Runs, err error) {
	if r.Study.Pilots == nil {
		return nil, nil, nil
	}
	n := cmp.Or(r.Study.PilotRuns, bases)
	if r.Options.Quick {
		n = 1
	}
	r.Options.chosen = make(map[string]int)
	section := results.Section{Title: "What was chosen before", Text: []string{fmt.Sprintf("By %s of each arm, on base "+
		"models, seeds and held-out problems of their own, which judge nothing.", words.Plural(n, "run"))}}
	for stage, left := 0, true; left; stage++ {
		var pilots []Pilot
		var arms []Arm
		listed := make(map[string]bool) // several pilots may choose among the same arms
		left = false
		for _, p := range r.Study.Pilots(r.Options) {
			left = left || p.stage > stage
			if p.stage != stage {
				continue
			}
			pilots = append(pilots, p)
			for _, a := range p.Arms {
				if !listed[a.Name] {
					listed[a.Name] = true
					arms = append(arms, a)
				}
			}
		}
		_, found, err := r.runAll(arms, upTo(n, pilotSeed))
		if err != nil {
			return nil, nil, err
		}
		tried = append(tried, found.Arms...)
		for _, p := range pilots {
			grid, chosen := found.choose(p)
			r.Options.chosen[p.Name] = chosen
			section.Grids = append(section.Grids, grid)
		}
	}
	return []results.Section{section}, tried, nil
}

// choose returns the arm with the highest mean of a pilot's measure, by its number, and a table of all.
func (f *Found) choose(p Pilot) (results.Grid, int) {
	top, chosen := math.Inf(-1), 0
	values := make([]float64, len(p.Arms))
	for i, a := range p.Arms {
		if values[i] = mean(f.Of(a.Name).over(p.by)); values[i] > top {
			top, chosen = values[i], i
		}
	}
	g := results.Grid{Title: strings.ToUpper(p.Name[:1]) + p.Name[1:], Columns: []string{"arm", p.of, "chosen"}}
	for i, a := range p.Arms {
		g.Rows = append(g.Rows, []string{a.Name, points(values[i]), map[bool]string{true: "chosen"}[i == chosen]})
	}
	return g, chosen
}

// runAll carries out the runs of arms that the pool does not have yet, and reads all.
func (r *Runner) runAll(arms []Arm, seeds []uint64) (*plan, *Found, error) {
	plan, err := newPlan(r.Study.Name, arms, seeds)
	if err != nil {
		return nil, nil, err
	}
	if r.carryOut != nil {
		err = r.carryOut(plan)
	}
	for _, j := range plan.jobs {
		if k, problem := r.read(j); problem == nil {
			r.ended[j.digest] = k
		} else if err == nil {
			return nil, nil, problem
		}
	}
	if err != nil { // those that have ended go into the archive
		return nil, nil, err
	}
	return plan, plan.found(r.ended, r.Options), nil
}

// endedRun is a run that has ended, condensed.
type endedRun struct {
	run    *results.Run
	failed string // its error; empty: it did not fail
}

// read reads a run of the pool. It is condensed, so that an archive of it is judged alike.
func (p pool) read(j *job) (endedRun, error) {
	dir := p.folder(j.digest)
	r, err := results.ReadRun(dir)
	if err != nil {
		return endedRun{}, err
	}
	why, err := readFailure(dir)
	switch {
	case err != nil:
		return endedRun{}, err
	case why == "" && (r.Summary == nil || r.Summary.Ended != "budget"):
		return endedRun{}, fmt.Errorf("%s has not ended", j)
	}
	short := results.Condense(r).Run()
	short.Dir, short.Seed = dir, j.seed
	return endedRun{short, why}, nil
}

// archived reads runs of an archive.
func archived(a *results.Archive) func(*job) (endedRun, error) {
	return func(j *job) (endedRun, error) {
		c := a.Runs[j.digest]
		switch {
		case c == nil && a.Ended.IsZero():
			return endedRun{}, fmt.Errorf("%s: the archive is of a study that was interrupted: continue it with reprise study "+
				"%s --from", j, a.Study)
		case c == nil:
			return endedRun{}, fmt.Errorf("%s: the archive has no run %s: this build's configurations differ; rerun "+
				"reprise study %s", j, j.digest, a.Study)
		}
		r := c.Run()
		r.Seed = j.seed
		return endedRun{r, c.Failed}, nil
	}
}

// scheduler carries out the runs of a plan, several at once.
type scheduler struct {
	Runner
	plan   *plan
	pool   pool
	starts run.Starts

	mu      sync.Mutex
	pending []*job // not started by this scheduler, in order
	ended   int
}

// run returns when every run has ended, here or in another process, or at the first error that is not a run's own.
func (s *scheduler) run(ctx context.Context) error {
	if err := s.survey(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	for range min(s.AtOnce, len(s.pending)) {
		wait.Go(func() {
			if err := s.work(ctx); err != nil {
				cancel(err) // the others stop with a checkpoint
			}
		})
	}
	wait.Wait()
	if s.ended < len(s.plan.jobs) {
		return context.Cause(ctx)
	}
	return nil
}

// survey finds the runs that are left to do.
func (s *scheduler) survey() error {
	for _, j := range s.plan.jobs {
		state, err := s.pool.state(j.digest)
		if err != nil {
			return err
		}
		if state == finished || s.archiveOf(j) != nil {
			s.ended++
			continue
		}
		s.pending = append(s.pending, j)
		if err := s.starts.Expect(j.config); err != nil {
			return fmt.Errorf("%s: %w", j, err)
		}
	}
	if s.OnPlan != nil {
		s.OnPlan(s.plan.jobs[0].seed > pilotSeed, len(s.plan.jobs), s.ended)
	}
	return nil
}

// work executes one pending run after another until none is left.
func (s *scheduler) work(ctx context.Context) error {
	for {
		j, lock, err := s.next(ctx)
		if err != nil || j == nil {
			return err
		}
		if err := errors.Join(s.execute(ctx, j), s.starts.Release(j.config), lock.close()); err != nil {
			return err
		}
		if err := s.report(j); err != nil {
			return err
		}
	}
}

// pollInterval is how often a scheduler looks for runs that another process has released.
const pollInterval = 200 * time.Millisecond

// next takes the first pending run that is free. While all pending runs are locked by others it waits. It returns nil
// when no run is pending.
func (s *scheduler) next(ctx context.Context) (*job, *lock, error) {
	for {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		j, lock, left, err := s.take()
		if err != nil || j != nil || left == 0 {
			return j, lock, err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
}

// take locks the first pending run that is free, nil if none is, and returns how many are still pending.
func (s *scheduler) take() (*job, *lock, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, j := range s.pending {
		lock, err := s.pool.lock(j.digest)
		if err != nil {
			return nil, nil, 0, err
		}
		if lock != nil {
			s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
			return j, lock, len(s.pending), nil
		}
	}
	return nil, nil, len(s.pending), nil
}

// execute brings a run to its end from whatever state it is in. A failure of the run itself is recorded, not returned.
func (s *scheduler) execute(ctx context.Context, j *job) error {
	state, err := s.pool.state(j.digest)
	if err != nil || state == finished { // finished by another process since the survey
		return err
	}
	sum, err := s.train(ctx, j, state)
	switch {
	case err == nil && sum.Ended == "budget":
		return nil
	case ctx.Err() != nil: // any other error will come again when the run is resumed
		return context.Cause(ctx)
	case ownFailure(err):
		return writeFailure(s.pool.folder(j.digest), err)
	}
	return fmt.Errorf("%s: %w", j, err)
}

// train starts or resumes a run.
func (s *scheduler) train(ctx context.Context, j *job, from state) (*results.Summary, error) {
	dir := s.pool.folder(j.digest)
	hooks := func() run.Hooks {
		if s.Hooks == nil {
			return run.Hooks{}
		}
		return s.Hooks(j.arm, j.seed, j.config)
	}
	if from == stopped {
		return run.Resume(ctx, j.config, dir, hooks())
	}
	if err := os.RemoveAll(dir); err != nil { // a run that was killed before its first checkpoint
		return nil, err
	}
	var report func(int, float64)
	if s.Warmup != nil {
		report = s.Warmup(j.arm, j.seed, j.config)
	}
	start, err := s.starts.Begin(ctx, j.config, report)
	if err != nil {
		return nil, err
	}
	return run.Train(ctx, j.config, start, dir, hooks())
}

// report counts a run that has ended and calls OnEnd.
func (s *scheduler) report(j *job) error {
	dir := s.pool.folder(j.digest)
	why, err := readFailure(dir)
	if err != nil {
		return err
	}
	sum, err := results.ReadSummary(dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	if s.OnEnd != nil {
		s.OnEnd(Ended{Arm: j.arm, Seed: j.seed, Count: s.ended, Total: len(s.plan.jobs), Result: sum,
			Failed: why, Dir: dir})
	}
	return nil
}

// ownFailure reports whether an error is the run's own and would come again, unlike an error of the machine such as a
// full disk.
func ownFailure(err error) bool {
	var failure *run.Failure
	var system syscall.Errno
	return errors.As(err, &failure) && !errors.As(err, &system)
}
