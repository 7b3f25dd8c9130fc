// Package parted divides what is asked of a table over its parts, each a table of another service: a batch over the
// totals that the parts report ([Divide], [Plan.Merge]), groups by a hash ([Order]), amounts ([Share]), and ids
// ([Join]).
//
// A batch is drawn on two levels: how many draws fall on each part, then those inside the part by its own sampler. With
// totals as of the draw the merged batch has the law of one table that holds everything: a unit's probability is that
// of its part times that inside it, and importance weights are those of that table. What is not exact:
//
//   - Between the reading of totals and the draws other clients may insert or draw; the plan is that of the totals.
//   - A unit that max_uses exhausts within a batch, drawn with replacement, changes the probabilities of its own part only.
//   - Sampler least_used knows the never used from the others, not those used once from those used twice.
//   - Each part ends its epoch by itself; see [Epoch].
//
// Everything is a function of its arguments: the same totals and the same random stream give the same plan.
package parted

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// Totals is what a part (a shard of one table) adds to a draw that is divided. A unit is what a draw falls on.
type Totals struct {
	Version   rollout.Version `json:"version"`
	Units     int             `json:"units"`      // that can be drawn now
	Unused    int             `json:"unused"`     // of them, without a use or a draw on lease; with unseen, least_used
	Fresh     int             `json:"fresh"`      // of them, never handed out as fresh
	EpochLeft int             `json:"epoch_left"` // of them, not drawn yet in this epoch, with sampler epoch

	// With sampler prioritized, and 0 without units: ln of the sum of the weights, with ages counted from Version; ln of
	// the largest importance weight (N P)^-beta that a unit has, before it is divided by anything, N being Units and P
	// the unit's probability in the part, with importance_norm table alone; and beta at Version.
	LogMass    float64 `json:"log_mass"`
	LogLargest float64 `json:"log_largest"`
	Beta       float64 `json:"beta"`
}

// Kind is how the draws of a batch depend on each other.
type Kind int

// The kinds.
const (
	Without     Kind = iota // without replacement within a batch: sampler distinct
	UnusedFirst             // without replacement, never used units first: unseen, least_used
	// Epoch is without replacement until all were drawn. Parts draw what is left of their epochs until nothing is left
	// of any, and a part that ended its epoch begins another once the others have more than half of theirs left.
	Epoch
	Replaced   // independent draws, all units alike: uniform
	ByMass     // independent draws by weight: prioritized with draws independent
	Stratified // one draw by weight in each of n equal segments of the total: prioritized with draws stratified
	Queue      // each unit once, in the order of its part: fifo, lifo
)

// Rule is how a table draws. replay.Options.DrawRule returns that of a table.
type Rule struct {
	Kind    Kind
	Unit    int    // rollouts of a unit, at least 1
	ByTable bool   // importance weights are divided by the largest any unit could have, else by the batch's largest
	Alone   string // the option by which a part's draws depend on what all others hold, which totals do not tell; "": none
}

// weighted reports whether units are drawn by weight.
func (r Rule) weighted() bool { return r.Kind == ByMass || r.Kind == Stratified }

// Plan is a batch divided over parts.
type Plan struct {
	rule    Rule
	totals  []Totals
	units   int       // of all parts
	share   []float64 // of each part in one draw with replacement
	logMass float64   // of all parts
	from    []int     // by unit of the batch, its part
	chance  []float64 // by unit of the batch, its probability; 0: by share and the part's own
	fresh   int       // units, the first ones, that are fresh
}

// Divide plans a batch of size rollouts, of which the first fresh were never handed out as fresh. A part without
// units gets no draws. An error wraps rollout.ErrStarved if the parts hold too little, and rollout.ErrInvalid if the
// request can never be divided.
func Divide(r *rand.Rand, rule Rule, totals []Totals, size, fresh int) (*Plan, error) {
	if rule.Kind == Queue {
		fresh = 0 // each rollout comes once anyway
	}
	switch {
	case size < 1 || size%rule.Unit != 0 || fresh%rule.Unit != 0:
		return nil, fmt.Errorf("size is %d with %d fresh: ask for whole groups of group_size %d: %w", size, fresh,
			rule.Unit, rollout.ErrInvalid)
	case rule.Alone != "":
		return nil, fmt.Errorf("%s is set: draw from one part at a time, or leave it out, because nobody knows what the "+
			"others hold: %w", rule.Alone, rollout.ErrInvalid)
	case fresh < 0 || fresh > size:
		return nil, fmt.Errorf("fresh is %d: ask for 0 to size (%d) rollouts: %w", fresh, size, rollout.ErrInvalid)
	case fresh > 0 && (rule.Kind == UnusedFirst || rule.Kind == Epoch):
		return nil, fmt.Errorf("fresh is %d: ask for 0 over several services with samplers unseen, least_used and "+
			"epoch, because nobody knows how many of the others the fresh draws leave unused: %w", fresh,
			rollout.ErrInvalid)
	}
	p := &Plan{rule: rule, totals: totals, share: make([]float64, len(totals)), fresh: fresh / rule.Unit}
	waiting := make([]int, len(totals))
	for i, t := range totals {
		waiting[i] = t.Fresh
		p.units += t.Units
	}
	if err := p.without(r, p.fresh, waiting, "never handed out as fresh"); err != nil {
		return nil, err
	}
	for i := range p.chance {
		p.chance[i] = 1
	}
	if rest := size/rule.Unit - p.fresh; rest > 0 {
		if err := p.rest(r, rest); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// rest plans the draws after the fresh ones.
func (p *Plan) rest(r *rand.Rand, n int) error {
	left := make([]int, len(p.totals)) // of each part, units that this batch has not drawn
	for i, t := range p.totals {
		left[i] = t.Units
	}
	first := make([]int, len(p.totals)) // of left, those drawn before the others
	switch p.rule.Kind {
	case Replaced, ByMass, Stratified:
		return p.replaced(r, n)
	case Without:
		for _, part := range p.from {
			left[part]--
		}
	case UnusedFirst:
		for i, t := range p.totals {
			first[i] = t.Unused
		}
	case Epoch:
		for i, t := range p.totals {
			first[i] = t.EpochLeft
		}
		p.beginEpochs(first)
	}
	begin := sum(first)
	early := min(n, begin)
	if err := p.without(r, early, first, ""); err != nil {
		return err
	}
	for _, part := range p.from[len(p.from)-early:] {
		left[part]--
	}
	if err := p.without(r, n-early, left, "to be drawn"); err != nil {
		return err
	}
	if p.rule.Kind == Queue {
		for i := range p.chance {
			p.chance[i] = 1
		}
	}
	return nil
}

// beginEpochs lets parts whose epoch is over begin another, if the others are in the first half of theirs: they are in
// an epoch that such a part has not begun. Of an epoch that all are in, hardly any part is the first to end that early.
func (p *Plan) beginEpochs(left []int) {
	of := 0
	for i, t := range p.totals {
		if left[i] > 0 {
			of += t.Units
		}
	}
	if 2*sum(left) <= of {
		return
	}
	for i, t := range p.totals {
		if left[i] == 0 {
			left[i] = t.Units
		}
	}
}

// without adds n draws without replacement from the units of each part, which it takes off.
func (p *Plan) without(r *rand.Rand, n int, units []int, what string) error {
	all := sum(units)
	if n > all {
		return fmt.Errorf("sampling %d from %d parts, which hold %d %s: %w", n*p.rule.Unit, len(p.totals),
			all*p.rule.Unit, what, rollout.ErrStarved)
	}
	for ; n > 0; n-- {
		at := int(r.Uint64N(uint64(all)))
		part := 0
		for at >= units[part] {
			at -= units[part]
			part++
		}
		p.from, p.chance = append(p.from, part), append(p.chance, 1/float64(all))
		units[part]--
		all--
	}
	return nil
}

// replaced adds n draws with replacement, each part with its share.
func (p *Plan) replaced(r *rand.Rand, n int) error {
	if p.units == 0 {
		return fmt.Errorf("sampling %d from %d parts, which hold nothing to be drawn: %w", n*p.rule.Unit, len(p.totals),
			rollout.ErrStarved)
	}
	p.share, p.logMass = shares(p.rule, p.totals)
	cumulative := make([]float64, len(p.share))
	total := 0.0
	for i, s := range p.share {
		total += s
		cumulative[i] = total
	}
	began := len(p.from)
	for i := range n {
		u := r.Float64()
		if p.rule.Kind == Stratified {
			u = (float64(i) + u) / float64(n)
		}
		part, _ := slices.BinarySearchFunc(cumulative, u*total, func(end, at float64) int {
			if end > at {
				return 1
			}
			return -1
		})
		for part = min(part, len(p.share)-1); p.share[part] == 0; { // by rounding at the very end
			part--
		}
		p.from, p.chance = append(p.from, part), append(p.chance, 0)
	}
	if late := p.from[began:]; p.rule.Kind == Stratified {
		r.Shuffle(n, func(i, j int) { late[i], late[j] = late[j], late[i] })
	}
	return nil
}

// Shares returns each part's share of the next draw.
func Shares(rule Rule, totals []Totals) []float64 {
	share, _ := shares(rule, totals)
	return share
}

// shares returns each part's share of a draw with replacement, and by weight the logarithm of all parts' mass.
func shares(rule Rule, totals []Totals) (share []float64, logMass float64) {
	share = make([]float64, len(totals))
	greatest := math.Inf(-1)
	for _, t := range totals {
		if t.Units > 0 {
			greatest = max(greatest, t.LogMass)
		}
	}
	total := 0.0
	for i, t := range totals {
		if t.Units > 0 {
			share[i] = float64(t.Units)
			if rule.weighted() {
				share[i] = math.Exp(t.LogMass - greatest)
			}
			total += share[i]
		}
	}
	for i := range share {
		share[i] /= max(total, math.SmallestNonzeroFloat64)
	}
	return share, greatest + math.Log(total)
}

// Requests returns what to ask of each part: a request of size 0 asks nothing.
func (p *Plan) Requests() []rollout.Request {
	requests := make([]rollout.Request, len(p.totals))
	for i, part := range p.from {
		requests[part].Size += p.rule.Unit
		if i < p.fresh {
			requests[part].Fresh += p.rule.Unit
		}
	}
	return requests
}

// Merge makes one batch of the parts' answers to [Plan.Requests], nil where nothing was asked: ids are joined ([Join]),
// probabilities and weights those of one table. Its version is the largest; it has no id.
func (p *Plan) Merge(batches []*rollout.Batch) (*rollout.Batch, error) {
	merged := &rollout.Batch{Draws: make([]rollout.Draw, 0, len(p.from)*p.rule.Unit)}
	taken := make([]int, len(batches))
	for i, part := range p.from {
		b, at := batches[part], taken[part]
		if b == nil || len(b.Draws) < at+p.rule.Unit {
			return nil, fmt.Errorf("part %d answered with fewer rollouts than the plan has for it", part)
		}
		taken[part] += p.rule.Unit
		merged.Version, merged.Shard = max(merged.Version, b.Version), b.Shard
		merged.Repeated = merged.Repeated || b.Repeated
		unit := len(merged.Draws)
		merged.Draws = append(merged.Draws, b.Draws[at:taken[part]]...)
		draws := JoinDraws(part, merged.Draws[unit:])
		for j := range draws {
			if draws[j].Probability *= p.share[part]; p.chance[i] > 0 {
				draws[j].Probability = p.chance[i]
			}
		}
	}
	if p.rule.weighted() && len(p.from) > p.fresh {
		p.weigh(merged)
	}
	return merged, nil
}

// weigh sets the importance weights (N P)^-beta of the draws but the fresh ones, over the largest.
func (p *Plan) weigh(b *rollout.Batch) {
	draws := b.Draws[p.fresh*p.rule.Unit:]
	logs := make([]float64, len(draws))
	beta := 0.0
	for _, t := range p.totals {
		beta = max(beta, t.Beta)
	}
	largest := math.Inf(-1)
	for i, d := range draws {
		logs[i] = -beta * (math.Log(float64(p.units)) + math.Log(d.Probability))
		largest = max(largest, logs[i])
	}
	for i, t := range p.totals {
		if p.rule.ByTable && p.share[i] > 0 { // what (N P)^-beta becomes with the N and the P of the table
			largest = max(largest,
				t.LogLargest-beta*(math.Log(float64(p.units)/float64(t.Units))+t.LogMass-p.logMass))
		}
	}
	for i := range draws {
		draws[i].Weight = float32(math.Exp(logs[i] - largest))
	}
	b.LogWeightScale = largest
}

func sum(units []int) (all int) {
	for _, n := range units {
		all += n
	}
	return all
}

// MaxParts bounds the parts of a table.
const MaxParts = 256

// partBits is where the number of a part begins in the table's ids.
const partBits = 48

// Join returns the table's id for an id of a part: of a rollout, a group, a batch or a grant, each below 2^48. 0, which
// is no id, stays 0.
func Join(part int, id uint64) uint64 {
	if id == 0 {
		return 0
	}
	return id | uint64(part)<<partBits
}

// JoinDraws gives draws of a part the table's ids, and returns them.
func JoinDraws(part int, draws []rollout.Draw) []rollout.Draw {
	for i := range draws {
		d := &draws[i]
		d.ID, d.Group = rollout.ID(Join(part, uint64(d.ID))), Join(part, d.Group)
	}
	return draws
}

// Cut is the inverse of [Join].
func Cut(id uint64) (part int, ofPart uint64) { return int(id >> partBits), id & (1<<partBits - 1) }

// Share returns what one of the parts gets of the table's amount, rounded up to a multiple.
func Share(amount, parts, multiple int) int {
	each := (amount + parts - 1) / parts
	return (each + multiple - 1) / multiple * multiple
}

// Key returns what decides the way of a group: the prompt id of its first rollout, and its number in an insertion under
// a batch id, so that a repeated insertion goes the same way.
func Key(prompt, batchID string, group int) []byte {
	key := append([]byte(prompt), 0)
	key = append(append(key, batchID...), 0)
	return binary.LittleEndian.AppendUint64(key, uint64(group))
}

// Order returns the parts in the order in which a key prefers them, by rendezvous hashing (Thaler and Ravishankar
// 1998): where parts go or come, only the keys of those change their first.
func Order(key []byte, parts int) []int {
	order, scores := make([]int, parts), make([]uint64, parts)
	for i := range order {
		h := fnv.New64a()
		h.Write(key)
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		order[i], scores[i] = i, mix(h.Sum64())
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return order
}

// mix is the finaliser of SplitMix64 (Steele et al. 2014): FNV's high bits hardly depend on the last bytes.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
