package noise

import (
	"math"
	"math/bits"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout"
)

// scatter is gradients whose statistics are known: a true gradient, noise of its own for each rollout that grows with
// age, noise that a group shares, and what all held rollouts have in common.
type scatter struct {
	dims, fresh, group, held, ages int
	own, shared                    float64         // standard deviations in each dimension
	growth                         float64         // of the variance with each version
	common                         float64         // squared length of what held rollouts have in common
	sizes                          func(g int) int // of the groups of fresh rollouts; nil: group
}

// drawn is gradients, with the draws that they are of.
type drawn struct {
	draws     []rollout.Draw
	gradients [][]float32
	fresh     int
}

func (s scatter) draw(seed, index uint64) drawn {
	rng := rollout.Stream(seed, "test/scatter", index)
	var d drawn
	add := func(group uint64, age int, offset []float64, std float64) {
		g := make([]float32, s.dims)
		for i := range g {
			g[i] = float32(offset[i] + rng.NormFloat64()*std)
		}
		d.draws = append(d.draws, rollout.Draw{Group: group, Staleness: int32(age)})
		d.gradients = append(d.gradients, g)
	}
	truth := func() []float64 {
		v := make([]float64, s.dims)
		for i := range v {
			v[i] = 0.7
		}
		return v
	}
	for g := 0; d.fresh < s.fresh; g++ {
		offset := truth()
		for i := range offset {
			offset[i] += rng.NormFloat64() * s.shared
		}
		size := s.group
		if s.sizes != nil {
			size = s.sizes(g)
		}
		for range size {
			add(uint64(g), 0, offset, s.own)
			d.fresh++
		}
	}
	offset := truth()
	offset[0] += math.Sqrt(s.common)
	for i := range s.held {
		age := 1 + i%s.ages
		add(uint64(1000+i), age, offset, s.own*math.Sqrt(1+s.growth*float64(age)))
	}
	return d
}

func (d drawn) meter(t testing.TB) (*Meter, *results.Noise) {
	t.Helper()
	m, n := NewMeter(d.fresh), &results.Noise{Held: len(d.draws) - d.fresh, Fresh: d.fresh}
	for i, g := range d.gradients {
		if err := m.Add(d.draws[i], g); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Fill(n); err != nil {
		t.Fatal(err)
	}
	return m, n
}

// centred demands that the mean of estimates lies within four standard errors of the truth, and that the power to see
// an error is there.
func centred(t *testing.T, what string, estimates []float64, want, power float64) {
	t.Helper()
	var sum, squares float64
	for _, e := range estimates {
		sum += e
		squares += e * e
	}
	n := float64(len(estimates))
	mean := sum / n
	se := math.Sqrt((squares/n - mean*mean) / (n - 1))
	if math.Abs(mean-want) > 4*se {
		t.Errorf("%s: the mean of %d estimates is %v ± %v, the truth %v", what, len(estimates), mean, se, want)
	}
	if 4*se > power {
		t.Errorf("%s: an error of %v would go unseen (standard error %v)", what, power, se)
	}
}

// The mean of many small measurements is the truth: neither the fresh rollouts' own noise, nor what their groups share,
// nor their small number shifts it.
func TestEstimatesOfNoiseAreUnbiased(t *testing.T) {
	tests.Long(t)
	for name, s := range map[string]scatter{
		"independent":          {dims: 6, fresh: 24, group: 4, held: 40, ages: 4, own: 1},
		"shared within groups": {dims: 6, fresh: 24, group: 4, held: 40, ages: 4, own: 1, shared: 0.8},
		"common to the table":  {dims: 6, fresh: 24, group: 4, held: 40, ages: 4, own: 1, common: 2, growth: 0.5},
		"unequal groups": {dims: 6, fresh: 40, held: 40, ages: 4, own: 1, shared: 0.6,
			sizes: func(g int) int { return 1 + g%3 }},
	} {
		t.Run(name, func(t *testing.T) {
			var fresh, stale, u, v4, v16, signal []float64
			for i := range 4000 {
				m, n := s.draw(1, uint64(i)).meter(t)
				square := m.held.centre.square() - m.held.centre.variance
				want := results.Number{}
				if signal = append(signal, square); square > 0 {
					want = results.Num(float64(n.Fresh) * m.held.centre.variance / square)
				}
				if n.Scale != want {
					t.Fatalf("noise scale %v, want %v", n.Scale, want)
				}
				b := n.MicroBatches
				fresh, stale = append(fresh, n.ByStaleness[0].Variance), append(stale, n.ByStaleness[1].Variance)
				if len(b) == 5 {
					v4, v16 = append(v4, b[2].Dealt), append(v16, b[4].Dealt)
				}
				u = append(u, n.Mean.Float()*n.Common.Float())
			}
			d := float64(s.dims)
			one := d*s.own*s.own*(1+2.5*s.growth) + s.common // ages 1 to 4, as many of each
			centred(t, "noise of fresh rollouts", fresh, d*(s.own*s.own+s.shared*s.shared), 0.4)
			centred(t, "signal", signal, d*0.7*0.7, 0.2)
			centred(t, "noise of held rollouts", stale, one, 0.2)
			centred(t, "what held rollouts have in common", u, s.common, 0.1)
			if len(v16) == len(u) { // else those that came out too small are missing
				centred(t, "mean of 4 draws", v4, (one-s.common)/4+s.common, 0.15)
				centred(t, "mean of 16 draws", v16, (one-s.common)/16+s.common, 0.1)
			}
		})
	}
}

// v(b) is the mean over all ways to choose b of the rollouts, which are counted out here.
func TestTheVarianceOfMicroBatchesIsTheMeanOverAllDeals(t *testing.T) {
	s := scatter{dims: 3, fresh: 20, group: 4, held: 16, ages: 2, own: 1, common: 30}
	d := s.draw(2, 0)
	m, n := d.meter(t)
	held := d.gradients[d.fresh:]
	sums, counts := make([]float64, 17), make([]float64, 17)
	for set := range 1 << 16 {
		b := bits.OnesCount(uint(set))
		if b&(b-1) != 0 || b == 0 {
			continue
		}
		square := 0.0
		for i := range s.dims {
			mean := 0.0
			for j, g := range held {
				if set>>j&1 == 1 {
					mean += float64(g[i]) / float64(b)
				}
			}
			square += (mean - m.held.centre.mean[i]) * (mean - m.held.centre.mean[i])
		}
		sums[b] += square
		counts[b]++
	}
	if len(n.MicroBatches) != 5 {
		t.Fatalf("micro-batches %+v", n.MicroBatches)
	}
	for _, b := range n.MicroBatches {
		if want := sums[b.Draws]/counts[b.Draws] - m.held.centre.variance; math.Abs(b.Variance-want) > 1e-9*want {
			t.Errorf("b = %d: v is %v, over all deals it is %v", b.Draws, b.Variance, want)
		}
		if line := n.Mean.Float() * (1/float64(b.Draws) + n.Common.Float()); math.Abs(b.Variance-line) > 1e-9*line {
			t.Errorf("b = %d: v is %v, Mean (1/b + c) is %v", b.Draws, b.Variance, line)
		}
		if b.Batches != 16/b.Draws {
			t.Errorf("b = %d: %d micro-batches of 16 rollouts", b.Draws, b.Batches)
		}
	}
	if whole := n.MicroBatches[4]; math.Abs(whole.Dealt-whole.Variance) > 1e-9 ||
		math.Abs(n.MicroBatches[0].Dealt-n.MicroBatches[0].Variance) > 1e-9 {
		t.Errorf("one way to deal 16 out by 1 and by 16, and it gives %+v", n.MicroBatches)
	}
}

// The standard error told beside c is that of c over repetitions, where gradients scatter alike.
func TestTheErrorOfTheCommonPartIsItsSpread(t *testing.T) {
	tests.Long(t)
	s := scatter{dims: 40, fresh: 256, group: 8, held: 256, ages: 4, own: 1, shared: 0.3}
	var told, sum, squares float64
	const times = 600
	for i := range times {
		_, n := s.draw(3, uint64(i)).meter(t)
		c := n.Common.Float()
		told += n.CommonError.Float() / times
		sum += c / times
		squares += c * c / times
	}
	if spread := math.Sqrt(squares - sum*sum); math.Abs(told/spread-1) > 0.15 { // five standard errors of the spread
		t.Errorf("the standard error is told as %v, c spreads by %v", told, spread)
	}
}

// Groups whose rewards are all alike have no gradient at all: their rollouts are no independent evidence of how
// gradients scatter, neither among the fresh ones nor in a table, from which they come in any order.
func TestTheErrorOfNoiseIsItsSpreadWhereGroupsAreAllOrNothing(t *testing.T) {
	tests.Long(t)
	const times, groups, size, dims = 600, 40, 8, 5
	var told, sum, squares [2]float64
	for i := range times {
		rng := rollout.Stream(4, "test/groups", uint64(i))
		m, n := NewMeter(groups*size), new(results.Noise)
		add := func(group, age int, zero bool) {
			g := make([]float32, dims)
			for j := range g {
				if x := float32(rng.NormFloat64()); !zero {
					g[j] = x
				}
			}
			if err := m.Add(rollout.Draw{Group: uint64(group), Staleness: int32(age)}, g); err != nil {
				t.Fatal(err)
			}
		}
		var zero [2 * groups]bool
		for g := range zero {
			zero[g] = rng.IntN(2) == 0
		}
		for j := range groups * size {
			add(j/size, 0, zero[j/size])
		}
		for _, j := range rng.Perm(groups * size) {
			add(groups+j/size, 1, zero[groups+j/size])
		}
		if err := m.Fill(n); err != nil {
			t.Fatal(err)
		}
		for k, s := range n.ByStaleness {
			told[k] += s.Error.Float() / times
			sum[k] += s.Variance / times
			squares[k] += s.Variance * s.Variance / times
		}
	}
	for k := range told {
		// five standard errors of the spread
		if spread := math.Sqrt(squares[k] - sum[k]*sum[k]); math.Abs(told[k]/spread-1) > 0.15 {
			t.Errorf("staleness %d: the standard error is told as %v, the variance spreads by %v", k, told[k], spread)
		}
	}
}

func TestNoiseFallsIfItDoesByMoreThanChance(t *testing.T) {
	fresh := results.StaleNoise{Variance: 10, Error: results.Num(0.3)}
	// 2 sqrt(0.3^2 + 0.4^2) is 1
	for variance, want := range map[float64]bool{8.9: true, 9.1: false, 10: false, 20: false} {
		if got := falls(fresh, results.StaleNoise{Variance: variance, Error: results.Num(0.4)}); got != want {
			t.Errorf("from 10 ± 0.3 to %v ± 0.4 it falls: %v, want %v", variance, got, want)
		}
	}
	if falls(fresh, results.StaleNoise{Variance: 1}) {
		t.Error("without an error of the old ones it falls")
	}
}

// Rollouts without a gradient, as those of a run that has learned all there is, are no evidence of a correlation.
func TestATableWhoseGradientsAreAlikeTellsNoCorrelation(t *testing.T) {
	d := scatter{dims: 4, fresh: 20, group: 4, held: 40, ages: 2, own: 1}.draw(5, 0)
	for _, g := range d.gradients[d.fresh:] {
		clear(g)
	}
	_, n := d.meter(t)
	if n.Common.Known() || n.Mean.Known() || n.MicroBatches != nil || !strings.Contains(strings.Join(n.Warnings, " "),
		"all 40 rollouts of the table are alike") {
		t.Errorf("measured %+v", n)
	}
}

func TestStalenessIsTakenTogetherUntilEnoughRolloutsStandBehindIt(t *testing.T) {
	for name, c := range map[string]struct {
		counts []int // by age from 0
		want   [][3]int
	}{
		"each by itself":        {[]int{256, 300, 257}, [][3]int{{0, 0, 256}, {1, 1, 300}, {2, 2, 257}}},
		"neighbours":            {[]int{0, 100, 100, 100, 200, 0, 100}, [][3]int{{1, 3, 300}, {4, 6, 300}}},
		"the rest to the last":  {[]int{0, 256, 256, 40}, [][3]int{{1, 1, 256}, {2, 3, 296}}},
		"few in all":            {[]int{0, 5, 0, 6}, [][3]int{{1, 3, 11}}},
		"none":                  {nil, nil},
		"a gap, then very many": {[]int{0, 1, 0, 0, 0, 999}, [][3]int{{1, 5, 1000}}},
	} {
		m := NewMeter(2)
		add := func(d rollout.Draw, x float32) {
			if err := m.Add(d, []float32{x}); err != nil {
				t.Fatal(err)
			}
		}
		add(rollout.Draw{Group: 1}, 1)
		add(rollout.Draw{Group: 2}, -1)
		weighted := 0
		for age, n := range c.counts {
			for i := range n {
				add(rollout.Draw{Staleness: int32(age)}, float32(age)*float32(1-2*(i%2))+10)
			}
			weighted += age * n
		}
		list := m.held.byStaleness(results.StaleNoise{Rollouts: 2})[1:]
		if len(list) != len(c.want) {
			t.Fatalf("%s: %+v", name, list)
		}
		ages := 0.0
		for i, s := range list {
			if [3]int{s.First, s.Last, s.Rollouts} != c.want[i] {
				t.Errorf("%s: ages %d to %d with %d rollouts, want %v", name, s.First, s.Last, s.Rollouts, c.want[i])
			}
			ages += s.Age * float64(s.Rollouts)
		}
		if math.Abs(ages-float64(weighted)) > 1e-6 {
			t.Errorf("%s: mean ages add up to %v, want %d", name, ages, weighted)
		}
	}
}

func TestAMeterRefusesWhatTellsNothing(t *testing.T) {
	refused := func(want string, gradients map[uint64]float32, fresh int) {
		t.Helper()
		m := NewMeter(fresh)
		var err error
		for group, x := range gradients {
			if err == nil {
				err = m.Add(rollout.Draw{Group: group}, []float32{x})
			}
		}
		if err == nil {
			err = m.Fill(new(results.Noise))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v of %d fresh: error %v, want one with %q", gradients, fresh, err, want)
		}
	}
	refused("are all alike", map[uint64]float32{1: 0, 2: 0}, 2)
	refused("one group", map[uint64]float32{1: 3}, 1)
	refused("missing", map[uint64]float32{1: 3, 2: 4}, 3)
}

func TestTheErrorOfAMeanOfGroupsIsThatOfARatio(t *testing.T) {
	c, more := make(groupedValues), make(groupedValues)
	c.add(1, 1)
	c.add(2, 5)
	more.add(1, 3)
	c.join(more)
	// Sums 4 and 5 of 2 and 1 values lie 2 below and above what the mean, 3, makes of them: sqrt(2/1 (4 + 4))/3.
	if mean, e := c.mean(); mean != 3 || math.Abs(e-4.0/3) > 1e-15 {
		t.Errorf("the mean is %v ± %v, want 3 ± 4/3", mean, e)
	}
	if mean, e := more.mean(); mean != 3 || !math.IsNaN(e) {
		t.Errorf("of one group the mean is %v ± %v, want 3 and no error", mean, e)
	}
}
