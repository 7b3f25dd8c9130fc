package parted_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
)

// tableInParts is a table in parts of different sizes, whose rollouts have known rewards and versions.
type tableInParts struct {
	rule   parted.Rule
	tables []*replay.Table
	units  map[rollout.ID]unit // by the table's id of the first rollout
	draws  uint64
}

type unit struct {
	base   float64
	age    int
	used   bool
	member []rollout.ID
}

const now = 7 // the version of every part

// divided makes tables of the given units and fills them; every third unit has been used.
func inParts(t *testing.T, o replay.Options, sizes ...int) *tableInParts {
	t.Helper()
	o.Capacity = 512
	p := &tableInParts{rule: o.DrawRule(), units: make(map[rollout.ID]unit)}
	r := rollout.Stream(11, "split test", 0)
	for part, n := range sizes {
		o.Seed = uint64(part)
		table, err := replay.New(o)
		must(t, err)
		must(t, table.Advance(t.Context(), now))
		p.tables = append(p.tables, table)
		for range n {
			age := r.IntN(now)
			g := rollout.Group{Size: p.rule.Unit}
			u := unit{age: age}
			for range p.rule.Unit {
				// Rewards differ by two orders of magnitude, and more so between parts.
				reward := float32(math.Exp(r.NormFloat64() + float64(part)))
				u.base += (math.Abs(float64(reward)) + 1e-6) / float64(p.rule.Unit)
				g.Rollouts = append(g.Rollouts, rollout.New("p", []int32{1}, rollout.Completion{Tokens: []int32{2},
					Logprobs: []float32{-1}, Version: rollout.Version(now - age), Reward: reward}))
			}
			ids, err := table.Insert(t.Context(), g)
			must(t, err)
			for _, id := range ids {
				u.member = append(u.member, rollout.ID(parted.Join(part, uint64(id))))
			}
			p.units[u.member[0]] = u
		}
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *tableInParts) totals() (list []parted.Totals) {
	for _, table := range p.tables {
		list = append(list, table.ServiceView().Totals(0))
	}
	return list
}

// draw takes a batch by a plan over totals and gives its draws back, or keeps them as uses.
func (p *tableInParts) draw(t *testing.T, totals []parted.Totals, size, fresh int, keep bool) *rollout.Batch {
	t.Helper()
	plan, err := parted.Divide(rollout.Stream(5, "plan", p.draws), p.rule, totals, size, fresh)
	must(t, err)
	p.draws++
	batches := make([]*rollout.Batch, len(p.tables))
	for i, req := range plan.Requests() {
		if req.Size == 0 {
			continue
		}
		b, err := p.tables[i].Lease(t.Context(), req)
		must(t, err)
		batches[i] = b
		if settle := p.tables[i].Release; keep {
			must(t, p.tables[i].Acknowledge(t.Context(), b.ID))
		} else {
			must(t, settle(t.Context(), b.ID))
		}
	}
	merged, err := plan.Merge(batches)
	must(t, err)
	return merged
}

func (p *tableInParts) mark(t *testing.T, b *rollout.Batch) {
	t.Helper()
	for _, d := range b.Draws {
		if u, ok := p.units[d.ID]; ok {
			u.used = true
			p.units[d.ID] = u
		}
	}
}

// weights are those of one table that holds everything, from the definition: (base exp(-age/tau))^alpha.
func (p *tableInParts) weights(o replay.Options) (each map[rollout.ID]float64, total float64) {
	each = make(map[rollout.ID]float64)
	for id, u := range p.units {
		w := math.Pow(u.base*math.Exp(-float64(u.age)/float64(o.AgeDecay)), o.PriorityExponent)
		each[id] = w
		total += w
	}
	return each, total
}

func byReward(draws replay.Draws, norm replay.Norm) replay.Options {
	return replay.Options{Sampler: replay.Prioritized, PriorityBase: replay.BaseReward, AgeDecay: 3, Draws: draws,
		PriorityExponent: 0.8, ImportanceBeta: new(0.5), ImportanceNorm: norm}
}

func TestProbabilitiesAndWeightsAreThoseOfOneTableThatHoldsEverything(t *testing.T) {
	for _, norm := range []replay.Norm{replay.ByBatch, replay.ByTable} {
		for _, size := range []int{1, 4} {
			o := byReward(replay.Stratified, norm)
			if size > 1 {
				o.Unit, o.GroupSize = replay.UnitGroup, size
			}
			p := inParts(t, o, 9, 0, 3, 17)
			each, total := p.weights(o)
			n := float64(len(p.units))
			largest := math.Inf(-1)
			for _, w := range each {
				largest = max(largest, -0.5*math.Log(n*w/total))
			}
			for range 50 {
				b := p.draw(t, p.totals(), 12*size, 2*size, false)
				if norm == replay.ByBatch {
					largest = math.Inf(-1)
					for i := 2 * size; i < len(b.Draws); i += size {
						largest = max(largest, -0.5*math.Log(n*each[b.Draws[i].ID]/total))
					}
				}
				if math.Abs(b.LogWeightScale-largest) > 1e-9 {
					t.Fatalf("%s, units of %d: log weight scale %v, want %v", norm, size, b.LogWeightScale, largest)
				}
				for i, d := range b.Draws {
					first := b.Draws[i/size*size]
					if fresh := i < 2*size; d.Fresh != fresh || fresh && (d.Weight != 1 || d.Probability != 1) {
						t.Fatalf("draw %d: fresh is %v, weight %v, probability %v", i, d.Fresh, d.Weight,
							d.Probability)
					} else if fresh {
						continue
					}
					if d.ID != p.units[first.ID].member[i%size] {
						t.Fatalf("draw %d is %d: it does not stand with its group", i, d.ID)
					}
					want := each[first.ID] / total
					if math.Abs(d.Probability/want-1) > 1e-9 {
						t.Errorf("%s: probability %v of %d, want %v", norm, d.Probability, d.ID, want)
					}
					weight := float32(math.Exp(-0.5*math.Log(n*want) - largest))
					if math.Abs(float64(d.Weight-weight)) > 1e-9+6e-8*float64(weight) { // half a float32's last bit
						t.Errorf("%s: weight %v of %d, want %v", norm, d.Weight, d.ID, weight)
					}
				}
			}
		}
	}
}

func TestProbabilitiesWithoutReplacementAreConditionalOnTheDrawsBefore(t *testing.T) {
	for _, c := range []struct {
		sampler     replay.Sampler
		size, fresh int
		want        func(i int) float64 // of the i-th draw; 30 units, of which 12 are used or drawn in this epoch
	}{
		{replay.Distinct, 20, 0, func(i int) float64 { return 1 / float64(30-i) }},
		{replay.Distinct, 20, 6, func(i int) float64 { return 1 / float64(30-i) }},
		{replay.Uniform, 40, 0, func(int) float64 { return 1.0 / 30 }},
		{replay.Unseen, 25, 0, func(i int) float64 { return 1 / float64(18-i+12*(i/18)) }},
		{replay.LeastUsed, 25, 0, func(i int) float64 { return 1 / float64(18-i+12*(i/18)) }},
		{replay.Epoch, 25, 0, func(i int) float64 { return 1 / float64(18-i+12*(i/18)) }},
		{replay.FIFO, 15, 4, func(int) float64 { return 1 }},
	} {
		p := inParts(t, replay.Options{Sampler: c.sampler}, 4, 16, 10)
		if c.sampler == replay.Unseen || c.sampler == replay.LeastUsed || c.sampler == replay.Epoch {
			p.mark(t, p.draw(t, p.totals(), 12, 0, true))
		}
		batches := 20
		if c.sampler == replay.Epoch {
			batches = 1 // a batch given back does not bring back the epoch that it ended
		}
		for range batches {
			b := p.draw(t, p.totals(), c.size, c.fresh, false)
			seen := make(map[rollout.ID]bool)
			for i, d := range b.Draws {
				if want := c.want(i); !d.Fresh && math.Abs(d.Probability-want) > 1e-9 {
					t.Fatalf("%s: draw %d has probability %v, want %v", c.sampler, i, d.Probability, want)
				}
				if c.sampler != replay.Uniform && seen[d.ID] {
					t.Fatalf("%s: %d came twice", c.sampler, d.ID)
				}
				seen[d.ID] = true
				if early := i < 18; c.size == 25 && p.units[d.ID].used == early {
					t.Fatalf("%s: draw %d is used: %v; those that are not come first", c.sampler, i, !early)
				}
			}
		}
	}
}

// With 3,000 batches of 12 a false alarm has probability 1e-4 a sampler. The power stands beside it: the same test
// refuses, each time, batches divided evenly over parts of 10, 20 and 30 units.
func TestUnitsAreDrawnAsOftenAsFromOneTableThatHoldsEverything(t *testing.T) {
	const batches, size = 3000, 12
	for _, c := range []struct {
		name string
		o    replay.Options
		used int // units used, or drawn in the epoch, before
	}{
		{"uniform", replay.Options{Sampler: replay.Uniform}, 0},
		{"distinct", replay.Options{Sampler: replay.Distinct}, 0},
		{"unseen", replay.Options{Sampler: replay.Unseen}, 55},
		{"unseen, enough", replay.Options{Sampler: replay.Unseen}, 30},
		{"least used", replay.Options{Sampler: replay.LeastUsed}, 55},
		{"epoch", replay.Options{Sampler: replay.Epoch}, 40},
		{"stratified", byReward(replay.Stratified, replay.ByBatch), 0},
		{"independent", byReward(replay.Independent, replay.ByBatch), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := inParts(t, c.o, 10, 20, 30)
			if c.used > 0 {
				p.mark(t, p.draw(t, p.totals(), c.used, 0, true))
			}
			expected := p.expected(c.o, size, c.used)
			if x, most := p.deviation(t, p.totals(), batches, size, expected); x > most {
				t.Errorf("chi-square %v, above %v", x, most)
			}
			if c.used > 0 {
				return
			}
			wrong := p.totals()
			for i := range wrong {
				wrong[i].Units, wrong[i].LogMass = 20, 0
			}
			if x, most := p.deviation(t, wrong, batches, size, expected); x <= most {
				t.Errorf("an even plan passes, with chi-square %v not above %v: the test has no power", x, most)
			}
		})
	}
}

// expected returns how often a unit is drawn in a batch on average, and whether a batch repeats it.
func (p *tableInParts) expected(o replay.Options, size, used int) map[rollout.ID]float64 {
	list := make(map[rollout.ID]float64)
	each, total := p.weights(o)
	all, early := float64(len(p.units)), float64(len(p.units)-used)
	for id, u := range p.units {
		switch {
		case o.Sampler == replay.Prioritized:
			list[id] = float64(size) * each[id] / total
		case !u.used:
			list[id] = min(float64(size)/early, 1)
		default:
			list[id] = max(float64(size)-early, 0) / (all - early)
		}
	}
	return list
}

// deviation returns the chi-square statistic of a number of batches, and the value that it passes with probability
// 1e-4. Without replacement the counts of a batch vary less, by the share of the units that it leaves.
func (p *tableInParts) deviation(t *testing.T, totals []parted.Totals, batches, size int, expected map[rollout.ID]float64,
) (x, most float64) {
	t.Helper()
	counts := make(map[rollout.ID]float64)
	for range batches {
		for _, d := range p.draw(t, totals, size, 0, false).Draws {
			counts[d.ID]++
		}
	}
	df := -1.0
	for id, e := range expected {
		if p.rule.Kind != parted.Replaced && p.rule.Kind != parted.ByMass && p.rule.Kind != parted.Stratified && e == 1 ||
			e == 0 {
			if counts[id] != e*float64(batches) {
				t.Fatalf("%d was drawn %v times in %d batches, want %v each time", id, counts[id], batches, e)
			}
			continue
		}
		variance := e * float64(batches)
		if p.rule.Kind < parted.Replaced {
			variance *= 1 - e
		}
		x += (counts[id] - e*float64(batches)) * (counts[id] - e*float64(batches)) / variance
		df++
	}
	// Wilson and Hilferty 1931
	return x, df * math.Pow(1-2/(9*df)+3.719*math.Sqrt(2/(9*df)), 3)
}

// The parts' counts in a batch without replacement are multivariate hypergeometric: 20,000 plans against the exact law.
func TestTheDivisionWithoutReplacementIsHypergeometric(t *testing.T) {
	totals := []parted.Totals{{Units: 6}, {Units: 9}}
	const n, plans = 5, 20_000
	counts := make([]float64, n+1)
	for i := range plans {
		p, err := parted.Divide(rollout.Stream(3, "h", uint64(i)), parted.Rule{Unit: 1}, totals, n, 0)
		must(t, err)
		counts[p.Requests()[0].Size]++
	}
	choose := func(n, k int) float64 {
		x := 1.0
		for i := range k {
			x *= float64(n-i) / float64(i+1)
		}
		return x
	}
	x := 0.0
	for k, c := range counts {
		e := plans * choose(6, k) * choose(9, n-k) / choose(15, n)
		x += (c - e) * (c - e) / e
	}
	if x > 25.74 { // 5 degrees of freedom, 1e-4; a binomial plan would have 1,000
		t.Errorf("chi-square %v of %v", x, counts)
	}
}

func TestAnEpochOverPartsGivesEveryUnitOnceBeforeAnyTwice(t *testing.T) {
	p := inParts(t, replay.Options{Sampler: replay.Epoch}, 20, 35, 45)
	counts := make(map[rollout.ID]int)
	for batch := range 60 { // six epochs of ten batches
		for _, d := range p.draw(t, p.totals(), 10, 0, true).Draws {
			counts[d.ID]++
		}
		if (batch+1)%10 != 0 {
			continue
		}
		for id := range p.units {
			if counts[id] != batch/10+1 {
				t.Fatalf("after %d batches %d was drawn %d times", batch+1, id, counts[id])
			}
		}
	}
	for range 300 { // batches that end within an epoch: nobody is left out of one
		for _, d := range p.draw(t, p.totals(), 7, 0, true).Draws {
			counts[d.ID]++
		}
	}
	for id := range p.units {
		if c := counts[id] - 6; c < 20 || c > 22 {
			t.Errorf("%d was drawn %d times in 21 epochs", id, c)
		}
	}
}

func TestARequestThatCannotBeDividedIsRefusedWithTheReason(t *testing.T) {
	some := []parted.Totals{{Units: 4, Fresh: 2}, {Units: 4}}
	for _, c := range []struct {
		rule        parted.Rule
		totals      []parted.Totals
		size, fresh int
		is          error
	}{
		{parted.Rule{Unit: 1}, some, 9, 0, rollout.ErrStarved},
		{parted.Rule{Unit: 1}, some, 4, 3, rollout.ErrStarved},
		{parted.Rule{Unit: 1, Kind: parted.Replaced}, []parted.Totals{{}, {}}, 1, 0, rollout.ErrStarved},
		{parted.Rule{Unit: 1, Kind: parted.Epoch}, some, 2, 1, rollout.ErrInvalid},
		{parted.Rule{Unit: 1, Kind: parted.UnusedFirst}, some, 2, 1, rollout.ErrInvalid},
		{parted.Rule{Unit: 4}, some, 6, 0, rollout.ErrInvalid},
		{parted.Rule{Unit: 1}, some, 0, 0, rollout.ErrInvalid},
		{parted.Rule{Unit: 1}, some, 2, 3, rollout.ErrInvalid},
	} {
		_, err := parted.Divide(rollout.Stream(1, "", 0), c.rule, c.totals, c.size, c.fresh)
		if !errors.Is(err, c.is) {
			t.Errorf("%+v: %d with %d fresh: %v, want %v", c.rule, c.size, c.fresh, err, c.is)
		}
	}
}

var writeRoutes = flag.Bool("write-routes", false, "write client/testdata/routes.json")

// route is a line of client/testdata/routes.json, which clients in other languages are held to.
type route struct {
	Prompt  string `json:"prompt"`
	BatchID string `json:"batch_id"`
	Group   int    `json:"group"`
	Order   []int  `json:"order"`
}

func TestGroupsGoTheWaysOfTheGoldenFile(t *testing.T) {
	const path = "../../client/testdata/routes.json"
	var want, routes []route
	for i, prompt := range []string{"", "p", "maths/17", "Größe", "p\x00q", "a prompt id that is longer than a block"} {
		for j, parts := range []int{1, 2, 3, 8, 256} {
			batch := fmt.Sprintf("%016x-%d", uint64(i)*0x9e3779b97f4a7c15, j)
			routes = append(routes, route{prompt, batch, i * j, parted.Order(parted.Key(prompt, batch, i*j), parts)})
		}
	}
	if *writeRoutes {
		text, err := json.MarshalIndent(routes, "", " ")
		must(t, err)
		must(t, os.WriteFile(path, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(text, &want))
	if !reflect.DeepEqual(routes, want) {
		t.Errorf("routes differ from %s: groups would enter twice when other clients repeat them", path)
	}
}

func TestRoutesAreEvenAndMoveOnlyWithTheirPart(t *testing.T) {
	const keys, parts = 8000, 8
	counts := make([]float64, parts)
	for i := range keys {
		key := parted.Key("p", "b", i)
		order := parted.Order(key, parts)
		counts[order[0]]++
		with := parted.Order(key, parts+1)
		if without := slices.DeleteFunc(with, func(p int) bool { return p == parts }); !slices.Equal(without, order) {
			t.Fatalf("group %d goes %v, and %v once a part joined", i, order, without)
		}
	}
	x := 0.0
	for _, c := range counts {
		x += (c - keys/parts) * (c - keys/parts) / (keys / parts)
	}
	if x > 29.9 { // 7 degrees of freedom, 1e-4; shares that are off by a tenth give 80
		t.Errorf("chi-square %v: %v", x, counts)
	}
}

func TestIDsNameTheirPart(t *testing.T) {
	for _, part := range []int{0, 1, 255} {
		for _, id := range []uint64{1, 1<<48 - 1} {
			if p, of := parted.Cut(parted.Join(part, id)); p != part || of != id {
				t.Errorf("%d of part %d became %d of %d", id, part, of, p)
			}
		}
	}
	if parted.Join(3, 0) != 0 {
		t.Error("no id became one")
	}
}
