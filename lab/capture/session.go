package capture

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/engine"
	"github.com/reprise-rl/reprise/rollout"
)

// session is the calls of one agent about one problem. [Capture]'s mutex guards it. Who writes to its file holds
// recording, which is taken before that mutex.
type session struct {
	id        string
	begin     begin
	recording sync.Mutex

	branches []*branch
	answers  []string // ids of the engine's answers, the first of which agents may know the session by
	calls    int
	made     int // tokens of the policy that may be learned from
	latest   int // branch of the latest call
	touched  time.Time
	under    int // calls under way
	reward   *reward
	delay    string // why the table has not taken it yet, for people
	charge   int64  // bytes of the budget
	done     chan struct{}
}

// begin is how a session began, the first line of its file.
type begin struct {
	ID    string    `json:"id"`
	UID   string    `json:"uid"`             // given once, so that an insertion can be repeated
	Named bool      `json:"named,omitempty"` // by the agent; otherwise calls are told apart by their tokens
	Task  string    `json:"task,omitempty"`
	Group string    `json:"group,omitempty"`
	At    time.Time `json:"at"`
}

// reward ends a session.
type reward struct {
	Reward float32   `json:"reward"`
	Task   string    `json:"task,omitempty"`
	Group  string    `json:"group,omitempty"`
	Order  int64     `json:"order"` // of all rewards: a group is those that came first
	At     time.Time `json:"at"`
}

// branch is a sequence of tokens that each call continued exactly: a rollout.
type branch struct {
	tokens []int32
	turns  []turn
	parent int // the branch that it shares its first tokens with; -1: none
	shared int // tokens, which are context here: they are learned from where they were sampled
}

// turn is what the policy said from a token on.
type turn struct {
	start     int
	logprobs  []float32
	versions  []rollout.Version
	truncated bool
}

// piece is what one completion of a call adds to a session: a line of its file.
type piece struct {
	Branch    int               `json:"branch"` // the next number: a new one
	Parent    int               `json:"parent"` // of a new one; -1: none
	Shared    int               `json:"shared"` // tokens of the parent's with which a new one begins
	Context   []int32           `json:"context,omitempty"`
	Tokens    []int32           `json:"tokens,omitempty"`
	Logprobs  []float32         `json:"logprobs,omitempty"`
	Versions  []rollout.Version `json:"versions,omitempty"`
	Truncated bool              `json:"truncated,omitempty"`
	Untrained string            `json:"untrained,omitempty"`
	Answer    string            `json:"answer,omitempty"`
	First     bool              `json:"first,omitempty"` // of its call
}

// pieces returns what a call adds. Its first completion continues the branch all of whose tokens its prompt begins
// with, the longest of them; if none is, a new branch begins, whose first tokens may be another's. Further completions
// are branches of their own: they have the prompt in common.
func (s *session) pieces(list []engine.Recorded, untrained, answer string) []piece {
	out := make([]piece, 0, len(list))
	next := len(s.branches)
	for i, r := range list {
		p := piece{Tokens: r.Tokens, Logprobs: r.Logprobs, Versions: r.Versions, Truncated: r.Finish != engine.Stopped,
			Untrained: untrained, Answer: answer, First: i == 0}
		if i > 0 && slices.Equal(r.Prompt, list[0].Prompt) {
			p.Branch, p.Parent, p.Shared = next, out[0].Branch, len(r.Prompt)
			next++
			out = append(out, p)
			continue
		}
		at, shared := s.find(r.Prompt)
		if at >= 0 && shared == len(s.branches[at].tokens) && i == 0 {
			p.Branch, p.Parent, p.Context = at, -1, r.Prompt[shared:]
		} else {
			p.Branch, p.Parent, p.Shared, p.Context = next, at, shared, r.Prompt[shared:]
			next++
		}
		out = append(out, p)
	}
	return out
}

// find returns the branch to continue with a prompt, or else that with which it has the most first tokens in common,
// and how many; -1 and 0 if there is none.
func (s *session) find(prompt []int32) (at, shared int) {
	at, whole := -1, false
	for i, b := range s.branches {
		n := common(b.tokens, prompt)
		if all := n == len(b.tokens); n > 0 && (all && !whole || all == whole && n > shared) {
			at, shared, whole = i, n, all
		}
	}
	return at, shared
}

// common returns how many first tokens two sequences share.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// add applies a piece. It returns false for one that does not fit, as of a file that was changed.
func (s *session) add(p piece) bool {
	switch {
	case p.Branch < 0 || p.Branch > len(s.branches) || len(p.Logprobs) != len(p.Tokens) ||
		len(p.Versions) != len(p.Tokens):
		return false
	case p.Branch == len(s.branches):
		b := &branch{parent: p.Parent, shared: p.Shared}
		if p.Parent >= 0 {
			if p.Parent >= len(s.branches) || p.Shared < 0 || p.Shared > len(s.branches[p.Parent].tokens) {
				return false
			}
			b.tokens = slices.Clone(s.branches[p.Parent].tokens[:p.Shared])
		}
		s.branches = append(s.branches, b)
	}
	b := s.branches[p.Branch]
	b.tokens = append(b.tokens, p.Context...)
	if p.Untrained == "" && len(p.Tokens) > 0 {
		b.turns = append(b.turns, turn{len(b.tokens), p.Logprobs, p.Versions, p.Truncated})
		s.made += len(p.Tokens)
	}
	b.tokens = append(b.tokens, p.Tokens...)
	if p.First {
		s.calls++
		s.latest = p.Branch
		s.answers = append(s.answers, p.Answer)
	}
	return true
}

// Bytes that a session is charged, beside its tokens.
const (
	sessionBytes = 2048
	branchBytes  = 256
	turnBytes    = 128
	answerBytes  = 128
	tokenBytes   = 8 // as they grow, slices have up to twice the room that they need
	sampledBytes = 16
	builtBytes   = 2 * 24 // a token of a rollout while it is inserted, with the message that is made of it
)

// size returns the bytes that a session holds.
func (s *session) size() int64 {
	n := int64(sessionBytes + answerBytes*len(s.answers))
	for _, b := range s.branches {
		n += branchBytes + tokenBytes*int64(len(b.tokens)) + turnBytes*int64(len(b.turns))
		for _, t := range b.turns {
			n += sampledBytes * int64(len(t.logprobs))
		}
	}
	return n
}

// sizeOf returns the bytes that pieces of one call add to a session.
func (s *session) sizeOf(pieces []piece) (n int64) {
	for _, p := range pieces {
		n += tokenBytes * int64(len(p.Context)+len(p.Tokens))
		if p.Branch >= len(s.branches) {
			n += branchBytes + tokenBytes*int64(p.Shared)
		}
		if p.Untrained == "" && len(p.Tokens) > 0 {
			n += turnBytes + sampledBytes*int64(len(p.Tokens))
		}
		if p.First {
			n += answerBytes
		}
	}
	return n
}

// task returns the id of the session's prompt: what the agent calls it, or else that of its first tokens.
func (s *session) task() string {
	switch {
	case s.reward != nil && s.reward.Task != "":
		return s.reward.Task
	case s.begin.Task != "":
		return s.begin.Task
	case len(s.branches) == 0:
		return ""
	}
	first := s.branches[0]
	end := len(first.tokens)
	if len(first.turns) > 0 {
		end = first.turns[0].start
	}
	sum := sha256.New()
	binary.Write(sum, binary.LittleEndian, first.tokens[:end]) // never fails
	return "capture/" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// group returns the name of the group that a session with a reward belongs to, within its task.
func (s *session) group() string {
	if s.reward != nil && s.reward.Group != "" {
		return s.reward.Group
	}
	return s.begin.Group
}

// rollouts returns the branches in which the policy said something as rollouts, each with the session's reward, or that
// of the latest call alone. promptID is that of the group. Every token that was sampled has mask 1 in one of them.
func (s *session) rollouts(promptID string, temperature float32, latest bool) (list []*rollout.Rollout) {
	for i, b := range s.branches {
		if len(b.turns) == 0 || latest && i != s.latest {
			continue
		}
		list = append(list, b.rollout(s, i, promptID, temperature))
	}
	return list
}

func (b *branch) rollout(s *session, number int, promptID string, temperature float32) *rollout.Rollout {
	n := len(b.tokens)
	r := &rollout.Rollout{PromptID: promptID, Tokens: b.tokens, Mask: make([]uint8, n), Logprobs: make([]float32, n),
		Versions: make([]rollout.Version, n), Temperature: temperature, TopP: 1, Reward: s.reward.Reward,
		Meta: map[string]string{"session": s.id}}
	for i := range r.Versions {
		r.Versions[i] = rollout.NoVersion
	}
	for _, t := range b.turns {
		end := t.start + copy(r.Logprobs[t.start:], t.logprobs)
		copy(r.Versions[t.start:], t.versions)
		for i := t.start; i < end; i++ {
			r.Mask[i] = 1
		}
		r.Turns = append(r.Turns, rollout.Turn{Start: int32(t.start), End: int32(end)})
	}
	last := len(r.Turns) - 1
	r.Turns[last].Reward, r.Turns[last].Done = s.reward.Reward, true
	r.Truncated = b.turns[last].truncated
	if len(s.branches) > 1 {
		r.Meta["branch"] = strconv.Itoa(number)
		if b.parent >= 0 {
			r.Meta["branch_of"], r.Meta["shared_tokens"] = strconv.Itoa(b.parent), strconv.Itoa(b.shared)
		}
	}
	return r
}
