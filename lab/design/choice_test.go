package design

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/internal/words"
)

// held trains a quadratic at a small rate, by updates on a batch drawn without replacement from the newest rollouts.
// Before update k, entering(k) rollouts replace the oldest; the noise of each is its own, and an update leaves q of it.
// It returns the mean square of the weights over rate/2: the noise of an update in the sum of many, which holds
// them there.
func held(batch, capacity int, q float64, entering func(k int) int, rng *rand.Rand) float64 {
	const rate, updates = 0.005, 100_000
	noise, order := make([]float64, capacity), make([]int, capacity)
	for i := range noise {
		noise[i], order[i] = rng.NormFloat64(), i
	}
	weights, squares, counted, oldest := 0.0, 0.0, 0.0, 0
	for k := range updates {
		for range entering(k) {
			noise[oldest] = rng.NormFloat64()
			oldest = (oldest + 1) % capacity
		}
		if q < 1 {
			for i := range noise {
				noise[i] = q*noise[i] + math.Sqrt(1-q*q)*rng.NormFloat64()
			}
		}
		sum := 0.0
		for i := range batch {
			j := i + rng.IntN(capacity-i)
			order[i], order[j] = order[j], order[i]
			sum += noise[order[i]]
		}
		weights -= rate * (weights + sum/float64(batch))
		if float64(k) > 5/rate {
			squares += weights * weights
			counted++
		}
	}
	return squares / counted / (rate / 2)
}

// The standard error of a simulation is sqrt(2/(updates rate)) = 6% of the noise; each is the mean of 16.
func TestTheNoiseThatLastsIsThatOfSimulatedTraining(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	theory := Theory{TrainCost: 0.2, Profile: PowerLaw{}, NoiseScale: 1e-9} // every step is a full one
	for _, c := range []struct {
		u   Use // of a buffer with R = B (W/T) m new rollouts per update
		new func(k int) int
	}{
		{Use{Queue, 12, 1, 5, 1, 12}, func(int) int { return 12 }},
		{Use{Reuse, 12, 3, 5, 3, 12}, func(k int) int {
			if k%3 == 0 {
				return 12
			}
			return 0
		}},
		{Use{Buffer, 12, 1, 5, 2, 24}, func(int) int { return 6 }},
		{Use{Buffer, 12, 1, 5, 4, 36}, func(int) int { return 3 }},
	} {
		for _, theory.Coherence = range []float64{1, 0.6} {
			rng := rand.New(rand.NewPCG(7, uint64(c.u.Capacity)))
			got := 0.0
			for range 16 {
				got += held(c.u.Batch, c.u.Capacity, theory.Coherence, c.new, rng) / 16
			}
			single, want := theory.noise(c.u)
			if math.Abs(got/want-1) > 0.06 {
				t.Errorf("%+v, coherence %v: %.4f lasts, the formula says %.4f", c.u, theory.Coherence, got, want)
			}
			if c.u.Way != Queue && want < 1.5*single {
				t.Errorf("%+v: what lasts, %v, is hardly more than the noise of an update, %v: the test shows nothing", c.u,
					want, single)
			}
		}
	}
}

func TestTheSumOfWhatReturnsIsThatOfItsTerms(t *testing.T) {
	for _, q := range []float64{0, 0.3, 0.9, 0.9999, 1} {
		for _, x := range []float64{1, 1.7, 2, 3.2, 8, 50.7} {
			want := 0.0
			for k := 1.0; k < x; k++ {
				want += (1 - k/x) * math.Pow(q, k)
			}
			if got := returning(q, x); math.Abs(got-want) > 1e-6*(1+want) {
				t.Errorf("q %v, x %v: %v, want %v", q, x, got, want)
			}
		}
	}
}

// With the best rate an update on a quadratic lowers it by the share 1/(1 + S/B): the cost of a queue is (1 + m)(B +
// S).
func TestAnUpdateOfAQueueMakesTheProgressThatItsCostSupposes(t *testing.T) {
	const dims, scale, batch = 50, 30.0, 10
	rng := rand.New(rand.NewPCG(3, 1))
	best := math.Inf(1)
	for rate := 0.15; rate < 0.4; rate += 0.01 { // 1/(1 + S/B) is 0.25
		sum := 0.0
		const times = 4000
		for range times {
			for range dims { // each weight is 1: |G|^2 = dims, and the noise of a rollout is S dims in all
				w := 1 - rate*(1+rng.NormFloat64()*math.Sqrt(scale/batch))
				sum += w * w / dims / times
			}
		}
		best = min(best, sum)
	}
	theory := Theory{TrainCost: 0.2, Profile: PowerLaw{}, NoiseScale: scale, Coherence: 1}
	cost := theory.Cost(Use{Queue, batch, 1, 5, 1, 2 * batch})
	near(t, "the cost", cost, 1.2*(batch+scale), 1e-12)
	near(t, "compute over progress", 1.2*batch/(1-best), cost, 0.03)
}

// The same training at a rate that is not the best: the formula of Progress is that of the simulation, also where the
// loss rises.
func TestProgressAtARateIsThatOfSimulatedTraining(t *testing.T) {
	const scale, batch, best = 30.0, 10, 0.25
	k := scaled(scale)
	k.GiveProfile(PowerLaw{}, "")
	use := Use{Queue, batch, 1, 5, 1, 2 * batch}
	rng := rand.New(rand.NewPCG(5, 2))
	progress := func(rate float64) (sum float64) {
		const times = 400_000
		for range times {
			w := 1 - rate*(1+rng.NormFloat64()*math.Sqrt(scale/batch))
			sum += (1 - w*w) / times
		}
		return sum
	}
	at := progress(best)
	for _, by := range []float64{0.5, 1.5, 2.5} {
		near(t, fmt.Sprintf("progress at %g times the rate", by), progress(by*best)/at, k.Progress(use, by, use, 1), 0.05)
	}
	other := Use{Reuse, 4 * batch, 3, 5, 3, 80}
	_, summed := k.Theory().noise(other)
	rate := math.Sqrt(1+scale/(4*batch)) / (1 + scale*summed) * math.Sqrt(1+scale/batch)
	near(t, "progress of another use at its best rate", k.Progress(other, rate, use, 1),
		k.Theory().Cost(use)/k.Theory().Cost(other), 1e-12)
}

// What was measured is how alike noise is after an update of the run: with another noise scale the step of that update
// is another part of a full one, and the coherence follows.
func TestAMeasuredCoherenceKeepsWhatWasMeasured(t *testing.T) {
	k := scaled(2000)
	k.Batch, k.Origins.NoiseScale = 500, Measured
	k.MeasureCoherence(0.4)
	after := func(x Theory) float64 { return math.Pow(x.Coherence, x.step(k.Batch)) }
	q := after(k.Theory())
	var seen []float64
	for _, x := range k.possible() {
		seen = append(seen, math.Log(after(x))/math.Log(q))
	}
	slices.Sort(seen)
	for i, want := range []float64{0.5, 0.5, 0.5, 1, 1, 1, 2, 2, 2} {
		near(t, "the logarithm of what an update leaves, over that measured", seen[i], want, 1e-9)
	}
}

func TestReuseOfABatchPaysWhereTheBatchIsLarge(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Profile: PowerLaw{}, NoiseScale: 1900, Coherence: 1}
	cost := func(batch, i int) float64 { return theory.Cost(Use{Reuse, batch, i, 5, 3, 2 * batch}) }
	for batch, best := range map[int]int{100: 1, 1900: 2, 3840: 3, 20000: 7} { // sqrt(B/(m S)) is 0.5, 2.3, 3.3, 7.5
		for i := 1; i <= 8; i++ {
			if cost(batch, i) < cost(batch, best)*(1-1e-12) {
				t.Errorf("a batch of %d is cheaper with %d updates than with %d", batch, i, best)
			}
		}
	}
	theory.Coherence = 0.2
	if cost(1900, 3) >= cost(1900, 2) || cost(100, 2) <= cost(100, 1) {
		t.Error("noise fades over the large steps of large batches, and hardly over those of small ones: " +
			"it should pay sooner")
	}
}

// scaled returns given parameters with a noise scale.
func scaled(scale float64) Known {
	k := given(5.28, 0.1, PowerLaw{Exponent: 0.2})
	k.GiveNoiseScale(scale)
	return k
}

func TestNothingThatCostsLessStandsBesideARecommendation(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 2))
	chosen := map[Way]int{}
	for range 300 {
		k := given(math.Exp(rng.Float64()*4-1), rng.Float64(), PowerLaw{Exponent: rng.Float64() / 2})
		k.GiveNoiseScale(math.Exp(rng.Float64()*9 + 1))
		k.GiveCoherence(rng.Float64())
		f := Fleet{GPUs: 2 + rng.IntN(30), Batch: 8 << rng.IntN(10), Group: 8, MostCapacity: 1 << 20}
		f.FreeBatch = rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			f.Source = &Source{Use: Use{Buffer, f.Batch, 1, f.GPUs - 1, 1, 4 * f.Batch}}
		}
		r := recommended(t, k, f)
		if r.Best == nil {
			t.Fatalf("%+v, %+v: no choice", k, f)
		}
		chosen[r.Best.Way]++
		for _, p := range r.Ways {
			if p.Cost < r.Best.Cost*(1-1e-9) && (!r.Keep || p.Most < keepAbove) {
				t.Errorf("%+v is chosen at %v, beside %+v at %v", r.Best.Use, r.Best.Cost, p.Use, p.Cost)
			}
			if p.Batch > f.Batch || p.Batch%p.Trainers != 0 || p.Workers+p.Trainers > f.GPUs ||
				!f.FreeBatch && p.Batch != f.Batch {
				t.Errorf("%+v does not run on %s", p.Use, f)
			}
		}
		if r.Run != nil && !r.Keep && (r.Best.Most > keepAbove || r.Best.Cost > r.Run.Cost*keepAbove) {
			t.Errorf("%+v at %v replaces a run at %v", r.Best.Use, r.Best.Cost, r.Run.Cost)
		}
	}
	if chosen[Queue] < 10 || chosen[Reuse] < 10 {
		t.Errorf("the random theories are lopsided: %v", chosen)
	}
}

func TestTheBatchIsTheLargestThatCostsHardlyMore(t *testing.T) {
	f := Fleet{GPUs: 8, Batch: 3840, Group: 8, MostCapacity: 1 << 20, FreeBatch: true}
	for scale, batch := range map[float64]int{300: 80, 1900: 480, 8000: 1920, 1e6: 3840} { // about a quarter of the scale
		r := recommended(t, scaled(scale), f)
		if r.Best.Way != Queue || r.Best.Batch != batch {
			t.Errorf("noise scale %v: %+v, want batches of %d", scale, r.Best.Use, batch)
		}
	}
	f.FreeBatch = false
	if u := recommended(t, scaled(1900), f).Best; u.Way != Reuse && u.Way != Buffer || u.Batch != 3840 {
		t.Errorf("batches of 3840 are given: %+v", u)
	}
}

func TestManyGPUsShareWholeGroupsOfAPartOfTheBatch(t *testing.T) {
	for _, gpus := range []int{25, 44, 97, 1000} {
		f := Fleet{GPUs: gpus, Batch: 3840, Group: 8, MostCapacity: 1 << 20, FreeBatch: true}
		r := recommended(t, scaled(4000), f)
		u := r.Best.Use
		if len(r.Ways) != 3 || u.Way != Queue || u.Batch > 1920 || u.Batch%(8*u.Trainers) != 0 {
			t.Errorf("%d GPUs: %+v", gpus, r.Ways)
		}
	}
}

func TestARunOfWhichTheTheoryKnowsLittleKeepsAllButItsBatch(t *testing.T) {
	source := &Source{Use: Use{Buffer, 3840, 1, 5, 3, 7680}, OnlyBatch: "it keeps right answers"}
	f := Fleet{GPUs: 8, Batch: 3840, Group: 8, MostCapacity: 1 << 20, FreeBatch: true, Source: source}
	r := recommended(t, scaled(500), f)
	want := source.Use
	want.Batch = r.Best.Batch
	if len(r.Ways) != 1 || r.Best.Use != want || r.Keep || want.Batch >= 3840 ||
		!slices.ContainsFunc(r.Caveats(), func(s string) bool { return strings.Contains(s, "Only the batch was chosen") }) {
		t.Errorf("%+v, kept %v, %q", r.Ways, r.Keep, r.Caveats())
	}
	if r = recommended(t, scaled(1e5), f); !r.Keep || r.Best.Use != source.Use || r.Command != "" {
		t.Errorf("a tenth is not saved, and it advises %+v", r.Best)
	}
}

func TestWhatIsNotReliableIsSaidFirstAndRecommendsNothing(t *testing.T) {
	fleet := Fleet{GPUs: 8, Batch: 3840, Group: 8, MostCapacity: 1 << 20}
	for name, c := range map[string]struct {
		change func(*Known, *Fleet)
		want   string
	}{
		"no scale": {func(k *Known, _ *Fleet) { k.NoiseScale = 0 }, "nobody measured the noise scale"},
		"a gradient that is not told from 0": {func(k *Known, _ *Fleet) {
			k.NoiseScale, k.Doubts.Scale = 0, []string{"the noise scale could not be measured"}
		}, "could not be measured: measure several seeds"},
		"correlation assumed": {func(k *Known, _ *Fleet) { k.Origins.Correlation = Assumed },
			"correlation of rollouts in a table is not told from 0"},
		"correlation in doubt": {func(k *Known, _ *Fleet) { k.Doubts.Correlation = []string{"The correlation may be 0."} },
			"not told from 0"},
		"coherence assumed": {func(k *Known, _ *Fleet) {
			k.GiveNoiseScale(5200)
			k.Coherence, k.Origins.Coherence = 0.7, Assumed
		},
			"depends on the coherence"},
		"noise assumed": {func(k *Known, _ *Fleet) { k.Origins.Noise = Assumed }, "nobody measured how noise grows"},
		"a short measurement": {func(k *Known, _ *Fleet) { k.Noise = []Noise{{Staleness: 0.5, Variance: 1}} },
			"measured up to staleness 0.5"},
		"updates at the edge": {func(k *Known, f *Fleet) {
			k.GiveNoiseScale(100)
			k.GiveProfile(PowerLaw{}, "")
			f.GPUs, f.Batch = 2, 3841
		}, "at the edge of those tried, 8"},
		"the smallest batch": {func(k *Known, f *Fleet) { k.GiveNoiseScale(5); f.FreeBatch = true }, "at the edge of what can"},
	} {
		k, f := scaled(1900), fleet
		k.GiveCoherence(1)
		c.change(&k, &f)
		r := recommended(t, k, f)
		d := r.Document()
		first, _, _ := strings.Cut(r.Text(), "\n\n")
		if !strings.HasPrefix(first, "not reliable: ") || !strings.Contains(strings.ReplaceAll(first, "\n", " "), c.want) ||
			d.Reliable || d.Recommended != nil || len(d.Reasons) == 0 {
			t.Errorf("%s: %q, %+v; want %q", name, first, d.Recommended, c.want)
		}
	}
	known := scaled(1900)
	known.GiveCoherence(1)
	r := recommended(t, known, fleet)
	if d := r.Document(); !d.Reliable || d.Recommended == nil || len(d.Reasons) != 0 ||
		!strings.HasPrefix(r.Text(), "recommended: make 3 updates on each batch of 3840\n") {
		t.Errorf("what is known well gives %q", r.Text())
	}
	for line := range strings.Lines(r.Text()) {
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > words.Columns {
			t.Errorf("a line is longer than %d: %q", words.Columns, line)
		}
	}
}

// A queue draws nothing twice: how the noise of old rollouts grows and is shared says nothing of it.
func TestTheAdviceToUseRolloutsOnceNeedsNoCorrelation(t *testing.T) {
	k := scaled(1900)
	k.Origins.Correlation, k.Origins.Noise = Assumed, Assumed
	f := Fleet{GPUs: 8, Batch: 3840, Group: 8, MostCapacity: 1 << 20, FreeBatch: true}
	if r := recommended(t, k, f); len(r.Unreliable) > 0 || r.Best.Way != Queue {
		t.Errorf("%+v: %q", r.Best, r.Unreliable)
	}
}

func TestTheRateFollowsTheNoiseOfAnUpdate(t *testing.T) {
	theory := Theory{TrainCost: 1 / 5.28, Profile: PowerLaw{}, NoiseScale: 1e6, Coherence: 1}
	large, small := Use{Queue, 3840, 1, 5, 1, 7680}, Use{Queue, 960, 1, 5, 1, 1920}
	near(t, "with a quarter of the batch", theory.Rate(small, large), 0.5, 1e-12)
	reuse := Use{Reuse, 3840, 3, 5, 3, 7680}
	near(t, "with three updates on it", theory.Rate(reuse, large), 1./3, 3e-3)
	theory.Profile = table(t, 1, 2)
	if r := theory.prolonged().Rate(Use{Reuse, 3840, 3, 5, 3, 7680}, large); !(r < 0.3) {
		t.Errorf("noise that grows does not lower it: %v", r)
	}
	near(t, "back from three updates", theory.prolonged().Rate(large, reuse), 1, 1e-12)
}

// Nothing is known of noise beyond a profile. That it stays there makes a run the cheapest that it can be, so that a
// recommendation to leave it stands on safe ground.
func TestARunBeyondTheProfileIsPricedAtTheLeast(t *testing.T) {
	k := scaled(1900)
	k.GiveProfile(table(t, 1, 1.5), "")
	f := Fleet{GPUs: 8, Batch: 3840, Group: 8, MostCapacity: 1 << 20, FreeBatch: true,
		Source: &Source{Use: Use{Buffer, 3840, 1, 5, 3, 7680}}}
	short := recommended(t, k, f)
	k.GiveProfile(table(t, 1, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5), "")
	if long := recommended(t, k, f); short.Best.Way != Queue || long.Run.Cost != short.Run.Cost {
		t.Errorf("%+v at %v; with the noise known, at %v", short.Best, short.Run.Cost, long.Run.Cost)
	}
}

// A scale that was measured may be off by a factor, and nobody measured the coherence: a run is left for what costs
// less whatever they are.
func TestARunIsLeftOnlyForWhatCostsLessWhateverIsNotKnown(t *testing.T) {
	f := Fleet{GPUs: 8, Batch: 1920, Group: 8, MostCapacity: 1 << 20, FreeBatch: true,
		Source: &Source{Use: Use{Buffer, 1920, 1, 5, 3, 7680}}}
	k := scaled(1000)
	k.GiveProfile(PowerLaw{}, "")
	k.GiveCorrelation(0)
	r := recommended(t, k, f) // assumed coherence
	least := r.Run.Cost
	queue := r.Ways[slices.IndexFunc(r.Ways, func(p Priced) bool { return p.Way == Queue })]
	over := func(coherence float64) float64 {
		k.Coherence = coherence
		return k.Theory().Cost(queue.Use) / k.Theory().Cost(f.Source.Use)
	}
	near(t, "the most that the queue may cost", queue.Most, over(minCoherence), 1e-12)
	near(t, "the least", queue.Least, over(maxCoherence), 1e-12)
	near(t, "what it costs", queue.Relative, queue.Cost/least, 1e-12)
	if relative, least, most := scaled(1700).Relative(queue.Use, queue.Use); relative != 1 || least != 1 || most != 1 {
		t.Errorf("what costs the same costs %v (%v to %v)", relative, least, most)
	}
	if !r.Keep || queue.Relative > keepAbove || queue.Most < keepAbove {
		t.Errorf("%+v is chosen, the queue costs %+v", r.Best, queue)
	}
	k.GiveCoherence(1)
	if r = recommended(t, k, f); r.Keep || r.Best.Way != Queue || r.Best.Most != r.Best.Relative {
		t.Errorf("with all given it chooses %+v, kept %v", r.Best, r.Keep)
	}
	k.Origins.NoiseScale = Measured
	if r = recommended(t, k, f); r.Best.Most <= r.Best.Relative || r.Best.Least >= r.Best.Relative {
		t.Errorf("a measured scale has no range: %+v", r.Best)
	}
}

func TestAVersionOfASmallerBatchIsYounger(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Profile: PowerLaw{Exponent: 0.2}, NoiseScale: 1e9, Coherence: 1, Batch: 1000}
	u := Use{Buffer, 1000, 1, 5, 1, 10_000}
	if got := theory.age(u.Batch, 10); got != 10 {
		t.Errorf("at the batch of the measurement: %v", got)
	}
	u.Batch = 250
	near(t, "a horizon of 10 versions at a quarter of the batch", theory.age(u.Batch, 10), 2.5, 1e-5)
}

func TestTheSplitOfAQueueStallsLeast(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 4))
	for range 500 {
		gpus, batch, mu := 2+rng.IntN(20), 1+rng.IntN(60), math.Exp(rng.Float64()*6-3)
		s, least := LeastIdle(gpus, batch, mu), math.Inf(1)
		for trainers := 1; trainers < gpus; trainers++ {
			for w := 1; w+trainers <= gpus && batch%trainers == 0; w++ {
				least = min(least, idleShare(float64(w), float64(trainers), mu))
			}
		}
		if got := idleShare(float64(s.Workers), float64(s.Trainers), mu); got > least+1e-9 || batch%s.Trainers != 0 {
			t.Errorf("%d GPUs, a batch of %d, mu %v: %+v idles %v, the least is %v", gpus, batch, mu, s, got, least)
		}
	}
}
