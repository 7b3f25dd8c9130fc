package study

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
)

// trained changes the behaviour of the arms with replay.
func trained(change func(*behaviour)) world {
	return func(a Arm, _ uint64) behaviour {
		b := usual()
		if replays(a) {
			change(&b)
		}
		return b
	}
}

// notTrained changes the behaviour of the arms without replay.
func notTrained(change func(*behaviour)) world {
	return func(a Arm, _ uint64) behaviour {
		b := usual()
		if !replays(a) {
			change(&b)
		}
		return b
	}
}

// following makes a quantity rise with a level of the arm, fall with it, or do one of the two by seed.
func following(level func(Arm) float64, set func(b *behaviour, v float64)) [3]world {
	make := func(sense func(seed uint64) float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			set(&b, sense(seed)*level(a))
			return b
		}
	}
	return [3]world{make(func(uint64) float64 { return 1 }), make(func(uint64) float64 { return -1 }),
		make(alternating)}
}

// rougher is worlds in which some arms waver while the others do not, waver more, and waver as much by the seed.
func rougher(in func(Arm) bool) [3]world {
	make := func(others func(seed uint64) float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			b.level = 0.5
			b.rough = others(seed)
			if in(a) {
				b.rough = 0.1
			}
			return b
		}
	}
	return [3]world{make(func(uint64) float64 { return 0 }), make(func(uint64) float64 { return 0.2 }),
		make(func(seed uint64) float64 { return 0.1 * math.Sqrt(1+alternating(seed)) })}
}

// with changes the behaviour of all arms of worlds.
func with(w [3]world, change func(*behaviour)) [3]world {
	for i, of := range w {
		w[i] = func(a Arm, seed uint64) behaviour {
			b := of(a, seed)
			change(&b)
			return b
		}
	}
	return w
}

// falling is worlds in which accuracy falls over the last quarter, crashing those in which nothing is left.
func falling(w [3]world) [3]world  { return with(w, func(b *behaviour) { b.drop = 0.15 }) }
func crashing(w [3]world) [3]world { return with(w, func(b *behaviour) { b.drop = 0.4 }) }

func logCapacity(a Arm) float64   { return math.Log2(float64(a.Config.Replay.Capacity) / labBatch) } // 0 to 3
func trainersShare(a Arm) float64 { return float64(a.Config.Pipeline.Trainers) }
func delay(a Arm) float64         { return math.Log2(float64(a.Config.Pipeline.PublishEvery)) }
func rate(a Arm) float64          { return a.Config.Learner.LearningRate / labRate }

func ifReplay(a Arm) float64 {
	if replays(a) {
		return 1
	}
	return 0
}

// where restricts a level to some arms.
func where(level func(Arm) float64, in func(Arm) bool) func(Arm) float64 {
	return func(a Arm) float64 {
		if in(a) {
			return level(a)
		}
		return 0
	}
}

func one(Arm) float64 { return 1 }

func named(part string) func(Arm) bool {
	return func(a Arm) bool { return strings.Contains(a.Name, part) }
}

// drawn is 1 for an arm with a sampler.
func drawn(a Arm, sampler string) float64 {
	return where(one, func(a Arm) bool { return string(a.Config.Replay.Sampler) == sampler })(a)
}

func split44(a Arm) bool { return a.Config.Pipeline.Trainers == 4 }

func levelBy(b *behaviour, v float64)    { b.level += 0.02 * v }
func speed(b *behaviour, v float64)      { b.speed *= math.Exp(0.3 * v) }
func clockBy(b *behaviour, v float64)    { b.clock = math.Exp(0.2 * v) }
func stallBy(b *behaviour, v float64)    { b.stalled = 0.3 + 0.03*v }
func staleBy(b *behaviour, v float64)    { b.staleness = uint64(20 + v) }
func sinceBy(b *behaviour, v float64)    { b.since = uint64(20 + v) }
func passGainBy(b *behaviour, v float64) { b.passGain = 0.05 + 0.02*v }
func usesBy(b *behaviour, v float64)     { b.uses = 3 + 0.2*v }
func opposite(w [3]world) [3]world       { return [3]world{w[1], w[0], w[2]} }

// verdicts are three worlds for a finding: one in which it holds, one in which it does not, and one in which the seeds
// are at odds.
type verdicts struct {
	study   Study
	finding int
	worlds  [3]world
}

// quicker is worlds in which runs with replay learn several times as fast, hardly faster, and the one or the other by
// the seed.
func quicker(by float64) [3]world {
	return [3]world{
		trained(func(b *behaviour) { b.speed *= by }), trained(func(b *behaviour) { b.speed *= 1.2 }),
		following(ifReplay, func(b *behaviour, v float64) { b.speed *= math.Pow(by, v) })[2],
	}
}

func TestEveryClaimIsDecidedRightly(t *testing.T) {
	cases := []verdicts{
		{savings(), 0, following(ifReplay, func(b *behaviour, v float64) { b.speed *= math.Exp(v) })},
		{savings(), 1, following(func(a Arm) float64 { // beside unseen, whatever that does
			return where(one, named("replay, uniform"))(a) - 3*drawn(a, unseen)
		}, func(b *behaviour, v float64) { b.speed *= math.Exp(0.5 * v) })},
		{savings(), 2, quicker(3)},
		{savings(), 3, quicker(6)},
		{savings(), 4, following(ifReplay, speed)},
		{savings(), 5, rougher(func(a Arm) bool { return !replays(a) })},

		{bufferSize(), 0, opposite(following(logCapacity, speed))},
		{bufferSize(), 1, rougher(func(a Arm) bool { return a.Config.Replay.Capacity != widest })},
		{bufferSize(), 2, falling(following(where(logCapacity, replays), levelBy))},
		{bufferSize(), 3, falling(following(ifReplay, levelBy))},
		{bufferSize(), 4, falling([3]world{
			trained(func(b *behaviour) { b.level -= 0.01 }), trained(func(b *behaviour) { b.level -= 0.1 }),
			func(a Arm, seed uint64) behaviour {
				b := usual()
				b.level -= 0.03 * ifReplay(a) * (1 + alternating(seed))
				return b
			},
		})},
		{bufferSize(), 5, falling(opposite(following(where(one, split44), levelBy)))},
		{bufferSize(), 6, following(ifReplay, passGainBy)},
		{bufferSize(), 7, following(ifReplay, passGainBy)},

		{pareto(), 0, following(ifReplay, levelBy)},
		{pareto(), 1, rougher(func(a Arm) bool { return !replays(a) && rate(a) > 1 })},
		{pareto(), 2, crashing(rougher(func(a Arm) bool { return !replays(a) }))},

		{variants(), 0, following(where(one, func(a Arm) bool { return a.Config.Replay.PositiveFraction > 0 }), levelBy)},
		{variants(), 1, following(func(a Arm) float64 { // beside δ = 0, whatever the others do
			return where(one, named(asymre))(a) + 3*where(one, named("grpo, δ"))(a)
		}, levelBy)},

		{offPoliciness(), 0, opposite(following(delay, speed))},
		{offPoliciness(), 1, rougher(func(a Arm) bool { return a.Config.Pipeline.PublishEvery <= 1 })},
		{offPoliciness(), 2, falling(following(where(one,
			func(a Arm) bool { return a.Config.Pipeline.PublishEvery > 1 }), levelBy))},

		{wallTime(), 0, opposite(following(ifReplay, clockBy))},
		{wallTime(), 1, [3]world{
			notTrained(func(b *behaviour) { b.stalled = 0.05 }), notTrained(func(b *behaviour) { b.stalled = 0.001 }),
			func(_ Arm, seed uint64) behaviour { b := usual(); b.stalled = 0.02 + 0.02*alternating(seed); return b },
		}},
		{wallTime(), 2, following(where(one, named("slow")), stallBy)},
		{wallTime(), 3, opposite(following(ifReplay, stallBy))},
		{wallTime(), 4, opposite(following(ifReplay, clockBy))},

		{sampling(), 0, [3]world{
			func(a Arm, seed uint64) behaviour {
				b := usual()
				b.level += 0.01 * alternating(seed) * drawn(a, distinct)
				return b
			},
			func(a Arm, seed uint64) behaviour {
				b := usual()
				b.level -= 0.3 * drawn(a, distinct)
				return b
			},
			func(a Arm, seed uint64) behaviour {
				b := usual()
				b.level -= 0.3 * alternating(seed) * drawn(a, unseen)
				return b
			},
		}},

		{mu(), 0, measuredMu(func(b *behaviour, v float64) { b.cost *= v })},
		{mu(), 1, measuredMu(func(b *behaviour, v float64) { b.uses *= v })},

		{dynamics(), 0, following(where(logCapacity, replays), staleBy)},
		{dynamics(), 1, following(trainersShare, staleBy)},
		{dynamics(), 2, following(trainersShare, usesBy)},
		{dynamics(), 3, [3]world{
			following(logCapacity, func(b *behaviour, v float64) { b.uses = 3 + 0.01*v })[0],
			following(logCapacity, usesBy)[0],
			following(logCapacity, func(b *behaviour, v float64) { b.uses = 3 + 0.2*v })[2],
		}},
		{dynamics(), 4, following(logCapacity, sinceBy)},

		{corrections(), 0, following(where(one, named("256: m2po")), func(b *behaviour, v float64) {
			b.level += 0.1 * min(v, 0.1*math.Abs(v)) // as good as fresh ones where v is 1
		})},
		{corrections(), 1, following(where(one, func(a Arm) bool {
			return named(unweighted)(a) && a.Config.Generate.Precision != policy.Full
		}), func(b *behaviour, v float64) { b.level -= 0.1 * v })},
		{corrections(), 2, following(where(one, func(a Arm) bool {
			return named(unweighted)(a) && a.Config.Pipeline.WeightTransfer > 0
		}), func(b *behaviour, v float64) { b.level -= 0.1 * v })},
		{corrections(), 3, rougher(named(clipped))},
		{corrections(), 4, following(where(one, named(truncated)), levelBy)},
	}
	for _, c := range cases {
		for i, want := range []results.Verdict{results.Holds, results.DoesNotHold, results.Inconclusive} {
			j := judged(t, c.study, Options{Seeds: 12}, c.worlds[i])
			if got := j.Findings[c.finding]; got.Verdict != want {
				t.Errorf("%s, finding %d: %q: %s, want %s\n%s\n%s", c.study.Name, c.finding, got.Claim, got.Verdict,
					want, got.Found, got.Why)
			}
		}
	}
}

// What a claim supposes is looked for: without it the claim is untested, whatever its own figures, and says why.
func TestClaimsWhosePremiseDidNotOccurAreUntested(t *testing.T) {
	smooth := following(ifReplay, levelBy)[0]
	of := func(s Study, finding int) results.Finding {
		return judged(t, s, Options{Seeds: 12}, smooth).Findings[finding]
	}
	for _, c := range []struct {
		study    Study
		findings []int
		why      string
	}{
		{savings(), []int{5}, "accuracy wavers by more than the sampling of its answers explains. These runs do not " +
			"show it: the root of the variance less that of sampling of \""},
		{bufferSize(), []int{1}, "wavers by more"}, {pareto(), []int{1}, "wavers by more"},
		{offPoliciness(), []int{1}, "wavers by more"}, {corrections(), []int{3}, "wavers by more"},
		{bufferSize(), []int{2, 3, 4, 5}, "accuracy falls after a peak. These runs do not show it: the fall from the " +
			"third quarter of the budget to the last of \""},
		{offPoliciness(), []int{2}, "accuracy falls after a peak"},
		{pareto(), []int{2}, "runs crash. These runs do not show it: 0 of 24 crashed."},
	} {
		for _, i := range c.findings {
			if got := of(c.study, i); got.Verdict != results.Untested || !strings.Contains(got.Why, c.why) {
				t.Errorf("%s, finding %d: %q: %s: %s, want it untested as %s", c.study.Name, i, got.Claim, got.Verdict,
					got.Why, c.why)
			}
		}
	}
	if others := of(bufferSize(), 6); others.Verdict == results.Untested {
		t.Errorf("%q supposes nothing, and is %s", others.Claim, others.Verdict)
	}
}

// Where only the opponents never arrive a saving can be shown but not refuted, and the other way about.
func TestOpponentsThatNeverArriveCountWithWhatTheySpent(t *testing.T) {
	slow := func(b *behaviour) { b.level, b.speed = 0.2, 0.5 } // below every target
	some := func(change func(*behaviour), in func(Arm) bool) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			if in(a) && seed%4 == 0 {
				change(&b)
			} else if replays(a) {
				b.speed *= 3
			}
			return b
		}
	}
	without := func(a Arm) bool { return !replays(a) }
	j := judged(t, savings(), Options{Seeds: 12}, some(slow, without))
	if got := j.Findings[0]; got.Verdict != results.Holds || !strings.Contains(got.Found, "addition: at most 0.") ||
		!strings.Contains(got.Found, "95% interval up to 0.") || !strings.Contains(got.Found,
		"; 3 of 12 opponents never arrive)") {
		t.Errorf("%s: %s", got.Verdict, got.Found)
	}
	if got := j.Findings[3]; got.Verdict == results.DoesNotHold {
		t.Errorf("what is at most so much is told to be more: %s %s", got.Found, got.Why)
	}
	j = judged(t, savings(), Options{Seeds: 12}, some(slow, replays))
	if got := j.Findings[0]; got.Verdict != results.Inconclusive || !strings.Contains(got.Found, "addition: at least ") ||
		!strings.Contains(got.Found, "; 3 of 12 runs never arrive)") || !strings.Contains(got.Why,
		"that it is below a bound cannot be shown.") {
		t.Errorf("%s: %s %s", got.Verdict, got.Found, got.Why)
	}
	j = judged(t, savings(), Options{Seeds: 12}, func(a Arm, seed uint64) behaviour {
		b := usual()
		if seed%4 == 0 || seed == 3 && replays(a) || seed == 5 && !replays(a) {
			slow(&b)
		}
		return b
	})
	if got := j.Findings[0].Found; !strings.Contains(got, "addition: not known (9 runs") || !strings.Contains(got,
		"1 of 12 opponents never arrive; 1 of 12 runs never arrive; in 3 of 12 pairs neither arrives)") {
		t.Error(got)
	}
	for _, f := range j.Findings {
		if strings.Contains(f.Found, "∞") || strings.Contains(f.Found, "Inf") {
			t.Errorf("infinite: %s", f.Found)
		}
	}
}

// measuredMu makes a measurement agree with the configured value, be far off, or scatter.
func measuredMu(set func(b *behaviour, v float64)) [3]world {
	make := func(of func(seed uint64) float64) world {
		return func(a Arm, seed uint64) behaviour {
			b := usual()
			b.cost, b.uses = configuredCost(a.Config), expectedReplayRatio(a.Config)
			set(&b, of(seed))
			return b
		}
	}
	return [3]world{
		make(func(uint64) float64 { return 1.01 }), make(func(uint64) float64 { return 1.2 }),
		make(func(seed uint64) float64 { return 1 + 0.2*alternating(seed) }),
	}
}

// The printed ratios do not fit the source's own formula, whatever the clock measures.
func TestPrintedReplayRatiosAreCheckedAgainstTheirFormula(t *testing.T) {
	j := judged(t, mu(), Options{Seeds: 12}, func(Arm, uint64) behaviour { b := usual(); b.uses = 5.6; return b })
	if got := j.Findings[2]; got.Verdict != results.DoesNotHold || !got.Check ||
		!strings.Contains(got.Found, "(5,3): printed 5.6, formula 4.10, the virtual clock 5.60") {
		t.Errorf("%s: %s", got.Verdict, got.Found)
	}
}

func TestTheErratumOfTable2IsFoundByArithmetic(t *testing.T) {
	got := new(Found).finding(gammaClaim(), false, 1)
	if got.Verdict != results.DoesNotHold || !strings.Contains(got.Found, "(6,2), printed 0.41, computed 0.510") {
		t.Errorf("%s: %s", got.Verdict, got.Found)
	}
	for _, s := range []string{"(7,1)", "(5,3)", "(4,4)", "(2,6)"} {
		if strings.Contains(got.Found, s) {
			t.Errorf("%s is called wrong: %s", s, got.Found)
		}
	}
}

// studiesOfER are the studies of this file's source, theory with a fit made up.
func studiesOfER() []Study {
	t := theory()
	t.Judge = func(f *Found) (Judgement, error) { return judgeTheory(f, flatFit) }
	return []Study{savings(), bufferSize(), pareto(), variants(), offPoliciness(), wallTime(), sampling(), mu(),
		dynamics(), t}
}

func TestFewSeedsAndRehearsalsMakeNoClaim(t *testing.T) {
	clear := following(ifReplay, func(b *behaviour, v float64) { b.speed *= math.Exp(v); b.level += 0.05 * v })[0]
	for _, s := range append(studiesOfER(), opponents()[1], few(t, 1, "vcrl", "luffy").study(), ingredients(), erSizes(),
		peaks(), freshParts()) {
		for _, o := range []Options{{Seeds: 1}, {Seeds: 7}, {Seeds: 12, Quick: true}} {
			for _, x := range judged(t, s, o, clear).Findings {
				if strings.HasPrefix(x.Why, "Arithmetic") {
					continue
				}
				if x.Verdict != results.Inconclusive || !cautious(x.Why, o) {
					t.Errorf("%s, %+v: %q: %s: %s", s.Name, o, x.Claim, x.Verdict, x.Why)
				}
			}
		}
	}
}

// cautious reports whether a finding starts with the reason why it makes no claim.
func cautious(why string, o Options) bool {
	if o.Quick {
		return strings.HasPrefix(why, "A rehearsal makes no claim. ")
	}
	return strings.HasPrefix(why, "A claim needs 8 runs, or pairs of runs; there are ") ||
		strings.HasPrefix(why, "There are no runs to compare. ")
}

func TestStudiesCopeWithFailedAndMissingRuns(t *testing.T) {
	for _, s := range append(studiesOfER(), opponents()[1], few(t, 1, "vcrl", "luffy").study(), ingredients(), erSizes(),
		peaks(), freshParts()) {
		o := Options{Seeds: 5}
		for name, w := range map[string]world{
			"all fail": func(Arm, uint64) behaviour { b := usual(); b.failsAt = 0.5; return b },
			"at once":  func(Arm, uint64) behaviour { b := usual(); b.failsAt = 1e-9; return b },
			"one seed": func(_ Arm, seed uint64) behaviour {
				b := usual()
				if seed == 2 {
					b.failsAt = 0.3
				}
				return b
			},
		} {
			j := judged(t, s, o, w)
			if last := j.Sections[len(j.Sections)-1]; last.Title != "What failed" {
				t.Errorf("%s, %s: the page does not tell what failed", s.Name, name)
			}
		}
		f := foundIn(s, o, func(Arm, uint64) behaviour { return usual() })
		for i := range f.Arms { // a seed missing here and there, and an arm with nothing at all
			f.Arms[i].Runs = append(f.Arms[i].Runs[:i%5], f.Arms[i].Runs[i%5+1:]...)
		}
		f.Arms[0].Runs = nil
		j, err := s.Judge(f)
		if err != nil {
			t.Fatal(err)
		}
		checkPage(t, s.Name, j)
		for i := range f.Arms {
			f.Arms[i].Runs = nil
		}
		if j, err = s.Judge(f); err != nil {
			t.Fatal(err)
		}
		checkPage(t, s.Name, j)
		for _, x := range j.Findings {
			if !strings.HasPrefix(x.Why, "Arithmetic") && x.Verdict != results.Inconclusive {
				t.Errorf("%s without runs: %q: %s", s.Name, x.Claim, x.Verdict)
			}
		}
	}
}

func TestFailedRunsCountAsUnstable(t *testing.T) {
	w := notTrained(func(b *behaviour) { b.failsAt = 0.8 })
	j := judged(t, savings(), Options{Seeds: 12}, w)
	if x := j.Findings[5]; x.Verdict != results.Holds {
		t.Errorf("%q: %s, want %s: %s", x.Claim, x.Verdict, results.Holds, x.Found)
	}
	if !strings.Contains(j.Findings[5].Found, "Crashed: addition: 12 of 12 without, 0 of 12 with; search: 12 of 12 without,") {
		t.Error(j.Findings[5].Found)
	}
}

func TestReplayBehindAtFirstIsNotAheadEverywhere(t *testing.T) {
	// Half of the seeds begin more slowly with replay, all end higher: the mean is clearly ahead, the first steps are
	// not.
	w := func(a Arm, seed uint64) behaviour {
		b := usual()
		if replays(a) {
			b.level, b.speed = 1, 3*(0.85+0.1*alternating(seed))
		}
		return b
	}
	x := judged(t, savings(), Options{Seeds: 12}, w).Findings[4]
	if x.Verdict != results.Inconclusive || !strings.Contains(x.Found, "75% to 100%: +0.058") {
		t.Errorf("%s: %s", x.Verdict, x.Found)
	}
}

func TestAnEqualGainByClockCountsAsAtLeastAsMuch(t *testing.T) {
	if x := judged(t, wallTime(), Options{Seeds: 12},
		trained(func(*behaviour) {})).Findings[0]; x.Verdict != results.Holds {
		t.Errorf("%s: %s", x.Verdict, x.Found)
	}
}

func TestSchedulesHaveNoTarget(t *testing.T) {
	f := foundIn(wallTime(), Options{Seeds: 12}, trained(func(*behaviour) {}))
	for _, row := range stallTable(f.of(learningArms(f.Options)...), f.of(stallArms(f.Options)...)).Rows {
		if reached := row[len(row)-1]; strings.HasPrefix(row[0], "schedule") != (reached == missing) {
			t.Errorf("%s reaches the target at %s", row[0], reached)
		}
	}
}
