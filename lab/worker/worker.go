// Package worker plays tasks with inference servers and puts the rollouts into a table of a service.
//
// A [Worker] starts a group when the table's gate lets it ([client.Table.Start]), so that nothing is generated that
// will be too stale. It spreads the completions over its engines, repeats what fails, rewards, and inserts each group
// once and whole. Any number of workers fill one table: the number of the gate's grant names the prompt and seeds the
// environments.
package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// Options say how a worker works.
type Options struct {
	Group     int             // rollouts of each prompt, 1 or more
	InFlight  int             // rollouts being generated at once over all engines; a group of them at least
	Positions int             // most tokens of a rollout, prompt included; above 1
	Sampling  engine.Sampling // of each turn; what ends a turn is the tokenizer's
	Seed      uint64          // of the order of prompts, which the task has, and of the environments

	Groups      int           // groups to start, with which it ends; 0: goes on
	Deadline    time.Duration // a group that takes longer is cut: given back and counted; 0: none is
	TokenBudget int           // tokens that a request decodes of a completion; the rest is another's; 0: no budget
	OldestFirst bool          // groups enter in the order in which they were started, whichever is finished first
	Degraded    bool          // use engines that lack something, see engine.Probe

	// Weights is the folder in which a trainer publishes versions (engine.Publish); "": the engines have their weights
	// from elsewhere.
	Weights string
	Poll    time.Duration // between looks at the table's version; 0: 200 ms
	Pause   time.Duration // after a first failure, doubled at each that follows, to a hundred times as long; 0: 50 ms
}

// Validate reports every field that is out of range, as [option.Error]s.
func (o Options) Validate() error {
	var p option.Problems
	p.Check(o.Group >= 1, "group", o.Group, "1 or more")
	p.Check(o.InFlight >= o.Group, "in_flight", o.InFlight, "a group of %d at least", o.Group)
	p.Check(o.Positions >= 2, "positions", o.Positions, "2 or more")
	p.Check(o.Groups >= 0, "groups", o.Groups, "0 (no limit) or more")
	p.Check(o.TokenBudget >= 0, "token_budget", o.TokenBudget, "0 (none) or more")
	p.Check(o.Deadline >= 0, "deadline", o.Deadline, "0 (none) or more")
	one := engine.Request{Prompt: []int32{0}, N: 1, Sampling: o.Sampling}
	return errors.Join(p.Err(), one.Validate())
}

// Worker plays one task. It is used once.
type Worker struct {
	options  Options
	task     task.Task
	dialogue hf.TaskDialogue
	ends     func(turn []int32) bool // besides Sampling.Stop; nil: never
	encode   func(string) ([]int32, error)
	table    *client.Table
	log      *slog.Logger
	pool     *pool
	id       string // in the ids of insertions

	mu    sync.Mutex
	stats Stats
}

// Stats are what a worker has done.
type Stats struct {
	Version   rollout.Version `json:"version"` // of the table
	Groups    int64           `json:"groups"`  // inserted
	Rollouts  int64           `json:"rollouts"`
	Tokens    int64           `json:"tokens"` // that the policy made, of rollouts inserted
	Reward    float64         `json:"reward"` // mean of the rollouts inserted; 0 before the first
	Truncated int64           `json:"truncated"`
	TooOld    int64           `json:"too_old"` // rollouts that left the table at once: they were older than max_staleness

	Generating int64 `json:"generating"` // groups
	Inserting  int64 `json:"inserting"`  // groups that are finished and wait for room, the limiter, or older groups
	Cut        int64 `json:"cut"`        // groups, at the deadline
	TooLong    int64 `json:"too_long"`   // groups whose prompt left no room for a completion
	Continued  int64 `json:"continued"`  // completions that their engine aborted, or that spent the budget

	GateSeconds     float64 `json:"gate_seconds"`     // in which a group could have been started but for the gate
	InsertSeconds   float64 `json:"insert_seconds"`   // of finished groups until they were inserted, summed
	GenerateSeconds float64 `json:"generate_seconds"` // of groups from their start until they were finished, summed
	Seconds         float64 `json:"seconds"`          // since the worker began

	Engines []EngineStats `json:"engines"`
}

// New returns a worker that fills a table. The tokenizer is that of the engines' model. The table's client should have
// a RetryFor without an end, so that a service may restart.
func New(
	o Options, t task.Task, tokenizer *hf.Tokenizer, engines []engine.Engine, table *client.Table, log *slog.Logger,
) (*Worker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if s, ok := t.(task.Seeing); ok && s.ImageSize() > 0 {
		return nil, errors.New("the task has images, which are not sent to engines: want a task of text")
	}
	if len(engines) == 0 {
		return nil, errors.New("no engine: want one at least")
	}
	o.Poll, o.Pause = cmp.Or(o.Poll, 200*time.Millisecond), cmp.Or(o.Pause, 50*time.Millisecond)
	var id [8]byte
	rand.Read(id[:]) // never fails
	dialogue, err := tokenizer.ForTask(t)
	if err != nil {
		return nil, err
	}
	o.Sampling.Stop = dialogue.Stop()
	return &Worker{options: o, task: t, dialogue: dialogue, ends: dialogue.Ends(), encode: tokenizer.EncodePart, log: log,
		pool: newPool(engines, o, log), table: table.Waiting(client.Forever), id: hex.EncodeToString(id[:])}, nil
}

// Stats returns what the worker has done so far. It may be called at any time.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Engines = w.pool.stats()
	return s
}

// update changes the counts.
func (w *Worker) update(change func(*Stats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.stats)
}

// errEnough ends a worker that has done its groups.
var errEnough = errors.New("all groups are done")

// Run works until the context ends, or until Options.Groups are done. Groups being generated when the context ends
// are given back to the gate; those that are finished have ten seconds to enter.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.checkTable(ctx); err != nil {
		return err
	}
	defer task.Open(w.task)()
	all, ctx := errgroup.WithContext(ctx)
	for _, m := range w.pool.members {
		all.Go(func() error { return w.pool.manage(ctx, m, w.probe) })
	}
	began := time.Now()
	tick := func() { w.update(func(s *Stats) { s.Seconds = time.Since(began).Seconds() }) }
	all.Go(func() error { return w.follow(ctx, tick) })
	all.Go(func() error { return w.admit(ctx) })
	err := all.Wait()
	tick()
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, task.Err(w.task))
}

// checkTable refuses a table that takes groups of another size.
func (w *Worker) checkTable(ctx context.Context) error {
	info, err := w.table.Info(ctx)
	if err != nil {
		return err
	}
	w.update(func(s *Stats) { s.Version = rollout.Version(info.Version) })
	if d := info.Definition; d != nil && d.GroupSize != 0 && d.GroupSize != w.options.Group {
		return &option.Error{Key: "group", Value: w.options.Group, Want: fmt.Sprintf("%d, the group_size of table %s",
			d.GroupSize, w.table.Name())}
	}
	return nil
}

// probe finds out what an engine gives for this task.
func (w *Worker) probe(ctx context.Context, e engine.Engine) (*engine.Report, error) {
	first := w.task.Train(0)
	prompt, err := w.dialogue.Ask(first)
	if err != nil {
		return nil, err
	}
	if len(prompt) >= w.options.Positions {
		return nil, fmt.Errorf("prompt %s has %d tokens: want fewer than the %d positions of a rollout: allow more, or give "+
			"the task shorter prompts or fewer task.examples", first.ID, len(prompt), w.options.Positions)
	}
	sampling := w.options.Sampling
	sampling.MaxTokens = min(sampling.MaxTokens, w.options.Positions-len(prompt)) // as when it generates
	r, err := engine.Probe(ctx, e, engine.Probing{Sampling: sampling, Prompt: prompt,
		Texts: []string{first.Text}, Encode: w.encode})
	if err == nil && !w.options.Degraded {
		err = r.Err()
	}
	return r, err
}

// follow looks at the table's version, and has the engines take the newest weights up to it.
func (w *Worker) follow(ctx context.Context, tick func()) error {
	looked := sync.OnceFunc(func() { close(w.pool.looked) })
	for warned := false; ; {
		info, err := w.table.Info(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		tick()
		version := rollout.Version(info.Version)
		w.update(func(s *Stats) { s.Version = version })
		if w.options.Weights != "" {
			weights, err := engine.Newest(w.options.Weights, version)
			switch {
			case err == nil:
				w.pool.use(weights)
			case !errors.Is(err, fs.ErrNotExist):
				return err
			case !warned: // the trainer may publish its first version later
				warned = true
				w.log.Warn("no weights are published yet; engines keep theirs", "error", err)
			}
		}
		looked()
		if err := sleep(ctx, w.options.Poll); err != nil {
			return nil
		}
	}
}

// job is a group under way.
type job struct {
	number uint64 // of the gate's grant
	prompt task.Prompt
	before <-chan struct{} // closed when the group started before this one has entered, or never will
}

// admit starts groups as the gate lets it and engines have room.
func (w *Worker) admit(ctx context.Context) error {
	generating := make(chan struct{}, w.options.InFlight/w.options.Group)
	finished := make(chan struct{}, 2*cap(generating)) // groups that wait to be inserted are bounded, too
	all, jobs := errgroup.WithContext(ctx)
	before := make(chan struct{})
	close(before)
	for n := 0; w.options.Groups == 0 || n < w.options.Groups; n++ {
		if !acquire(jobs, finished) || !acquire(jobs, generating) {
			break
		}
		began := time.Now()
		grant, err := w.table.Start(jobs, 1, w.options.Group)
		w.update(func(s *Stats) { s.GateSeconds += time.Since(began).Seconds() })
		if err != nil {
			all.Go(func() error { return ended(jobs, err) })
			break
		}
		done := make(chan struct{})
		j := job{number: grant.Grant, prompt: w.task.Train(grant.Grant), before: before}
		before = done
		all.Go(func() error {
			defer close(done)
			defer func() { <-finished }()
			return w.run(jobs, j, func() { <-generating })
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return errEnough
	}
	return nil
}

func acquire(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// run generates a group and inserts it. generated is called when others may be generated in its place.
func (w *Worker) run(ctx context.Context, j job, generated func()) error {
	w.update(func(s *Stats) { s.Generating++ })
	began := time.Now()
	group, err := w.generate(ctx, j)
	w.update(func(s *Stats) {
		s.Generating--
		s.GenerateSeconds += time.Since(began).Seconds()
	})
	generated()
	if err != nil {
		return w.giveBack(ctx, j, err)
	}
	w.update(func(s *Stats) { s.Inserting++ })
	defer w.update(func(s *Stats) { s.Inserting-- })
	began = time.Now()
	defer func() { w.update(func(s *Stats) { s.InsertSeconds += time.Since(began).Seconds() }) }()
	ctx, stop := withGrace(ctx)
	defer stop()
	if w.options.OldestFirst {
		select {
		case <-j.before:
		case <-ctx.Done():
			return w.giveBack(ctx, j, ctx.Err())
		}
	}
	return w.insert(ctx, j, group)
}

// leaving is how long finished groups may take to enter once the worker has to end.
const leaving = 10 * time.Second

// withGrace returns a context that ends a while after another.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(leaving):
		case <-longer.Done():
		}
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// giveBack returns a group to the gate that will not be inserted, and the error unless that was to be expected.
func (w *Worker) giveBack(ctx context.Context, j job, err error) error {
	cut, tooLong := errors.Is(err, errDeadline), errors.Is(err, errTooLong)
	switch {
	case cut:
		w.update(func(s *Stats) { s.Cut++ })
		w.log.Warn("a group was cut at the deadline", "prompt", j.prompt.ID, "deadline", w.options.Deadline)
	case tooLong:
		w.update(func(s *Stats) { s.TooLong++ })
		w.log.Warn("a prompt was left out: it leaves no room for a completion", "prompt", j.prompt.ID, "positions",
			w.options.Positions)
	}
	brief, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	if abandoned := w.table.Abandon(brief, j.number, 1); abandoned != nil {
		w.log.Warn("a group was not given back to the gate, which takes it back when the grant expires",
			"error", abandoned)
	}
	if cut || tooLong {
		return nil
	}
	return ended(ctx, err)
}

// maxAhead is how long a group waits for a table that has not reached its version.
const maxAhead = time.Minute

// insert puts a group into the table, once, however long the service takes.
func (w *Worker) insert(ctx context.Context, j job, group []*rollout.Rollout) error {
	for began, warned := time.Now(), false; ; {
		answer, err := w.table.InsertGroups(ctx, client.Insertion{Grant: j.number, GroupSize: len(group),
			BatchID: fmt.Sprintf("worker-%s-%d", w.id, j.number)}, rollout.Group{Rollouts: group, Size: len(group)})
		switch {
		case err == nil:
			w.count(group, answer)
			return nil
		case errors.Is(err, rollout.ErrAhead) && time.Since(began) < maxAhead:
			if !warned { // the engine had its weights before the table heard of them
				warned = true
				w.log.Warn("waiting until the table has the version of these rollouts", "error", err)
			}
			if err := sleep(ctx, w.options.Poll); err != nil {
				return w.giveBack(ctx, j, err)
			}
		case errors.Is(err, rollout.ErrAhead):
			return fmt.Errorf("for %v: %w: are the engine's weights of another run? start it with those of this run, or "+
				"advance the table", maxAhead, err)
		default:
			return w.giveBack(ctx, j, err)
		}
	}
}

func (w *Worker) count(group []*rollout.Rollout, answer wire.InsertAnswer) {
	if answer.TooOld > 0 {
		w.log.Warn("rollouts were too old for the table", "rollouts", answer.TooOld, "note", answer.Note)
	}
	w.update(func(s *Stats) {
		s.Groups++
		s.TooOld += int64(answer.TooOld)
		for _, r := range group {
			s.Rollouts++
			s.Reward += (float64(r.Reward) - s.Reward) / float64(s.Rollouts)
			for _, m := range r.Mask {
				s.Tokens += int64(m)
			}
			if r.Truncated {
				s.Truncated++
			}
		}
	})
}

// Parts says how far the worker has come, what matters most first.
func (s Stats) Parts() []string {
	ready := 0
	for _, e := range s.Engines {
		if e.Ready {
			ready++
		}
	}
	return []string{fmt.Sprintf("%d rollouts", s.Rollouts), fmt.Sprintf("reward %.3f", s.Reward),
		fmt.Sprintf("%d of %s ready", ready, words.Plural(len(s.Engines), "engine")), fmt.Sprintf("version %d", s.Version),
		fmt.Sprintf("%.0f tokens/s", float64(s.Tokens)/max(s.Seconds, 1e-9))}
}

// ended returns nil instead of an error that comes of the end of a context.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
