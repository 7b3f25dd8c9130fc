package replay

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// promptIndex finds the rollouts of a prompt: a hash table of chains of slots. A chain has the rollouts of all prompts
// of one hash, the newest first, as long as slots are added in order of ids. There are at most two rollouts to a head,
// so a look-up visits the prompt's own rollouts and, on average, at most two others. A rollout takes 8 bytes for its
// links, an eighth more that is kept in hand, and 2 to 4 for heads: with 100 rollouts or more at most 16.
//
// The seed of the hash differs from process to process. Only the order of prompts in a chain depends on it.
type promptIndex struct {
	store *store
	seed  maphash.Seed
	heads []int32 // a power of two of them
	links []neighbours
	n     int
}

// minHeads is the number of heads of an empty index.
const minHeads = 16

func newPromptIndex(st *store) *promptIndex {
	x := &promptIndex{store: st, seed: maphash.MakeSeed()}
	x.clearHeads(minHeads)
	return x
}

func (x *promptIndex) clearHeads(n int) {
	x.heads = make([]int32, n)
	for i := range x.heads {
		x.heads[i] = none
	}
}

func (x *promptIndex) head(prompt string) *int32 {
	return &x.heads[maphash.String(x.seed, prompt)&uint64(len(x.heads)-1)]
}

// add puts a slot at the head of its chain.
func (x *promptIndex) add(s int32) {
	if n := int(s) + 1; n > cap(x.links) { // append would keep up to as much again in hand
		x.links = append(make([]neighbours, 0, n+n/8+16), x.links...)
	}
	x.links = x.links[:max(len(x.links), int(s)+1)]
	if x.n++; x.n > 2*len(x.heads) {
		x.grow()
	}
	x.link(s)
}

func (x *promptIndex) link(s int32) {
	h := x.head(x.store.rollouts[s].PromptID)
	x.links[s] = neighbours{Prev: none, Next: *h}
	if *h != none {
		x.links[*h].Prev = s
	}
	*h = s
}

func (x *promptIndex) remove(s int32) {
	at := x.links[s]
	if at.Next != none {
		x.links[at.Next].Prev = at.Prev
	}
	if at.Prev != none {
		x.links[at.Prev].Next = at.Next
	} else {
		*x.head(x.store.rollouts[s].PromptID) = at.Next
	}
	x.n--
}

// grow doubles the heads: O(1) per entry, amortised. It links each chain again from its end on, which keeps the order.
func (x *promptIndex) grow() {
	old := x.heads
	x.clearHeads(2 * len(old))
	for _, s := range old {
		for s != none && x.links[s].Next != none {
			s = x.links[s].Next
		}
		for s != none {
			before := x.links[s].Prev
			x.link(s)
			s = before
		}
	}
}

// first returns the newest slot of a prompt, none if there is none.
func (x *promptIndex) first(prompt string) int32 { return x.at(*x.head(prompt), prompt) }

// after returns the next older slot of a prompt, none if there is none.
func (x *promptIndex) after(s int32, prompt string) int32 { return x.at(x.links[s].Next, prompt) }

// mates returns the slots of a slot's prompt, itself among them. A group has one prompt, so of slots of one group the
// rollouts, which are anywhere in memory, are not looked at.
func (x *promptIndex) mates(s int32) iter.Seq[int32] {
	group, prompt := x.store.items[s].Group, x.store.rollouts[s].PromptID
	same := func(at int32) bool {
		return x.store.items[at].Group == group || x.store.rollouts[at].PromptID == prompt
	}
	return func(yield func(int32) bool) {
		for at := s; at != none; at = x.links[at].Next {
			if same(at) && !yield(at) {
				return
			}
		}
		for at := x.links[s].Prev; at != none; at = x.links[at].Prev {
			if same(at) && !yield(at) {
				return
			}
		}
	}
}

// at returns the first slot of a prompt from s on.
func (x *promptIndex) at(s int32, prompt string) int32 {
	for s != none && x.store.rollouts[s].PromptID != prompt {
		s = x.links[s].Next
	}
	return s
}

// indexPrompts fills the index of a shard whose slots were just set, in the order of their ids.
func (s *shard) indexPrompts() {
	if s.prompts == nil {
		return
	}
	var slots []int32
	for slot, r := range s.rollouts {
		if r != nil && !s.items[slot].is(evicted) {
			slots = append(slots, int32(slot))
		}
	}
	slices.SortFunc(slots, func(a, b int32) int { return cmp.Compare(s.items[a].ID, s.items[b].ID) })
	for _, slot := range slots {
		s.prompts.add(slot)
	}
}

// checkPrompts refuses a draw by prompt that no table, or not this one, can make, and parses its expressions.
func (t *Table) checkPrompts(req *request) (err error) {
	switch {
	case !t.options.PromptIndex:
		return fmt.Errorf("prompts: this table has no index of them: set the option prompt_index: %w", rollout.ErrInvalid)
	case req.Size != 0 || req.Fresh != 0:
		return fmt.Errorf("size is %d and fresh %d with %d prompts: leave them out, and give per_prompt: %w", req.Size,
			req.Fresh, len(req.Prompts), rollout.ErrInvalid)
	case req.PerPrompt < 1:
		return fmt.Errorf("per_prompt is %d: ask for at least 1 rollout of each prompt: %w", req.PerPrompt,
			rollout.ErrInvalid)
	}
	seen := make(map[string]struct{}, len(req.Prompts))
	for i, id := range req.Prompts {
		if seen[id] = struct{}{}; len(seen) <= i {
			return fmt.Errorf("prompts: %.100q is named twice: name each once, and raise per_prompt: %w", id,
				rollout.ErrInvalid)
		}
	}
	req.where, req.order, err = parseSelection(req.Where, req.Order)
	return err
}

// parseSelection parses a condition and an order of rollouts; "" is none.
func parseSelection(condition, score string) (where, order *formula.Formula, err error) {
	if condition != "" {
		if where, err = formula.Condition(condition); err != nil {
			return nil, nil, fmt.Errorf("where: %w: %w", err, rollout.ErrInvalid)
		}
	}
	if score != "" {
		if order, err = formula.Score(score); err != nil {
			return nil, nil, fmt.Errorf("order: %w: %w", err, rollout.ErrInvalid)
		}
	}
	return where, order, nil
}

// samePrompts refuses a request that repeats another's id with other prompts, or with a smaller per_prompt.
func samePrompts(b *rollout.Batch, req request) error {
	same := len(b.PromptCounts) == len(req.Prompts)
	if same {
		for i, draws := range b.ByPrompt() {
			same = same && len(draws) <= req.PerPrompt && (len(draws) == 0 || draws[0].Rollout.PromptID == req.Prompts[i])
		}
	}
	if same {
		return nil
	}
	return fmt.Errorf("prompts: request %q asked for others before; give each request an id of its own: %w", req.ID,
		rollout.ErrInvalid)
}

// candidate is a rollout that a draw by prompt may take, and its order.
type candidate struct {
	slot  int32
	order float64 // NaN: not known
}

// drawByPrompt adds the rollouts of each prompt to the batch. It visits all that the shard holds of the prompts.
func (s *shard) drawByPrompt(random *rand.Rand, req request, batch *rollout.Batch) {
	batch.PromptCounts = make([]int, len(req.Prompts))
	for i, prompt := range req.Prompts {
		s.findCandidates(prompt, req.where, req.order, nil)
		n := min(req.PerPrompt, len(s.candidates))
		for k := range n {
			slot, probability := s.candidate(random, k, req.order != nil)
			batch.Draws = append(batch.Draws, rollout.Draw{})
			s.sampler.holdForBatch(slot)
			s.addDraw(batch, slot, probability, false)
		}
		batch.PromptCounts[i] = n
	}
}

// findCandidates sets candidates to what may be drawn of a prompt, the greatest in the order first, of equals the
// newest. Formulas and skip may be nil.
func (s *shard) findCandidates(prompt string, where, order *formula.Formula, skip func(slot int32) bool) {
	s.candidates = s.candidates[:0]
	row := row{shard: s}
	for slot := s.prompts.first(prompt); slot != none; slot = s.prompts.after(slot, prompt) {
		if s.undrawable(slot) || skip != nil && skip(slot) {
			continue
		}
		row.slot, row.measured = slot, false
		if where != nil && !where.Holds(&row) {
			continue
		}
		c := candidate{slot: slot}
		if order != nil {
			c.order = order.Number(&row)
		}
		s.candidates = append(s.candidates, c)
	}
	if order != nil {
		slices.SortStableFunc(s.candidates, func(a, b candidate) int { return cmp.Compare(b.order, a.order) })
	}
}

// candidate returns the k-th candidate to draw, in their order or at random, and its probability among those left.
func (s *shard) candidate(random *rand.Rand, k int, ordered bool) (slot int32, probability float64) {
	probability = 1
	if !ordered {
		left := len(s.candidates) - k
		other := k + int(random.Uint64N(uint64(left)))
		s.candidates[k], s.candidates[other] = s.candidates[other], s.candidates[k]
		probability = 1 / float64(left)
	}
	return s.candidates[k].slot, probability
}

// row is a rollout whose columns formulas read.
type row struct {
	shard       *shard
	slot        int32
	item        *item            // of a rollout that no shard has yet, or a copy: instead of a slot
	rollout     *rollout.Rollout // the same
	measured    bool             // what follows is of this slot
	meanLogprob float64
	length      int
}

// Value is [formula.Row]'s. It takes O(1), but for the first of mean_logprob and length O(L).
func (r *row) Value(c formula.Column) float64 {
	it, of := r.item, r.rollout
	if it == nil {
		it, of = &r.shard.items[r.slot], r.shard.rollouts[r.slot]
	}
	switch c {
	case formula.Reward:
		return float64(of.Reward)
	case formula.Advantage:
		return float64(it.Advantage)
	case formula.GroupMean:
		return float64(it.Mean)
	case formula.GroupStd:
		return float64(it.Std)
	case formula.MeanLogprob:
		r.measure(of)
		return r.meanLogprob
	case formula.Length:
		r.measure(of)
		return float64(r.length)
	case formula.Tokens:
		return float64(len(of.Tokens))
	case formula.Turns:
		return float64(len(of.Turns))
	case formula.Truncated:
		if of.Truncated {
			return 1
		}
		return 0
	case formula.Uses:
		return float64(it.Uses)
	case formula.Age:
		return float64(r.shard.version - it.Version)
	case formula.Version:
		return float64(it.Version)
	case formula.SinceUse:
		if it.LastUse == rollout.NoVersion {
			return math.Inf(1)
		}
		return float64(r.shard.version - it.LastUse)
	case formula.Pending:
		if of.Pending() {
			return 1
		}
		return 0
	}
	panic(fmt.Sprintf("formula column %d has no value", c)) // a mistake of the program
}

// measure counts the policy's tokens and takes their mean log-prob.
func (r *row) measure(of *rollout.Rollout) {
	if r.measured {
		return
	}
	n, sum := 0, 0.0
	for i, m := range of.Mask {
		if m == 1 {
			n++
			sum += float64(of.Logprobs[i])
		}
	}
	r.measured, r.length, r.meanLogprob = true, n, sum/float64(n)
}

// Meta is [formula.Row]'s.
func (r *row) Meta(name string) float64 {
	of := r.rollout
	if of == nil {
		of = r.shard.rollouts[r.slot]
	}
	text, ok := of.Meta[name]
	if !ok {
		return math.NaN()
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}
