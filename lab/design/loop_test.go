package design

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func of(x float64) *float64 { return &x }

// measuredLoop returns a loop in batches of 64 whose gradients have a noise scale, with 2% of scatter.
func measuredLoop(mu, scale float64) Loop {
	l := Loop{Batches: 20, Batch: 64, Group: 8, Generate: of(mu), Update: of(1), Groups: 160, Flat: 20,
		ESS: []AgeESS{{0, 0, 0.99, 1e5}, {1, 1, 0.97, 1e5}, {2, 2, 0.95, 1e5}}, Gradients: &Gradients{Part: 16, Whole: 64}}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		off := func() float64 { return 1 + 0.02*rng.NormFloat64() }
		l.Gradients.Squares = append(l.Gradients.Squares, [2]float64{(1 + scale/16) * off(), (1 + scale/64) * off()})
	}
	return l
}

func advised(t *testing.T, l Loop) LoopAdvice {
	t.Helper()
	a, err := l.Advise()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheAdviceForALoopFollowsItsFigures(t *testing.T) {
	with := func(l Loop, change func(*Loop)) Loop { change(&l); return l }
	unmeasured := func(l *Loop) { l.Gradients = nil }
	rare := func(l *Loop) { l.Right, l.Flat, l.Asked = of(0.02), 140, of(15) }
	for _, c := range []struct {
		name               string
		loop               Loop
		reuse, table, size Answer
		says               string
	}{
		{"costly generation, little noise", measuredLoop(5, 8), Pays, DoesNotPay, Pays, "a smaller batch pays: 16"},
		{"cheap generation, much noise", measuredLoop(0.4, 500), DoesNotPay, DoesNotPay, CannotTell, "a larger batch"},
		{"generation for nothing", with(measuredLoop(0.05, 8), unmeasured), DoesNotPay, DoesNotPay, CannotTell,
			"reuse does not pay"},
		{"no wait for rollouts", with(measuredLoop(0, 8), unmeasured), DoesNotPay, DoesNotPay, CannotTell, "0.001 times"},
		{"unknown noise", with(measuredLoop(5, 8), unmeasured), CannotTell, DoesNotPay, CannotTell,
			"two or more micro-batches"},
		{"noise that hides the signal", with(measuredLoop(5, 8), func(l *Loop) {
			l.Gradients.Squares = [][2]float64{{4, 1}, {4, 0.1}, {4, 2}}
		}), CannotTell, DoesNotPay, CannotTell, "does not stand out"},
		{"no gradient", with(measuredLoop(5, 8), func(l *Loop) { l.Gradients.Squares = [][2]float64{{0, 0}, {0, 0}} }),
			CannotTell, DoesNotPay, CannotTell, "the gradient was 0 in every batch; a table does not pay: in our studies recent rollouts gained nothing over reuse, and " +
				"keeping right answers needs rewards of right or wrong; cannot tell whether another batch pays either. Measured"},
		{"no times", with(measuredLoop(5, 8), func(l *Loop) { l.Update = nil }), CannotTell, DoesNotPay, Pays,
			"times of generation"},
		{"rare right answers that come back", with(measuredLoop(5, 8), rare), Pays, Pays, Pays,
			"a table pays: 88% of groups"},
		{"a single pass over prompts", with(with(measuredLoop(5, 8), rare), func(l *Loop) { l.Asked = of(1) }), Pays,
			DoesNotPay, Pays, "prompts do not come back"},
		{"prompts of which nobody knows", with(with(measuredLoop(5, 8), rare), func(l *Loop) { l.Asked = nil }), Pays,
			CannotTell, Pays, "how often they do is not known"},
		{"many right answers", with(with(measuredLoop(5, 8), rare), func(l *Loop) { l.Right, l.Flat = of(0.6), 20 }), Pays,
			CannotTell, Pays, "60% are right"},
		{"none right", with(measuredLoop(5, 8), func(l *Loop) { l.Right = of(0) }), Pays, DoesNotPay, Pays, "none to keep"},
	} {
		a := advised(t, c.loop)
		if a.Reuse.Answer != c.reuse || a.Table.Answer != c.table || a.Size.Answer != c.size ||
			!strings.Contains(a.Line, c.says) {
			t.Errorf("%s: reuse %s, table %s, batch %s, in\n%s", c.name, a.Reuse.Answer, a.Table.Answer, a.Size.Answer, a.Line)
		}
	}
}

// The scatter of the norms is 2%, and the bounds are those of a factor of two besides.
func TestTheNoiseScaleOfALoopIsThatOfItsGradients(t *testing.T) {
	for _, want := range []float64{4, 40, 400} {
		s := measuredLoop(5, want).noiseScale()
		if math.Abs(s.mid/want-1) > 0.15 || s.low > want/scaleFactor || s.high < want*scaleFactor {
			t.Errorf("noise scale %.3g, from %.3g to %.3g: want %.3g", s.mid, s.low, s.high, want)
		}
	}
}

func TestReuseIsPricedInTheLoopAsInTheTheory(t *testing.T) {
	l := measuredLoop(5, 8)
	v := advised(t, l).Reuse
	theory := l.theories(l.noiseScale())[0]
	use := func(way Way, updates int) Use { return Use{way, 64, updates, 1, 1, 64} }
	near(t, "cost of reuse", v.Cost, theory.Cost(use(Reuse, v.Updates))/theory.Cost(use(Queue, 1)), 1e-12)
	if !(v.Least <= v.Cost && v.Cost <= *v.Most) {
		t.Errorf("cost %v, from %v to %v", v.Cost, v.Least, *v.Most)
	}
}

func TestRatiosThatSpreadWithAgeMakeReuseDearer(t *testing.T) {
	l := measuredLoop(5, 40)
	l.ESS = []AgeESS{{0, 0, 0.99, 1e5}, {1, 7, 0.9, 1e5}}
	before := advised(t, l).Reuse
	l.ESS[1].ESS = 0.2
	after := l.reuse(l.noiseScale())
	if after.Answer == Pays || *after.Most <= *before.Most {
		t.Errorf("with ESS 0.9: %s; with 0.2: %s", before.Why, after.Why)
	}
}

func TestALoopWithFiguresOutOfTheirRangesIsRefusedByName(t *testing.T) {
	l := Loop{Flat: 2, Groups: 1, Generate: of(-1), Update: of(math.Inf(1)), Right: of(2), Asked: of(0),
		ESS: []AgeESS{{3, 2, 0, -1}}, Gradients: &Gradients{Part: 8, Whole: 8, Squares: [][2]float64{{math.NaN(), 1}}}}
	_, err := l.Advise()
	for _, want := range []string{"batches: 0", "batch: 0", "group: 0", "flat_groups: 2: want 0 to the 1",
		"generate_seconds: -1", "update_seconds: +Inf", "right: 2",
		"asked: 0", "ess[0].last: 2", "ess[0].ess: 0", "ess[0].tokens: -1",
		"gradients.part: 8", "gradients.squares[0]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

func FuzzLoop(f *testing.F) {
	seed, _ := json.Marshal(measuredLoop(5, 8))
	f.Add(seed)
	f.Add([]byte(`{"batches":1,"batch":7,"group":3,"generate_seconds":1e-3,"update_seconds":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var l Loop
		if json.Unmarshal(text, &l) != nil {
			return
		}
		a, err := l.Advise()
		if err != nil {
			return
		}
		for _, v := range []Verdict{a.Reuse, a.Table, a.Size} {
			if v.Answer == "" || v.Why == "" {
				t.Errorf("%+v of %s", v, text)
			}
		}
		if _, err := json.Marshal(a); err != nil || strings.Contains(a.Line, "NaN") {
			t.Errorf("%v: %s", err, a.Line)
		}
	})
}
