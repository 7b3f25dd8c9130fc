package capture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/rollout"
)

// refusal is an answer with an error's status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// full is the refusal of what does not fit into memory.
func (c *Capture) full() error {
	c.count(func(s *Stats) { s.Refused++ })
	return refuse(http.StatusServiceUnavailable, "capture holds %d sessions in %.3g MB and may not hold more: give "+
		"sessions "+
		"their rewards sooner, shorten --deadline, or raise --memory", c.Stats().Sessions, float64(c.options.Memory)/1e6)
}

// memory counts the bytes that sessions and calls under way hold.
type memory struct {
	limit int64
	used  atomic.Int64
}

// take reports whether there is room for so many bytes, and then counts them.
func (m *memory) take(n int64) bool {
	if m.used.Add(n) > m.limit {
		m.used.Add(-n)
		return false
	}
	return true
}

// force counts bytes whether or not there is room: what comes of sessions that were accepted before.
func (m *memory) force(n int64) { m.used.Add(n) }

func (m *memory) give(n int64) { m.used.Add(-n) }

// held is the bytes of the budget that a call under way has.
type held struct {
	memory *memory
	bytes  int64
}

func (h *held) grow(n int64) bool {
	if !h.memory.take(n) {
		return false
	}
	h.bytes += n
	return true
}

// turn makes bytes of a call those of a session. It reports whether there was room for those that the call lacked.
func (h *held) turn(n int64) bool {
	if n > h.bytes && !h.grow(n-h.bytes) {
		return false
	}
	h.bytes -= n
	return true
}

func (h *held) free() {
	h.memory.give(h.bytes)
	h.bytes = 0
}

// named says whose a call is, as far as the agent tells.
type named struct{ session, task, group string }

func (n named) check() error {
	for what, name := range map[string]string{"session": n.session, "task": n.task, "group": n.group} {
		if !printable(name) {
			return refuse(http.StatusBadRequest, "%s: %.60q: want at most %d bytes without control characters", what, name,
				maxName)
		}
	}
	return nil
}

// errFull is why a session does not begin.
var errFull = errors.New("no memory for a session")

// enter returns the session of a call, and counts the call as under way. Without a name it is that which the prompt
// continues, or a new one.
func (c *Capture) enter(n named, prompt []int32) (*session, error) {
	c.mu.Lock()
	s, err := c.lookup(n, prompt)
	if err == nil {
		s.under++
		s.touched = time.Now()
	}
	c.mu.Unlock()
	if errors.Is(err, errFull) {
		return nil, c.full()
	}
	return s, err
}

// lookup finds or begins a session.
func (c *Capture) lookup(n named, prompt []int32) (*session, error) {
	s := c.sessions[n.session]
	if n.session == "" {
		s = c.unnamed.find(prompt)
	}
	switch o, ended := c.ended[n.session]; {
	case s != nil && s.reward != nil:
		return nil, refuse(http.StatusConflict, "session %q has its reward: want another name for another session", s.id)
	case s != nil:
		return s, nil
	case ended:
		return nil, refuse(http.StatusConflict, "session %q has ended (%s): want another name for another session",
			n.session,
			o.State)
	case !c.memory.take(sessionBytes):
		return nil, errFull
	}
	b := begin{ID: n.session, UID: newID(), Named: n.session != "", Task: n.task, Group: n.group, At: time.Now()}
	if !b.Named {
		b.ID = b.UID
	}
	s = newSession(b)
	s.charge = sessionBytes
	c.hold(s)
	return s, nil
}

// leaveCall ends a call that [Capture.enter] counted. A session of which nothing was recorded is forgotten.
func (c *Capture) leaveCall(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.under--
	s.touched = time.Now()
	if s.under == 0 && s.calls == 0 && c.sessions[s.id] == s {
		c.release(s)
	}
}

// record adds a call to its session, on disk before in memory. The call's bytes become the session's.
func (c *Capture) record(s *session, p *engine.Passing, list []engine.Recorded, h *held) error {
	s.recording.Lock()
	defer s.recording.Unlock()
	c.mu.Lock()
	late, first := s.reward != nil, s.calls == 0
	pieces := s.pieces(list, p.Untrained, p.ID())
	growth := s.sizeOf(pieces)
	c.mu.Unlock()
	if late {
		c.count(func(s *Stats) { s.Broken++ })
		c.log.Warn("a call was not recorded: its session had its reward before", "session", s.id)
		return nil
	}
	lines := []line{{Pieces: pieces}}
	if first {
		lines = []line{{Begin: &s.begin}, {Pieces: pieces}}
	}
	if !h.turn(growth) {
		return c.full()
	}
	if err := c.files.write(s, false, lines...); err != nil {
		c.memory.give(growth)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.charge += growth
	before := len(s.branches)
	for _, piece := range pieces {
		if piece.Branch < len(s.branches) {
			c.unnamed.remove(s, s.branches[piece.Branch])
		}
		s.add(piece)
		c.unnamed.add(s, s.branches[piece.Branch])
	}
	if other := c.answers[p.ID()]; other != nil && other != s {
		delete(c.answers, p.ID())
		c.log.Warn("two sessions have an answer of one id: rewards must name the session", "id", p.ID())
	} else {
		c.answers[p.ID()] = s
	}
	c.stats.Calls++
	if p.Untrained != "" {
		if c.stats.Untrained++; c.stats.Untrained == 1 {
			c.log.Warn("nothing of an answer is learned from, here and in calls to come: a setting steers its sampling",
				"session", s.id, "setting", p.Untrained)
		}
	}
	if len(p.Replaced) > 0 {
		if c.stats.Replaced++; c.stats.Replaced == 1 {
			c.log.Warn("settings of an agent are replaced, here and in calls to come", "session", s.id, "settings",
				p.Replaced, "temperature", c.options.Temperature)
		}
	}
	if before > 0 {
		c.stats.Branches += int64(len(s.branches) - before)
	} else {
		c.stats.Branches += int64(len(s.branches) - 1)
	}
	return nil
}

// session returns the session that a name or the id of an answer names, nil for one that has ended, with what became of
// it.
func (c *Capture) session(name string) (*session, Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[name]; s != nil {
		return s, Outcome{}, nil
	}
	if s := c.answers[name]; s != nil {
		return s, Outcome{}, nil
	}
	if o, ok := c.ended[name]; ok {
		return nil, o.Outcome, nil
	}
	if of, ok := c.past[name]; ok {
		return nil, c.ended[of].Outcome, nil
	}
	return nil, Outcome{}, refuse(http.StatusNotFound, "session %.60q: capture knows none of this name: want that of "+
		"a call's "+
		"X-Reprise-Session, or the id of its answer%s", name, c.forgets())
}

// forgets says why a session may be unknown that was there.
func (c *Capture) forgets() string {
	if c.files == nil {
		return "; without --data, sessions end with the program"
	}
	return ""
}

// rewardRequest is the body of a call that ends a session.
type rewardRequest struct {
	Reward *float32 `json:"reward"`
	Task   string   `json:"task"`
	Group  string   `json:"group"`
}

func (r rewardRequest) check() error {
	if r.Reward == nil {
		return refuse(http.StatusBadRequest, "reward: missing: want a number")
	}
	if !(*r.Reward >= -rollout.MaxReward && *r.Reward <= rollout.MaxReward) {
		return refuse(http.StatusBadRequest, "reward: %g: want -1e9 to 1e9", *r.Reward)
	}
	return named{task: r.Task, group: r.Group}.check()
}

// Reward ends a session, which is on disk when it returns, and waits a while for the table if the session's group is
// whole. Repeated with the same reward it changes nothing.
func (c *Capture) Reward(ctx context.Context, name string, r rewardRequest) (Outcome, error) {
	if err := r.check(); err != nil {
		return Outcome{}, err
	}
	s, over, err := c.session(name)
	if err != nil {
		return Outcome{}, err
	}
	if s != nil {
		if err := c.reward(s, r); err != nil {
			return Outcome{}, err
		}
		over = c.await(ctx, s)
	}
	switch {
	case over.State == Inserted && over.Reward != *r.Reward:
		return over, refuse(http.StatusConflict, "session %q is in the table with reward %g", over.Session, over.Reward)
	case over.State == Lost, over.State == Discarded:
		return over, refuse(http.StatusGone, "session %q is %s: %s", over.Session, over.State, over.Why)
	}
	return over, nil
}

// reward gives a session its reward.
func (c *Capture) reward(s *session, r rewardRequest) error {
	s.recording.Lock()
	defer s.recording.Unlock()
	c.rewarding.Lock()
	defer c.rewarding.Unlock()
	c.mu.Lock()
	err := c.mayReward(s, r)
	c.rewards++
	given := &reward{*r.Reward, r.Task, r.Group, c.rewards, time.Now()}
	again, gone := s.reward != nil, c.sessions[s.id] != s
	c.mu.Unlock()
	if err != nil || again || gone { // one that has gone meanwhile is found among those that have ended
		return err
	}
	if err := c.files.write(s, true, line{Reward: given}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.reward = given
	c.join(s)
	return nil
}

// mayReward refuses a second reward, and sessions that make no rollout.
func (c *Capture) mayReward(s *session, r rewardRequest) error {
	if s.reward != nil {
		if s.reward.Reward != *r.Reward {
			return refuse(http.StatusConflict, "session %q has reward %g: want one reward", s.id, s.reward.Reward)
		}
		return nil
	}
	trained := 0
	for i, b := range s.branches {
		if len(b.turns) > 0 && (!c.options.Latest || i == s.latest) {
			trained++
		}
	}
	switch {
	case s.calls == 0:
		return refuse(http.StatusConflict, "session %q has no call that was recorded yet: want its reward after its calls",
			s.id)
	case trained == 0:
		return refuse(http.StatusUnprocessableEntity, "session %q has no token to learn from in %d calls: all were made "+
			"with "+
			"settings that steer sampling, such as response_format or tool_choice: leave these out", s.id, s.calls)
	case trained > 1 && c.groupSize > 0:
		return refuse(http.StatusUnprocessableEntity, "session %q split into %d rollouts, because calls did not "+
			"continue its "+
			"tokens, and the table takes groups of %d: want --latest, which leaves out all but the latest, or a table "+
			"without "+
			"group_size", s.id, trained, c.groupSize)
	}
	return nil
}

// patience is how long a reward waits for the table.
const patience = 10 * time.Second

// await returns the state of a session with a reward. It waits while its group is being inserted.
func (c *Capture) await(ctx context.Context, s *session) Outcome {
	o := c.state(s)
	if o.State != Inserting {
		return o
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-s.done:
	case <-limit.C:
	case <-ctx.Done():
	}
	return c.state(s)
}

// state returns what is known of a session.
func (c *Capture) state(s *session) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ended := c.ended[s.id]; ended && c.sessions[s.id] != s {
		return o.Outcome
	}
	o := Outcome{Session: s.id, State: Open, Calls: s.calls, Kept: "in memory"}
	if c.files != nil {
		o.Kept = "on disk"
	}
	if s.reward == nil {
		return o
	}
	o.Reward = s.reward.Reward
	key := groupKey{s.task(), s.group()}
	o.State, o.Why = Inserting, s.delay
	for _, w := range c.waiting[key] {
		if w == s {
			o.State, o.Have, o.Want = Waiting, len(c.waiting[key]), c.options.Group
		}
	}
	return o
}

// Discard ends a session that does not become rollouts.
func (c *Capture) Discard(name string) (Outcome, error) {
	s, over, err := c.session(name)
	if err != nil || s == nil {
		return over, err
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.sessions[s.id] != s:
		return c.ended[s.id].Outcome, nil
	case s.under > 0:
		return Outcome{}, refuse(http.StatusConflict, "session %q has calls under way: end them first", s.id)
	case s.reward != nil && c.leave(s) == 0:
		return Outcome{}, refuse(http.StatusConflict, "session %q is being inserted", s.id)
	}
	c.stats.Discarded++
	c.drop([]*session{s}, Discarded, []string{"the client ended it"})
	return c.ended[s.id].Outcome, nil
}

// statusOf returns the status of an error.
func statusOf(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.status
	}
	return http.StatusInternalServerError
}

// isJSON reports whether a request says that its body is JSON. Pages of other sites cannot say so without asking.
func isJSON(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}
