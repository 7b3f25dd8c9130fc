package design

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// commandFleet is what reprise design assumes.
func commandFleet() Fleet { return Fleet{GPUs: 8, Batch: 1024, Group: 8, MostCapacity: 64 * 1024} }

// given returns parameters that are all given.
func given(mu, rho float64, p Profile) Known {
	k := Assumptions()
	k.GiveRolloutCost(mu)
	k.GiveCorrelation(rho)
	k.GiveProfile(p, "")
	return k
}

func recommended(t *testing.T, k Known, f Fleet) *Recommendation {
	t.Helper()
	r, err := Recommend(k, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheWordsHaveTheCheckValuesOfMethods(t *testing.T) {
	for _, c := range []struct{ mu, rho, a, x, y float64 }{{5.28, 0.1, 0.2, 4.26522, 3.97327},
		{6.84, 0.5, 0.05, 11.34599, 3.41027}} {
		r := recommended(t, given(c.mu, c.rho, PowerLaw{Exponent: c.a}), commandFleet())
		text, d := r.Text(), r.Document()
		for _, want := range []string{fmt.Sprintf("%.4g versions (x* = N/R)", c.x),
			fmt.Sprintf("%.4g uses of each rollout (y* = B/R)", c.y)} {
			if !strings.Contains(text, want) {
				t.Errorf("the text lacks %q:\n%s", want, text)
			}
		}
		near(t, "x* in the JSON", *d.StalenessHorizon, c.x, 1e-6)
		near(t, "m mu", d.TrainCost*d.RolloutCost, 1, 1e-12)
		near(t, "the savings", d.Savings, 1-d.Objective/d.OnPolicy, 1e-12)
		if len(d.Infinite) != 0 || d.RolloutCost != c.mu || d.Correlation != c.rho || *d.NoiseExponent != c.a ||
			d.Origins.Correlation != Given || d.Origins.Noise != Given {
			t.Errorf("the JSON has %+v", d)
		}
	}
}

func TestTheComputeRatioFollowsTheFormulaAndNotTable2(t *testing.T) {
	p := recommended(t, given(6.84, 0.5, PowerLaw{Exponent: 0.05}), commandFleet()).Plan
	if p.Workers != 6 || p.Trainers != 2 {
		t.Fatalf("(%d, %d), want (6, 2)", p.Workers, p.Trainers)
	}
	near(t, "gamma of (6, 2) at mu 6.84", p.ComputeRatio, 0.510, 1e-3)
	near(t, "its replay ratio", p.ReplayRatio, 2.28, 1e-9)
}

func TestFlatNoiseSavesWhatMethodsSays(t *testing.T) {
	// (6, 2) at mu 5.28 has R = 3B/5.28: with these batches a buffer of 16B is 28.16 versions, and one of 4B 7.04.
	r := recommended(t, given(5.28, 0, PowerLaw{}), commandFleet())
	g := r.Plan.Grid
	row := slices.Index(g.Splits, Split{6, 2})
	for capacity, saved := range map[int]float64{16 * 1024: 0.32, 4 * 1024: 0.20} {
		column := slices.Index(g.Capacities, capacity)
		if row < 0 || column < 0 {
			t.Fatalf("the grid has no (6, 2) at %d: %+v", capacity, g)
		}
		once, _, atMost := r.once(1)
		if got := 1 - g.Objective[row][column]/once; math.Abs(got-saved) > 0.005 || atMost {
			t.Errorf("(6, 2) saves %v at N %d (at most: %v), want %v", got, capacity, atMost, saved)
		}
	}
}

func TestInfinityIsNullInJSONAndAWordInText(t *testing.T) {
	for _, c := range []struct {
		rho      float64
		infinite []string
	}{{0.1, []string{"staleness_horizon"}}, {0, []string{"staleness_horizon", "replay_ratio"}}} {
		r := recommended(t, given(5.28, c.rho, PowerLaw{}), commandFleet())
		d := r.Document()
		if d.StalenessHorizon != nil || (d.ReplayRatio == nil) != (c.rho == 0) ||
			!slices.Equal(d.Infinite, c.infinite) || d.Where != AtInfinity {
			t.Errorf("rho %v: %+v", c.rho, d)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Error(err)
		}
		if text := r.Text(); !strings.Contains(text, "infinitely many versions") || strings.Contains(text, "Inf") ||
			strings.Contains(text, "NaN") {
			t.Errorf("the text:\n%s", text)
		}
	}
}

func TestCaveatsNameTheLimitsOfTheTheory(t *testing.T) {
	law := func(a float64) func(*Known, *Fleet) {
		return func(k *Known, _ *Fleet) { k.GiveProfile(PowerLaw{Exponent: a}, "") }
	}
	const always = "The theory is of plain SGD"
	for name, c := range map[string]struct {
		change    func(k *Known, f *Fleet)
		want, not []string
	}{
		"assumptions": {func(*Known, *Fleet) {}, []string{always, "marked as assumed"},
			[]string{"x* is infinite", "exponents below 0.5", "profile ends"}},
		"given": {func(k *Known, _ *Fleet) { *k = given(5.28, 0.1, PowerLaw{Exponent: 0.2}) }, []string{always},
			[]string{"marked as assumed"}},
		"a 0.5": {law(0.5), []string{"only for noise exponents below 0.5. At 0.5"}, nil},
		"a 0.4": {func(k *Known, _ *Fleet) { k.GiveRolloutCost(1); k.GiveProfile(PowerLaw{Exponent: 0.4}, "") },
			[]string{"horizon below one version"}, []string{"exponents below"}},
		"flat": {law(0), []string{"x* is infinite"},
			[]string{"y* is infinite"}},
		"free": {func(k *Known, _ *Fleet) { k.GiveCorrelation(0); k.GiveProfile(PowerLaw{}, "") },
			[]string{"x* is infinite", "y* is infinite"}, nil},
		"short": {func(k *Known, _ *Fleet) { k.GiveProfile(table(t, 1, 1.01, 1.02), "") },
			[]string{"The profile ends after 3 versions"}, []string{"exponents below"}},
		"steep table": {func(k *Known, _ *Fleet) { k.GiveProfile(table(t, 1, 3, 9, 20, 40), "") },
			[]string{"horizon below one version"}, []string{"profile ends"}},
		"many GPUs": {func(k *Known, f *Fleet) {
			k.GiveNoiseScale(1e6)
			*f = Fleet{GPUs: 8192, Batch: 8192, Group: 8, MostCapacity: 64 * 8192}
		}, []string{"A worker takes 5.28 updates for a group"}, nil},
		"beyond the measurements": {func(k *Known, _ *Fleet) { k.Noise = []Noise{{Staleness: 1.5, Variance: 1}} },
			[]string{"fitted up to staleness 1.5"}, nil},
		"within the measurements": {func(k *Known, _ *Fleet) { k.Noise = []Noise{{Staleness: 9, Variance: 1}} }, nil,
			[]string{"fitted up to"}},
	} {
		k, f := Assumptions(), commandFleet()
		c.change(&k, &f)
		caveats := strings.Join(recommended(t, k, f).Caveats(), "\n")
		for _, want := range c.want {
			if !strings.Contains(caveats, want) {
				t.Errorf("%s: no caveat has %q:\n%s", name, want, caveats)
			}
		}
		for _, not := range c.not {
			if strings.Contains(caveats, not) {
				t.Errorf("%s: a caveat has %q:\n%s", name, not, caveats)
			}
		}
	}
}

func TestCaveatsComeFromTheMeasurementUnlessItIsOverridden(t *testing.T) {
	k := Assumptions()
	k.Warnings, k.Doubts = []string{"warned"}, Doubts{Noise: []string{"noise doubted"},
		Correlation: []string{"correlation doubted"}}
	r := recommended(t, k, commandFleet())
	if c := r.Caveats(); !slices.Equal(c[:3], []string{"warned", "noise doubted", "correlation doubted"}) {
		t.Errorf("caveats %q", c)
	}
	k.GiveCorrelation(0.3)
	k.GiveProfile(PowerLaw{Exponent: 0.1}, "")
	r = recommended(t, k, commandFleet())
	r.Refused = fmt.Errorf("no such key")
	if c := strings.Join(r.Caveats(), "\n"); !strings.Contains(c, "warned") || strings.Contains(c, "doubted") ||
		!strings.Contains(c, "refuses this configuration: no such key.") {
		t.Errorf("caveats %s", c)
	}
}

func TestSavingsAgainstUsingEachRolloutOnce(t *testing.T) {
	profile := recommended(t, given(4, 0.1, table(t, 2, 2.5, 3)), commandFleet()).Document()
	near(t, "J of each used once", profile.Once.Objective, 2*1.25, 1e-12)
	near(t, "the savings against it", profile.Once.Savings, 1-profile.Objective/2.5, 1e-12)
	law := recommended(t, given(4, 0.1, PowerLaw{Exponent: 0.2}), commandFleet()).Document()
	near(t, "the most that J of each used once can be", law.Once.Objective, 1.25/1.4, 1e-12)
	if profile.Once.AtMost || !law.Once.AtMost || profile.NoiseExponent != nil ||
		!slices.Equal(profile.NoiseProfile, []float64{2, 2.5, 3}) || law.NoiseProfile != nil {
		t.Errorf("a profile gives %+v, a law %+v", profile, law)
	}
}

func TestNeighboursAndWhatIfAreListed(t *testing.T) {
	r := recommended(t, Assumptions(), commandFleet())
	var rows []string
	for _, row := range r.NeighbourRows() {
		rows = append(rows, strings.Join(row, " "))
	}
	for _, want := range []string{"first 4 4", "one GPU more trains", "cannot run: a batch of 1024 is no multiple of"} {
		if text := strings.Join(rows, "\n"); !strings.Contains(text, want) {
			t.Errorf("the neighbours lack %q:\n%s", want, text)
		}
	}
	for i, row := range r.Document().WhatIf.Objective {
		for k, j := range row {
			if savings := r.Document().WhatIf.Savings[i][k]; (j == nil) != (savings == nil) {
				t.Errorf("(%d, %d): J %v, savings %v", i, k, j, savings)
			}
		}
	}
	alone := recommended(t, Assumptions(), Fleet{GPUs: 2, Batch: 1, Group: 1, MostCapacity: 1})
	if text, err := json.Marshal(alone.Document()); err != nil || !strings.Contains(string(text), `"neighbours":[]`) {
		t.Errorf("no neighbours are no list: %s, %v", text, err)
	}
}

func TestARecommendationHasTheBoundThatWasAskedFor(t *testing.T) {
	r, err := Recommend(Assumptions(), Fleet{GPUs: 2, Batch: 1, Group: 1, MostCapacity: 1},
		&Conditions{Gap: 2, Smoothness: 4, Updates: 50})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(r.Text()), " ")
	if !strings.Contains(text, "after 50 updates at a learning rate of 0.125 (at most 0.125; theorem 3.4)") ||
		r.Document().Bound == nil {
		t.Errorf("the text:\n%s", text)
	}
}

// The map of savings has the recommendation, and nothing in it is better.
func TestTheHighestSavingsAreTheRecommended(t *testing.T) {
	between := 0
	for _, mu := range []float64{1, 3.3, 5.28, 12, 40} {
		for _, rho := range []float64{0, 0.02, 0.1, 0.5} {
			r := recommended(t, given(mu, rho, PowerLaw{Exponent: 0.1}), commandFleet())
			g, highest := r.WhatIf(9)
			row := slices.Index(g.Splits, Split{r.Plan.Workers, r.Plan.Trainers})
			column := slices.Index(g.Capacities, r.Plan.Capacity)
			if row < 0 || column < 0 || g.Savings[row][column] != highest || highest != r.Plan.Savings {
				t.Errorf("mu %v, rho %v: (%d, %d), N = %d saves %v; the map's highest is %v in %+v", mu, rho,
					r.Plan.Workers, r.Plan.Trainers, r.Plan.Capacity, r.Plan.Savings, highest, g)
			}
			if column > 0 && g.Capacities[column]%commandFleet().Batch != 0 {
				between++
			}
		}
	}
	if between == 0 {
		t.Error("no recommended capacity lies between multiples of the batch: the test shows nothing")
	}
}
