// Package capture records what agents ask of an inference server as rollouts of a table.
//
// A [Capture] answers OpenAI's chat completions and completions by passing them on to an engine. The calls of one agent
// about one problem are a session. What the engine sampled in a call becomes a turn, with its ids, log-probs and
// versions; all else is context. A call whose prompt begins with exactly the tokens so far continues a rollout; any
// other begins another rollout of the session, in which the tokens that it shares are context. So every token that was
// sampled is learned from once, and no other is.
//
// A session ends with its reward. Groups of sessions of one task enter the table together, once each, whatever is
// killed meanwhile. Who may call is left to the program that serves the handler.
package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// Options say how agents are recorded.
type Options struct {
	Group       int           // sessions of a task that enter the table together, 1 or more
	Temperature float64       // of all sampling, > 0
	Deadline    time.Duration // after which a session without a call or its reward, or a group without its rest, is lost
	Memory      int64         // bytes that sessions and calls under way may hold
	Data        string        // folder in which sessions survive a kill; "": they do not
	Latest      bool          // only the rollout of a session's latest call is inserted; the others are left out
	Table       string        // address of the table, which Data keeps: its sessions enter no other; "": the name

	// Weights is the folder in which a trainer publishes versions (engine.Publish); "": the engine has its weights from
	// elsewhere.
	Weights string
	Poll    time.Duration // between looks at the table's version; 0: 200 ms
}

// Validate reports every field that is out of range, as [option.Error]s.
func (o Options) Validate() error {
	var p option.Problems
	p.Check(o.Group >= 1, "group", o.Group, "1 or more")
	p.Check(o.Temperature > 0 && o.Temperature <= 100, "temperature", o.Temperature,
		"more than 0, to 100: greedy tokens "+
			"have no distribution to learn from")
	p.Check(o.Deadline > 0, "deadline", o.Deadline, "more than 0")
	p.Check(o.Memory >= 1<<20, "memory", o.Memory, "1 MiB or more")
	return p.Err()
}

// Capture records the sessions of agents. Its methods may be called concurrently.
type Capture struct {
	options Options
	gateway *engine.Gateway
	table   *client.Table
	log     *slog.Logger
	files   *files
	memory  memory
	silence silence

	mu       sync.Mutex
	sessions map[string]*session
	answers  map[string]*session // by the ids of the engine's answers
	unnamed  prefixes
	waiting  map[groupKey][]*session // with a reward, in its order
	ended    map[string]Ended
	order    []string          // of ended, the oldest first
	past     map[string]string // the sessions in ended, by the ids of their answers
	rewards  int64
	stats    Stats

	groupSize int        // of the table; 0: groups may differ
	recovered []*session // from the folder, until [Capture.Prepare] goes on with them

	rewarding sync.Mutex // taken after a session's recording: rewards are noted in the order in which they join groups
	inserts   sync.WaitGroup
	working   context.Context // of what inserts
	stop      context.CancelFunc
}

// groupKey is what sessions of a group have in common.
type groupKey struct{ task, group string }

// Bounds.
const (
	maxEnded = 10_000  // sessions that have ended and are remembered
	maxPast  = 100_000 // ids of their answers: if there are more, fewer sessions are remembered
	maxName  = 200     // bytes of a session's, task's or group's name
)

// Stats count what a capture has seen.
type Stats struct {
	Version   rollout.Version // of the table
	Sessions  int             // that have not ended
	Memory    int64           // bytes held
	Calls     int64           // recorded
	Untrained int64           // of these, with tokens that must not be learned from
	Replaced  int64           // calls of which a setting was replaced
	Branches  int64           // rollouts that began because a call did not continue one
	Broken    int64           // calls that ended before their answer did, or that came after the reward: not recorded
	Refused   int64           // calls for lack of memory
	Tokens    int64           // of the policy, in rollouts inserted
	Inserted  int64           // rollouts
	Complete  int64           // sessions that entered the table
	Lost      int64           // sessions that passed the deadline
	Discarded int64           // sessions that the table refused, or the client ended
	LeftOut   int64           // rollouts that Latest left out
	Loads     int64           // versions of the weights that the engine took
}

// Outcome is what became of a session.
type Outcome struct {
	State    string       `json:"state"`
	Session  string       `json:"session"`
	Kept     string       `json:"kept,omitempty"` // where a session is that has not ended: in memory, or on disk
	Have     int          `json:"have,omitempty"` // of a group that waits
	Want     int          `json:"want,omitempty"`
	Calls    int          `json:"calls"`
	Rollouts []rollout.ID `json:"rollouts,omitempty"`
	Reward   float32      `json:"reward"`
	Why      string       `json:"why,omitempty"`
}

// States of sessions.
const (
	Open      = "open"      // it waits for calls, or for its reward
	Waiting   = "waiting"   // it has its reward, and waits for others of its group
	Inserting = "inserting" // its group is whole, and the table has not answered
	Inserted  = "inserted"
	Lost      = "lost"      // the deadline passed
	Discarded = "discarded" // the table refused it, or the client ended it
)

// New returns a capture, with the sessions that its folder holds. The table's client should have a RetryFor without an
// end, so that a service may restart.
func New(o Options, g *engine.Gateway, table *client.Table, log *slog.Logger) (*Capture, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Poll = cmp.Or(o.Poll, 200*time.Millisecond)
	kept, err := openFiles(o.Data)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	c := &Capture{options: o, gateway: g, table: table.Waiting(client.Forever), log: log, files: kept,
		memory: memory{limit: o.Memory}, silence: silence{engineSilence, agentSilence},
		sessions: make(map[string]*session), answers: make(map[string]*session),
		unnamed: newPrefixes(), waiting: make(map[groupKey][]*session), ended: make(map[string]Ended),
		past: make(map[string]string)}
	c.working, c.stop = context.WithCancel(context.Background())
	if err := c.recover(); err != nil {
		return nil, errors.Join(err, kept.close())
	}
	return c, nil
}

// recover takes up the sessions of the folder.
func (c *Capture) recover() error {
	held, ended, err := c.files.read()
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	for _, e := range ended {
		c.remember(e)
	}
	if err := c.files.settle(c.settings(), len(held) > 0); err != nil {
		return err
	}
	for _, s := range held {
		s.charge = s.size()
		c.memory.force(s.charge)
		c.hold(s)
	}
	if len(held) > 0 {
		c.log.Info("sessions were taken up", "sessions", len(held), "folder", c.options.Data)
	}
	c.recovered = held
	return nil
}

// settings returns what sessions of the folder depend on.
func (c *Capture) settings() settings {
	return settings{cmp.Or(c.options.Table, c.table.Name()), c.options.Group, c.options.Temperature, c.options.Latest}
}

// resume goes on with the sessions of the folder: their deadlines begin anew, and whole groups enter the table.
func (c *Capture) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// In the order of their rewards, so that groups are those of before.
	slices.SortFunc(c.recovered, func(a, b *session) int { return cmp.Compare(a.order(), b.order()) })
	for _, s := range c.recovered {
		s.touched = time.Now()
		if s.reward != nil {
			c.rewards = max(c.rewards, s.reward.Order)
			c.join(s)
		}
	}
	c.recovered = nil
}

func newSession(b begin) *session {
	return &session{id: b.ID, begin: b, touched: time.Now(), done: make(chan struct{})}
}

func (s *session) order() int64 {
	if s.reward == nil {
		return 0
	}
	return s.reward.Order
}

// newID returns a name that nobody else gives.
func newID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// hold adds a session. The mutex is held, here and below.
func (c *Capture) hold(s *session) {
	c.sessions[s.id] = s
	for _, b := range s.branches {
		c.unnamed.add(s, b)
	}
	for _, id := range s.answers {
		c.answers[id] = s
	}
}

// release forgets a session.
func (c *Capture) release(s *session) {
	delete(c.sessions, s.id)
	for _, b := range s.branches {
		c.unnamed.remove(s, b)
	}
	for _, id := range s.answers {
		delete(c.answers, id)
	}
	c.memory.give(s.charge)
	s.charge = 0
	close(s.done)
}

// remember notes what became of a session.
func (c *Capture) remember(e Ended) {
	if was, twice := c.ended[e.Session]; twice {
		c.forget(was)
	} else {
		c.order = append(c.order, e.Session)
	}
	c.ended[e.Session] = e
	for _, id := range e.Answers {
		c.past[id] = e.Session
	}
	for len(c.order) > maxEnded || len(c.past) > maxPast && len(c.order) > 1 {
		c.forget(c.ended[c.order[0]])
		c.order = c.order[1:]
	}
}

// forget removes what became of a session.
func (c *Capture) forget(e Ended) {
	delete(c.ended, e.Session)
	for _, id := range e.Answers {
		if c.past[id] == e.Session {
			delete(c.past, id)
		}
	}
}

// Stats returns what has been counted so far.
func (c *Capture) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Sessions, s.Memory = len(c.sessions), c.memory.used.Load()
	return s
}

func (c *Capture) count(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// Prepare compares the group with the table's, and finds out whether the engine's calls can be recorded. Then groups of
// the folder that are whole enter the table.
func (c *Capture) Prepare(ctx context.Context) error {
	info, err := c.table.Info(ctx)
	if err != nil {
		return err
	}
	if d := info.Definition; d != nil {
		if d.GroupSize != 0 && d.GroupSize != c.options.Group {
			return &option.Error{Key: "group", Value: c.options.Group, Want: fmt.Sprintf("%d, the group_size of table %s",
				d.GroupSize, c.table.Name())}
		}
		if d.Unit == replay.UnitStep {
			return &option.Error{Key: "unit", Value: d.Unit, Want: fmt.Sprintf("%s or %s: table %s splits rollouts into "+
				"steps, and sessions enter as whole rollouts: give another --table", replay.UnitRollout, replay.UnitGroup,
				c.table.Name())}
		}
		c.groupSize = d.GroupSize
	}
	if _, err = c.gateway.Probe(ctx, engine.Sampling{Temperature: c.options.Temperature, TopP: 1}); err != nil {
		return err
	}
	c.resume()
	return nil
}

// Run looks after deadlines and weights until the context ends. It comes after [Capture.Prepare], as all calls do.
func (c *Capture) Run(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return c.follow(ctx) })
	all.Go(func() error {
		tick := time.NewTicker(min(time.Second, c.options.Deadline/4))
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				c.expire(now)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return all.Wait()
}

// Close waits for groups that are being inserted, ten seconds at most. All else stays in the folder for the next run.
func (c *Capture) Close() error {
	entered := make(chan struct{})
	go func() {
		c.inserts.Wait()
		close(entered)
	}()
	select {
	case <-entered:
	case <-time.After(10 * time.Second):
	}
	c.stop()
	<-entered
	return c.files.close()
}

// follow looks at the table's version, and has the engine take the newest weights up to it.
func (c *Capture) follow(ctx context.Context) error {
	has := rollout.NoVersion
	for {
		info, err := c.table.Info(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		version := rollout.Version(info.Version)
		c.count(func(s *Stats) { s.Version = version })
		if c.options.Weights != "" {
			switch w, err := engine.Newest(c.options.Weights, version); {
			case err == nil && w.Version != has:
				if err := c.gateway.Engine.Load(ctx, w); err != nil {
					c.log.Warn("the engine did not take weights; trying again", "version", w.Version, "error", err)
					break
				}
				has = w.Version
				c.count(func(s *Stats) { s.Loads++ })
			case err != nil && !errors.Is(err, fs.ErrNotExist): // the trainer may publish its first version later
				return err
			}
		}
		if err := sleep(ctx, c.options.Poll); err != nil {
			return nil
		}
	}
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

// expire ends the sessions whose deadline has passed.
func (c *Capture) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone []*session // whose recording is held, until their files are gone
	var why []string
	for _, s := range c.sessions {
		since := s.touched // or when the folder was read
		if s.reward != nil && s.reward.At.After(since) {
			since = s.reward.At
		}
		// Who holds recording is about to write a reward, or to end the session.
		if s.under > 0 || now.Sub(since) < c.options.Deadline || !s.recording.TryLock() {
			continue
		}
		reason := fmt.Sprintf("no call and no reward for %v", c.options.Deadline)
		if s.reward != nil {
			have := c.leave(s)
			if have == 0 { // it is being inserted
				s.recording.Unlock()
				continue
			}
			reason = fmt.Sprintf("its group had %d of %d sessions for %v", have, c.options.Group, c.options.Deadline)
		}
		gone, why = append(gone, s), append(why, reason)
	}
	for i, s := range gone {
		c.stats.Lost++
		c.log.Warn("a session was lost", "session", s.id, "calls", s.calls, "why", why[i])
	}
	c.drop(gone, Lost, why)
	for _, s := range gone {
		s.recording.Unlock()
	}
}

// leave takes a session out of the group in which it waits, and returns how many waited there, 0 if it does not.
func (c *Capture) leave(s *session) (have int) {
	key := groupKey{s.task(), s.group()}
	at := slices.Index(c.waiting[key], s)
	if at < 0 {
		return 0
	}
	have = len(c.waiting[key])
	if c.waiting[key] = slices.Delete(c.waiting[key], at, at+1); len(c.waiting[key]) == 0 {
		delete(c.waiting, key)
	}
	return have
}

// drop ends sessions that do not enter the table.
func (c *Capture) drop(list []*session, state string, why []string) {
	if len(list) == 0 {
		return
	}
	ended := make([]Ended, len(list))
	for i, s := range list {
		ended[i] = Ended{s.begin.UID, s.answers, Outcome{Session: s.id, State: state, Calls: s.calls, Why: why[i]}}
		if s.reward != nil {
			ended[i].Reward = s.reward.Reward
		}
	}
	if err := c.files.end(ended, list); err != nil {
		c.log.Error("sessions that ended are still on disk", "error", err)
	}
	for i, s := range list {
		c.remember(ended[i])
		c.release(s)
	}
}

// join puts a session with a reward into its group, and has the group inserted once it is whole.
func (c *Capture) join(s *session) {
	key := groupKey{s.task(), s.group()}
	c.waiting[key] = append(c.waiting[key], s)
	if len(c.waiting[key]) < c.options.Group {
		return
	}
	group := c.waiting[key]
	delete(c.waiting, key)
	c.inserts.Add(1)
	go func() {
		defer c.inserts.Done()
		c.insert(group, key.task)
	}()
}

// charge counts what sessions take while they are inserted, until they are released. Calls are refused meanwhile if
// there is no room for both.
func (c *Capture) charge(group []*session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range group {
		var n int64
		for i, b := range s.branches {
			if !c.options.Latest || i == s.latest {
				n += builtBytes * int64(len(b.tokens))
			}
		}
		c.memory.force(n)
		s.charge += n
	}
}

// insert puts a group into the table, once, however long that takes, and ends its sessions.
func (c *Capture) insert(group []*session, task string) {
	c.charge(group)
	var rollouts []*rollout.Rollout
	name := sha256.New()
	leftOut := 0
	for _, s := range group {
		name.Write([]byte(s.begin.UID))
		list := s.rollouts(task, float32(c.options.Temperature), c.options.Latest)
		leftOut += len(s.branches) - len(list)
		rollouts = append(rollouts, list...)
	}
	batch := client.Insertion{BatchID: "capture-" + hex.EncodeToString(name.Sum(nil)[:16])}
	for warned := ""; ; {
		answer, err := c.table.InsertGroups(c.working, batch, rollout.Group{Rollouts: rollouts})
		switch {
		case err == nil:
			var ids []rollout.ID
			for _, id := range answer.IDs {
				ids = append(ids, rollout.ID(id))
			}
			if answer.TooOld > 0 {
				c.log.Warn("rollouts were too old for the table", "rollouts", answer.TooOld, "note", answer.Note)
			}
			c.finish(group, task, rollouts, ids, leftOut, nil)
			return
		case errors.Is(err, rollout.ErrInvalid), errors.Is(err, wire.ErrTooLarge):
			c.finish(group, task, rollouts, nil, leftOut, err)
			return
		case c.working.Err() != nil:
			return
		case err.Error() != warned: // ErrAhead: the engine had its weights before the table heard of them
			warned = err.Error()
			c.log.Warn("a group waits for the table", "task", task, "error", err)
			c.mu.Lock()
			for _, s := range group {
				s.delay = words.Printable(err.Error())
			}
			c.mu.Unlock()
		}
		if sleep(c.working, c.options.Poll) != nil {
			return
		}
	}
}

// finish ends the sessions of a group that entered the table, or that the table refused.
func (c *Capture) finish(
	group []*session, task string, rollouts []*rollout.Rollout, ids []rollout.ID, leftOut int, refused error,
) {
	if len(ids) != len(rollouts) {
		ids = nil // of a table that was made anew meanwhile, with another unit
	}
	list := make([]Ended, len(group))
	for i, s := range group {
		o := Outcome{Session: s.id, State: Inserted, Calls: s.calls, Reward: s.reward.Reward}
		if refused != nil {
			o.State, o.Why = Discarded, words.Printable(refused.Error())
		}
		for j, id := range ids {
			if rollouts[j].Meta["session"] == s.id {
				o.Rollouts = append(o.Rollouts, id)
			}
		}
		list[i] = Ended{s.begin.UID, s.answers, o}
	}
	if err := c.files.end(list, group); err != nil { // repeated after a restart, the insertion adds nothing
		c.log.Error("sessions that ended are still on disk", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range group {
		c.remember(list[i])
		c.release(s)
	}
	if refused != nil {
		c.stats.Discarded += int64(len(group))
		c.log.Warn("the table refused a group", "task", task, "sessions", len(group), "error", refused)
		return
	}
	c.stats.Complete += int64(len(group))
	c.stats.Inserted += int64(len(rollouts))
	c.stats.LeftOut += int64(leftOut)
	for _, s := range group {
		c.stats.Tokens += int64(s.made)
	}
}
