package design

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// table returns a profile from values that are known to be fit.
func table(t *testing.T, sigma2 ...float64) *Table {
	t.Helper()
	p, err := NewTable(sigma2)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestATableAveragesWholeHorizonsAndInterpolatesTheSum(t *testing.T) {
	p := table(t, 1, 3, 8)
	for x, want := range map[float64]float64{1: 1, 1.5: 2.5 / 1.5, 2: 2, 2.25: 6 / 2.25, 3: 4} {
		near(t, "the mean", p.Mean(x), want, 1e-15)
	}
	for _, x := range []float64{0.99, 3.01, math.Inf(1), math.NaN()} {
		if !math.IsNaN(p.Mean(x)) {
			t.Errorf("the mean at %v is %v: the table has no value", x, p.Mean(x))
		}
	}
	for s, want := range map[float64]float64{0: 1, 0.5: 1, 1: 3, 2.9: 8} {
		near(t, "sigma2", p.At(s), want, 0)
	}
	if !math.IsNaN(p.At(3)) || !math.IsNaN(p.At(-1)) {
		t.Error("a table has values beyond its ends")
	}
}

func TestATableKeepsItsOwnValues(t *testing.T) {
	values := []float64{1, 2}
	p := table(t, values...)
	values[0] = 9
	p.Values()[1] = 9
	if p.At(0) != 1 || p.At(1) != 2 {
		t.Errorf("the table has become %v", p.Values())
	}
}

func TestATableRefusesValuesThatAreNoVariance(t *testing.T) {
	for _, values := range [][]float64{nil, {}, {0, 1}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)},
		{math.MaxFloat64, math.MaxFloat64}} {
		if _, err := NewTable(values); err == nil {
			t.Errorf("%v is accepted", values)
		}
	}
}

// randomTable returns tables of every kind of shape: rising, jumping, falling in places, with plateaus and zeros.
func randomTable(rng *rand.Rand, length int) []float64 {
	values := []float64{0.5 + rng.Float64()}
	kind := rng.IntN(4)
	for len(values) < length {
		v := values[len(values)-1]
		switch kind {
		case 0:
			v *= 1 + 0.3*rng.Float64()
		case 1:
			v = 3 * rng.Float64()
		case 2:
			if rng.IntN(5) == 0 {
				v *= 4 * rng.Float64()
			}
		case 3:
			v = max(0, v+rng.Float64()-0.6)
		}
		values = append(values, v)
	}
	return values
}

func TestTheHorizonOfATableIsTheGlobalMinimumOfAFineScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 2))
	inside := 0
	for i := range 1000 {
		theory := Theory{TrainCost: math.Exp(6*rng.Float64() - 4), Correlation: rng.Float64() * float64(rng.IntN(2)),
			Profile: table(t, randomTable(rng, 1+rng.IntN(12))...)}
		o := theory.Optimum()
		if o.Where == Inside {
			inside++
		}
		near(t, "J", o.Objective, theory.Objective(o.Point), 1e-12)
		for x := 1.0; x <= theory.Profile.Reach(); x += 1.0 / 64 {
			if j := theory.Envelope(x); j < o.Objective*(1-1e-12) {
				t.Fatalf("table %d %v, %+v: J is %v at x = %v, less than %v at x* = %v", i, theory.Profile,
					theory, j, x,
					o.Objective, o.X)
			}
		}
	}
	if inside < 100 {
		t.Errorf("only %d of the random tables have their least inside", inside)
	}
}

func TestATableOfAPowerLawHasNearlyItsOptimum(t *testing.T) {
	const a = 0.05
	law := Theory{TrainCost: 1 / 6.84, Correlation: 0.5, Profile: PowerLaw{Exponent: a}}
	values := make([]float64, 200)
	for s := range values {
		values[s] = versionMean(float64(s), a)
	}
	tabled := law
	tabled.Profile = table(t, values...)
	for _, x := range []float64{1, 7, 200} {
		near(t, "sbar2", tabled.Profile.Mean(x), law.Profile.Mean(x), 1e-12)
	}
	if o := tabled.Optimum(); o.X != 11 {
		t.Errorf("x* is %v, want 11, the whole number beside 11.346", o.X)
	}
}

func TestTheOptimumAtAnEndOfATableIsNamed(t *testing.T) {
	theory := Theory{TrainCost: 0.2, Profile: table(t, 1, 1, 1, 1)}
	if o := theory.Optimum(); o.X != 4 || o.Where != AtEnd {
		t.Errorf("the optimum is %+v", o)
	}
	theory.Profile = table(t, 1, 50, 50)
	if o := theory.Optimum(); o.X != 1 || o.Where != AtOne {
		t.Errorf("the optimum is %+v", o)
	}
}

func TestATableIsParsedFromAJSONArrayOrANumberOnEachLine(t *testing.T) {
	want := []float64{1, 1.25, 0, 3e2}
	for _, text := range []string{"[1, 1.25, 0, 3e2]", "\n [1,1.25,\n0,300]\n", "1\n1.25\n0\n300",
		"# measured\n\n 1 # fresh\r\n1.25\n0\n3e2\n\n"} {
		if got, err := ParseTable([]byte(text)); err != nil || !slices.Equal(got.Values(), want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseTableNamesThePlaceOfEachProblem(t *testing.T) {
	for text, want := range map[string][]string{
		"":                {"no numbers"},
		"[]":              {"no numbers"},
		"# nothing":       {"no numbers"},
		"1\ntwo\n":        {`line 2: "two": want one number on each line`},
		"1\n1, 2":         {`line 2: "1, 2": want one number`},
		"\n1\n\n-2\nNaN":  {"line 4, staleness 1: -2: want a variance", "line 5, staleness 2: NaN: want"},
		"Inf":             {"line 1, staleness 0: +Inf: want"},
		"0\n1":            {"line 1, staleness 0: 0: want at least 1e-300"},
		"[0, 1]":          {"staleness 0: 0: want at least 1e-300"},
		"[1, null]":       {"staleness 1: null: want"},
		"[1, -1, -2]":     {"staleness 1: -1", "staleness 2: -2"},
		"[1":              {"JSON array"},
		`[1, "two"]`:      {"JSON array"},
		"[1] 2":           {"JSON array"},
		"[1e400]":         {"JSON array"},
		"[1, 1e301]":      {"staleness 1: 1e+301: want a variance, 0 to 1e+300"},
		`{"sigma2": [1]}`: {"line 1"},
	} {
		_, err := ParseTable([]byte(text))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q", text, err, w)
			}
		}
	}
	long := strings.Repeat("1\n", maxTable+1)
	if _, err := ParseTable([]byte(long)); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("%d numbers: %v", maxTable+1, err)
	}
}

func FuzzParseTable(f *testing.F) {
	for _, seed := range []string{"[1, 2]", "1\n2 # two\n", "", "[null]", "0x1p-3\n1_0", "[1e308, 1e308]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := ParseTable(text)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without words")
			}
			return
		}
		list := table.Values()
		var lines strings.Builder
		for i, v := range list {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || list[0] == 0 {
				t.Fatalf("staleness %d: %v was accepted", i, v)
			}
			fmt.Fprintln(&lines, v)
		}
		again, err := ParseTable([]byte(lines.String()))
		if err != nil || !slices.Equal(again.Values(), list) {
			t.Fatalf("%v reads back as %v, %v", list, again, err)
		}
	})
}
