package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout"
)

// pool is the engines that a worker asks. A request goes to the engine that is ready and has the fewest completions to
// make. One that fails is left alone until it is healthy again, and its requests go to the others.
type pool struct {
	members []*member
	first   time.Duration // pause, see [Options.Pause]
	budget  int           // see [Options.TokenBudget]
	log     *slog.Logger

	mu      sync.Mutex
	changed chan struct{} // closed when an engine becomes ready, or there are newer weights
	newest  engine.Weights

	looked chan struct{} // closed when somebody has looked for weights
}

// member is one engine. The pool's mutex guards what follows engine.
type member struct {
	engine engine.Engine

	ready   bool
	ours    bool            // it has, or has had, a version that was published for this table
	working context.Context // of its requests, ends when it is withdrawn; nil before it was ready
	stop    context.CancelFunc
	stats   EngineStats
	since   time.Time // when it was last given work while it had none
}

// EngineStats is what a worker knows of an engine.
type EngineStats struct {
	Engine      string          `json:"engine"`
	Ready       bool            `json:"ready"`
	Version     rollout.Version `json:"version"`     // of its weights, when it last took some
	Outstanding int             `json:"outstanding"` // completions being made
	Completions int64           `json:"completions"`
	Tokens      int64           `json:"tokens"`
	BusySeconds float64         `json:"busy_seconds"` // with a completion to make, or more
	Failures    int64           `json:"failures"`     // requests that failed, and were repeated elsewhere
	Loads       int64           `json:"loads"`        // of weights
	LoadSeconds float64         `json:"load_seconds"`
	Lacks       []engine.Lack   `json:"lacks,omitempty"` // that were accepted
	Unknown     []string        `json:"unknown,omitempty"`
}

func newPool(engines []engine.Engine, o Options, log *slog.Logger) *pool {
	p := &pool{changed: make(chan struct{}), looked: make(chan struct{}), first: o.Pause, budget: o.TokenBudget, log: log,
		newest: engine.Weights{Version: rollout.NoVersion}}
	for _, e := range engines {
		p.members = append(p.members, &member{engine: e, stats: EngineStats{Engine: e.String()}})
	}
	return p
}

// announce wakes whoever waits for a change. The mutex is held.
func (p *pool) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// take returns the ready engine with the fewest completions, and counts n more. It waits for one. working ends when the
// engine is withdrawn.
func (p *pool) take(ctx context.Context, n int) (m *member, working context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var best *member
		for _, m := range p.members {
			if m.ready && (best == nil || m.stats.Outstanding < best.stats.Outstanding) {
				best = m
			}
		}
		if best != nil {
			if best.stats.Outstanding == 0 {
				best.since = time.Now()
			}
			best.stats.Outstanding += n
			return best, best.working, nil
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
}

// put counts what an engine made of n completions.
func (p *pool) put(m *member, n int, made []engine.Completion, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.stats.Outstanding -= n
	if m.stats.Outstanding == 0 {
		m.stats.BusySeconds += time.Since(m.since).Seconds()
	}
	for _, c := range made {
		m.stats.Completions++
		m.stats.Tokens += int64(len(c.Tokens))
	}
	if err == nil {
		return
	}
	m.stats.Failures++
	if !engine.Refused(err) && !errors.Is(err, engine.ErrPartial) && m.ready {
		m.withdraw()
		p.log.Warn("an engine failed; its requests go to others until it is healthy", "engine", m.stats.Engine,
			"error", err)
	}
}

// withdraw takes an engine out of use, and ends its requests. The mutex is held.
func (m *member) withdraw() {
	if m.ready {
		m.ready = false
		m.stop()
	}
}

const (
	maxRefusals   = 5  // of a request, or of a load
	maxErrors     = 20 // of a request in a row that are no refusals: they take minutes
	healthEvery   = 10 * time.Second
	healthTimeout = 30 * time.Second
	maxUnhealthy  = 2           // answers in a row after which an engine that is busy is withdrawn
	settled       = time.Second // an engine that was ready for less is tried less often
)

// pause waits for an attempt after the first, twice as long each time.
func (p *pool) pause(ctx context.Context, attempt int) error {
	return sleep(ctx, min(p.first<<min(attempt, 10), 100*p.first))
}

// generate makes a request of any engine, for as many tokens as the budget lets it. A completion that needs more counts
// as aborted: it is parked until an engine takes the request for the rest.
func (p *pool) generate(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
	whole := r.MaxTokens
	if p.budget > 0 {
		r.MaxTokens = min(r.MaxTokens, p.budget)
	}
	made, err := p.repeat(ctx, r)
	for i := range made {
		if c := &made[i]; c.Finish == engine.Length && len(c.Tokens) == r.MaxTokens && r.MaxTokens < whole {
			c.Finish = engine.Aborted
		}
	}
	return made, err
}

// repeat makes a request of any engine, and repeats it while engines fail. Only the answer counts that it returns.
func (p *pool) repeat(ctx context.Context, r engine.Request) ([]engine.Completion, error) {
	for refused, failed := 0, 0; ; {
		m, working, err := p.take(ctx, r.N)
		if err != nil {
			return nil, err
		}
		made, err := m.generate(ctx, working, r)
		if ctx.Err() != nil {
			p.put(m, r.N, nil, nil)
			return nil, ctx.Err()
		}
		p.put(m, r.N, made, err)
		switch {
		case err == nil:
			return made, nil
		case engine.Refused(err):
			refused++
		case !errors.Is(err, engine.ErrUnavailable):
			failed++
		default:
			continue // take waits until an engine is ready
		}
		if refused == maxRefusals || failed == maxErrors {
			return nil, fmt.Errorf("%s: %w", words.Plural(refused+failed, "attempt"), err)
		}
		if err := p.pause(ctx, refused+failed); err != nil {
			return nil, err
		}
	}
}

// generate makes a request that ends when the engine is withdrawn, as one that does not answer any more.
func (m *member) generate(ctx, working context.Context, r engine.Request) ([]engine.Completion, error) {
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(working, cancel)()
	made, err := m.engine.Generate(during, r)
	if err != nil && ctx.Err() == nil && during.Err() != nil {
		return nil, fmt.Errorf("%s: %w: it does not answer", m.engine, engine.ErrUnavailable)
	}
	return made, err
}

// complete makes n completions, each bounded by s.MaxTokens. One that its engine aborts, or that has spent the budget,
// is continued where it ended, by any engine: its later tokens have the later version. continued is how many were.
func (p *pool) complete(
	ctx context.Context, prompt []int32, n int, s engine.Sampling,
) (list []engine.Completion, continued int64, err error) {
	list, err = p.generate(ctx, engine.Request{Prompt: prompt, N: n, Sampling: s})
	if err != nil {
		return nil, 0, err
	}
	all, ctx := errgroup.WithContext(ctx)
	for i := range list {
		if c := &list[i]; c.Finish == engine.Aborted {
			continued++
			all.Go(func() error { return p.finish(ctx, prompt, c, s) })
		}
	}
	return list, continued, all.Wait()
}

// finish continues a completion until it ends.
func (p *pool) finish(ctx context.Context, prompt []int32, c *engine.Completion, s engine.Sampling) error {
	for empty := 0; c.Finish == engine.Aborted; {
		rest := s
		if rest.MaxTokens = s.MaxTokens - len(c.Tokens); rest.MaxTokens == 0 {
			c.Finish = engine.Length
			break
		}
		all := append(append(make([]int32, 0, len(prompt)+len(c.Tokens)), prompt...), c.Tokens...)
		more, err := p.generate(ctx, engine.Request{Prompt: all, N: 1, Sampling: rest})
		if err != nil {
			return err
		}
		if len(more[0].Tokens) == 0 && more[0].Finish == engine.Aborted {
			if err := p.pause(ctx, empty); err != nil {
				return err
			}
			empty++
			continue
		}
		empty = 0
		c.Append(&more[0])
	}
	return nil
}

// slowProbe is how long a probe may take before a line is logged.
const slowProbe = 30 * time.Second

// manage looks after one engine: it finds out what the engine gives, has it take the newest weights, and waits until
// they change or a request finds the engine unavailable. It returns an error if the engine cannot be used.
func (p *pool) manage(
	ctx context.Context, m *member, probe func(context.Context, engine.Engine) (*engine.Report, error),
) error {
	for attempt, known := 0, false; !known; attempt++ {
		slow := time.AfterFunc(slowProbe, func() {
			p.log.Warn("still probing an engine; one that serves one request at a time may take a minute or two", "engine",
				m.engine.String(), "after", slowProbe)
		})
		report, err := probe(ctx, m.engine)
		slow.Stop()
		switch {
		case err == nil:
			p.mu.Lock()
			m.stats.Version, m.stats.Lacks, m.stats.Unknown = report.Version, report.Lacks, report.Unknown
			p.mu.Unlock()
			known = true
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, engine.ErrUnavailable):
			return err
		default:
			if attempt == 3 {
				p.log.Warn("waiting for an engine", "engine", m.stats.Engine, "error", err)
			}
			if err := p.pause(ctx, attempt); err != nil {
				return nil
			}
		}
	}
	select {
	case <-p.looked:
	case <-ctx.Done():
	}
	for failures := 0; ctx.Err() == nil; {
		err := p.prepare(ctx, m)
		began := time.Now()
		if err == nil {
			if ready := p.supervise(ctx, m); ready || time.Since(began) > settled {
				failures = 0
				continue
			}
		} else if errors.Is(err, errLoad) && failures >= maxRefusals {
			return fmt.Errorf("%s: %w", words.Plural(failures, "attempt"), err)
		}
		p.mu.Lock()
		m.withdraw()
		p.mu.Unlock()
		failures++
		p.log.Debug("an engine is not ready", "engine", m.stats.Engine, "error", err)
		_ = p.pause(ctx, failures) // its error is the context's
	}
	return nil
}

// errLoad is the error of weights that an engine cannot take.
var errLoad = errors.New("taking the weights")

// prepare has a healthy engine take the newest weights, and makes it ready.
func (p *pool) prepare(ctx context.Context, m *member) error {
	brief, stop := context.WithTimeout(ctx, healthTimeout)
	defer stop()
	if err := m.engine.Health(brief); err != nil {
		return err
	}
	p.mu.Lock()
	weights := p.newest
	p.mu.Unlock()
	version, err := m.engine.Version(brief)
	if err != nil {
		return err
	}
	if m.wants(weights, version) {
		began := time.Now()
		if err := m.engine.Load(ctx, weights); err != nil {
			if _, gone := os.Stat(weights.Folder); gone != nil || errors.Is(err, engine.ErrUnavailable) {
				return err // a newer version took its place meanwhile, or the engine is away
			}
			return fmt.Errorf("%w: %w", errLoad, err)
		}
		version = weights.Version
		p.mu.Lock()
		m.stats.Loads++
		m.stats.LoadSeconds += time.Since(began).Seconds()
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.stats.Version, m.ours = version, m.ours || weights.Version != rollout.NoVersion
	if !m.ready {
		m.ready = true
		m.working, m.stop = context.WithCancel(context.Background())
		p.announce()
	}
	return nil
}

// wants reports whether an engine with a version needs others: newer ones, or, the first time, any others, because what
// it has may be of another run.
func (m *member) wants(w engine.Weights, has rollout.Version) bool {
	return w.Version > has || !m.ours && w.Version != rollout.NoVersion && w.Version != has
}

// supervise returns when the engine needs something: newer weights, and then it is ready, or to be healthy again.
func (p *pool) supervise(ctx context.Context, m *member) (ready bool) {
	look := time.NewTicker(healthEvery)
	defer look.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for unhealthy := 0; m.ready && !m.wants(p.newest, m.stats.Version) && ctx.Err() == nil; {
		changed, working := p.changed, m.working
		p.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-working.Done():
		case <-ctx.Done():
		case <-look.C:
			brief, stop := context.WithTimeout(ctx, healthTimeout)
			if err = m.engine.Health(brief); err == nil {
				unhealthy = 0
			}
			stop()
		}
		p.mu.Lock()
		if err == nil || ctx.Err() != nil {
			continue
		}
		if unhealthy++; unhealthy == maxUnhealthy {
			p.log.Warn("an engine does not answer; its requests go to others until it is healthy", "engine", m.stats.Engine,
				"error", err)
			m.withdraw()
		}
	}
	return m.ready
}

// use gives all engines a version of the weights, if it is newer than theirs.
func (p *pool) use(w engine.Weights) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.Version > p.newest.Version {
		p.newest = w
		p.announce()
	}
}

// stats returns what is known of each engine.
func (p *pool) stats() (list []EngineStats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		s := m.stats
		s.Ready = m.ready
		if s.Outstanding > 0 {
			s.BusySeconds += time.Since(m.since).Seconds()
		}
		list = append(list, s)
	}
	return list
}
