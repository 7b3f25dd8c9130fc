package service

import (
	"fmt"
	"math"
	"strconv"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// progress is what a definition says of how far its table can get. Generators start all that the gate lets them, in
// groups of group_size, and trainers update once with each smallest batch of every shard.
type progress struct {
	wire.Table
	shards, share int     // share: the capacity of a shard
	group         int     // rollouts in a group, 1 if groups differ
	brought       int     // of them that the table keeps at most: see [replay.Options.PerGroup]
	least         int     // draws of the smallest batch that can go on for ever
	uses          float64 // of a rollout at most; +Inf: no bound
	full          int     // rollouts that a shard must hold before it is sampled
}

// checkProgress returns why a table with valid options must come to a standstill, whatever its clients do. It is exact
// but for these definitions, which it refuses although some schedule or batch might go on:
//
//   - a limiter below 1 on a queue with max_staleness: what expires makes room only when the version advances, and
//     trainers that the limiter holds do not advance it;
//   - with unit step a rollout counts as one step, because its number of turns is not known;
//   - with max_uses as many rollouts count as used up as the draws can use up;
//   - with kept_per_prompt each prompt counts as that of one group;
//   - on a queue with max_staleness, or with max_uses and max_staleness, draws count as made of the newest rollouts.
//
// A batch larger than the smallest may still be too large: see [table.neverFilled].
func checkProgress(w wire.Table) (p option.Problems) {
	if checkKept(&p, w); len(p) > 0 {
		return nil
	}
	w.Options = w.Options.WithDefaults()
	g := progress{Table: w, shards: w.Shards, share: w.Capacity / w.Shards, group: max(w.GroupSize, 1), least: 1,
		uses: math.Inf(1)}
	g.brought = w.PerGroup(g.group)
	switch {
	case w.Sampler.Consumes() || w.Cooldown > 0: // what rests counts as gone: its rest ends with a version
		g.uses = 1
	case w.MaxUses > 0:
		g.uses = float64(w.MaxUses)
	}
	switch {
	case w.Unit == replay.UnitGroup:
		g.least = g.group
	case w.Sampler.Consumes():
		g.least = g.minOfQueue()
	}
	g.full = max(w.MinSize, g.least)
	if w.Unit != replay.UnitStep && (w.Sampler.Consumes() || w.Unit == replay.UnitGroup) {
		whole := g.share - g.share%g.brought
		p.Check(w.MinSize <= whole, "min_size", w.MinSize,
			"at most %d, the whole groups of group_size %s in a shard of capacity %d", whole, g.sizes(), g.share)
	}
	if w.Limiter != nil {
		g.checkLimiter(&p)
	}
	if w.Gate != nil && len(p) == 0 {
		g.checkGate(&p)
	}
	return p
}

// sizes says how large groups are, and what the table keeps of each.
func (g *progress) sizes() string {
	if g.brought == g.group {
		return strconv.Itoa(g.group)
	}
	return fmt.Sprintf("%d, of which select and kept_per_prompt leave %d", g.group, g.brought)
}

// minOfQueue returns the smallest batch with which a queue never holds too little for a batch and too much for
// another group. What is left when no group fits is a multiple of a batch that divides what a group brings.
func (g *progress) minOfQueue() int {
	for batch := 1; batch < min(g.brought, maxUpdates); batch++ {
		left := (max(g.MinSize, batch) - 1) / batch * batch
		if g.brought%batch == 0 && left <= g.share-g.brought {
			return batch
		}
	}
	return g.brought
}

func (g *progress) checkLimiter(p *option.Problems) {
	l := g.Limiter
	enters := float64(g.brought) / float64(g.group)
	p.Check(l.SamplesPerInsert >= enters-1e-9 || !g.Sampler.Consumes(), "limiter.samples_per_insert", l.SamplesPerInsert,
		"at least %v with sampler %s, which gives each rollout once: at %v draws per rollout a share of %v stays in "+
			"the queue until its %d places are taken; then insertions wait for room, and samples for insertions",
		enters, g.Sampler, l.SamplesPerInsert, enters-l.SamplesPerInsert, g.share)
	p.Check(l.ErrorBuffer >= float64(g.least), "limiter.error_buffer", l.ErrorBuffer,
		"at least %d draws, the smallest batch", g.least)
}

// started returns how many groups generators may have started after a number of updates.
func (g *progress) started(updates int) int {
	ahead := float64(updates) + float64(g.Gate.MaxStaleness) + 1
	return int(min(math.Floor((ahead*g.Gate.RolloutsPerUpdate+1e-6)/float64(g.group)), math.MaxInt32))
}

// maxUpdates bounds the updates that checkGate looks at. What happens recurs after group_size updates if
// rollouts_per_update is whole.
const maxUpdates = 1 << 16

func (g *progress) checkGate(p *option.Problems) {
	const ahead = "(max_staleness + 1) x rollouts_per_update, now %v, to reach %s"
	first := float64(g.Gate.MaxStaleness+1) * g.Gate.RolloutsPerUpdate
	needs := g.shards * ((g.full + g.brought - 1) / g.brought) // groups
	if g.started(0) < needs {
		reach := fmt.Sprintf("a group of group_size %s in each of %d shards", g.sizes(), g.shards)
		if g.MinSize > 1 {
			reach = fmt.Sprintf("the %d rollouts of min_size, before which no update begins, in %d whole groups of %s",
				g.MinSize*g.shards, needs, g.sizes())
		}
		p.Check(false, "gate.max_staleness", g.Gate.MaxStaleness, ahead, first, reach)
		return
	}
	if g.Unit == replay.UnitStep { // a rollout may have any number of steps
		g.uses = math.Inf(1)
	} else {
		g.checkRate(p)
	}
	g.checkExpiry(p)
	if len(*p) > 0 || g.Unit == replay.UnitStep {
		return
	}
	for updates := range min(64*g.group*g.shards, maxUpdates) {
		if !g.checkUpdate(p, updates) {
			return
		}
	}
	if !g.Sampler.Consumes() && !math.IsInf(g.uses, 1) {
		g.checkEviction(p)
	}
}

// checkEviction requires that a full shard lasts until the next groups come. Groups that find it full push out what was
// not used, so an earlier surplus is no reserve.
func (g *progress) checkEviction(p *option.Problems) {
	places := g.share
	if g.Unit == replay.UnitGroup {
		places -= places % g.group
	}
	worst, at := places, 0
	for m := 1; m <= min(64*g.group*g.shards+places/g.least, maxUpdates); m++ {
		arrived := int((float64(m)*g.Gate.RolloutsPerUpdate+1e-6)/float64(g.group*g.shards)) * g.brought
		draws := float64(m * g.least)
		used := int(min(draws, (float64(places)*(g.uses-1)+draws)/g.uses)) // some were used before
		if g.Unit == replay.UnitGroup {
			used -= used % g.group
		}
		if left := places + arrived - used; left < worst {
			worst, at = left, m
		}
	}
	p.Check(worst >= g.full, "min_size", g.MinSize, "at most %d, or a higher gate.rollouts_per_update: groups of %d "+
		"push out the oldest, and a full shard of %d can hold %d after %d updates, and it is sampled from %d", worst,
		g.brought, places, worst, at, g.full)
}

// checkRate requires that new rollouts allow the draws of the smallest update.
func (g *progress) checkRate(p *option.Problems) {
	each, why := g.uses*float64(g.brought)/float64(g.group), fmt.Sprintf("max_uses %d", g.MaxUses)
	switch {
	case g.Sampler.Consumes():
		why = fmt.Sprintf("sampler %s", g.Sampler)
	case g.Cooldown > 0:
		why = fmt.Sprintf("cooldown %d", g.Cooldown)
	}
	if g.brought < g.group {
		why += fmt.Sprintf(" and %d of each group of %d", g.brought, g.group)
	}
	if l := g.Limiter; l != nil && l.SamplesPerInsert < each {
		each, why = l.SamplesPerInsert, fmt.Sprintf("limiter.samples_per_insert %v", l.SamplesPerInsert)
	}
	draws := g.least * g.shards
	p.Check(g.Gate.RolloutsPerUpdate*each >= float64(draws)-1e-6, "gate.rollouts_per_update", g.Gate.RolloutsPerUpdate,
		"at least %v: with %s each rollout is drawn %v times, and an update takes %d draws or more",
		float64(draws)/each, why, each, draws)
}

// checkExpiry requires that enough is left at any time of what max_staleness lets stay.
func (g *progress) checkExpiry(p *option.Problems) {
	if g.MaxStaleness == 0 {
		return
	}
	from := 0
	if math.IsInf(g.uses, 1) {
		from = g.MaxStaleness // without uses that end, the longest time is the best
	}
	most := 0
	for age := from; age <= min(g.MaxStaleness, from+maxUpdates); age++ {
		groups := int(min((float64(age)+1)*g.Gate.RolloutsPerUpdate/float64(g.group)+1e-6, math.MaxInt32))
		most = max(most, groups/g.shards*g.brought-int(float64(age*g.least)/g.uses))
	}
	p.Check(most >= g.full, "max_staleness", g.MaxStaleness, "(max_staleness + 1) x gate.rollouts_per_update, now %v, "+
		"to keep %d rollouts in each of %d shards at any time, in whole groups of %s: it keeps %d",
		(float64(g.MaxStaleness)+1)*g.Gate.RolloutsPerUpdate, g.full, g.shards, g.sizes(), most)
}

// checkUpdate requires that the update after a number of them can draw its smallest batch.
func (g *progress) checkUpdate(p *option.Problems, updates int) bool {
	groups := g.started(updates)
	used := int(float64(updates*g.least) / g.uses)
	left := groups/g.shards*g.brought - used
	p.Check(left >= g.full, "gate.max_staleness", g.Gate.MaxStaleness,
		"more: after %d updates the gate has let %d groups of %s start, of which a shard has used %d rollouts and "+
			"holds %d, and it is sampled from %d", updates, groups, g.sizes(), used, left, g.full)
	if l := g.Limiter; l != nil {
		lower, _ := newLimiter(*l, g.MinSize).bounds()
		after := float64(groups*g.group)*l.SamplesPerInsert - float64((updates+1)*g.least*g.shards)
		p.Check(after >= lower-1e-6, "limiter.error_buffer", l.ErrorBuffer,
			"more: after %d updates the gate has let %d groups of %d start, and %d draws bring the balance to %v, "+
				"below %v",
			updates, groups, g.group, (updates+1)*g.least*g.shards, after, lower)
	}
	return len(*p) == 0
}

// neverFilled turns the error of a starved sample into one that wraps rollout.ErrInvalid if the gate lets too few
// rollouts start before the first update: whoever waits for this batch does not make that update.
func (t *table) neverFilled(n int, starved error) error {
	started, first := t.gate.Load().BeforeFirstUpdate(t.version())
	if !first || t.Unit == replay.UnitStep || t.Sampler.Replaces() && t.MaxUses == 0 && t.limiter == nil {
		return starved
	}
	group := int64(max(t.GroupSize, 1))
	groups := started / group
	most := float64((groups + int64(t.Shards) - 1) / int64(t.Shards) * int64(t.PerGroup(int(group)))) // of a shard
	switch {
	case t.Sampler.Replaces() && t.MaxUses > 0:
		most *= float64(t.MaxUses)
	case t.Sampler.Replaces():
		most = math.Inf(1)
	}
	why := ""
	if t.limiter != nil {
		lower, _ := t.limiter.bounds()
		if allowed := float64(groups*group)*t.limiter.ratio - lower; allowed < most {
			most, why = allowed, fmt.Sprintf(" and the limiter's samples_per_insert %v and error_buffer %v allow %v "+
				"draws of them", t.limiter.ratio, t.limiter.buffer, allowed)
		}
	}
	if float64(n) <= most {
		return starved
	}
	sizes := (&progress{Table: t.Table, group: int(group), brought: t.PerGroup(int(group))}).sizes()
	return fmt.Errorf("size is %d: before the first update the gate lets (max_staleness + 1) x rollouts_per_update = "+
		"%v rollouts start, %d groups of %s in %d shards%s: ask for at most %v, or raise gate.max_staleness: %w", n,
		float64(t.Gate.MaxStaleness+1)*t.Gate.RolloutsPerUpdate, groups, sizes, t.Shards, why, most, rollout.ErrInvalid)
}
