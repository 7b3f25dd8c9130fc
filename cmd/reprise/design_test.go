package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/design"
)

// worked is the JSON of reprise design, as another program reads it.
type worked struct {
	RolloutCost   float64   `json:"rollout_cost"`
	TrainCost     float64   `json:"train_cost"`
	Correlation   float64   `json:"correlation"`
	NoiseExponent *float64  `json:"noise_exponent"`
	NoiseProfile  []float64 `json:"noise_profile"`
	Origins       map[string]string

	Horizon     *float64 `json:"staleness_horizon"`
	ReplayRatio *float64 `json:"replay_ratio"`
	Infinite    []string `json:"infinite"`
	Where       string   `json:"where"`
	Objective   float64  `json:"objective"`
	OnPolicy    float64  `json:"on_policy_objective"`
	Savings     float64  `json:"expected_savings"`
	Once        struct {
		Objective float64 `json:"objective"`
		Savings   float64 `json:"expected_savings"`
		AtMost    bool    `json:"at_most"`
	} `json:"each_used_once"`
	Asymptotic float64 `json:"asymptotic_bound"`

	Configuration struct {
		Workers      int     `json:"workers"`
		Trainers     int     `json:"trainers"`
		Capacity     int     `json:"capacity"`
		Batch        int     `json:"batch"`
		Group        int     `json:"group"`
		New          float64 `json:"rollouts_per_update"`
		ComputeRatio float64 `json:"compute_ratio"`
		ReplayRatio  float64 `json:"expected_replay_ratio"`
		Horizon      float64 `json:"staleness_horizon"`
		Staleness    float64 `json:"staleness_bound"`
		Objective    float64 `json:"objective"`
		Savings      float64 `json:"expected_savings"`
		Most         int     `json:"most_capacity"`
		AtLimit      bool    `json:"at_limit"`
	} `json:"configuration"`
	Neighbours []struct {
		Change    string   `json:"change"`
		Objective *float64 `json:"objective"`
		Refused   string   `json:"refused"`
	} `json:"neighbours"`
	WhatIf struct {
		Splits     []struct{ Workers, Trainers int } `json:"splits"`
		Capacities []int                             `json:"capacities"`
		Objective  [][]*float64                      `json:"objective"`
		Savings    [][]*float64                      `json:"expected_savings"`
	} `json:"what_if"`
	Bound *struct {
		Bound        float64 `json:"bound"`
		LearningRate float64 `json:"learning_rate"`
		Most         float64 `json:"most_learning_rate"`
	} `json:"bound"`
	Why, Measured, Warnings []string
	Command                 string
}

// works returns what reprise design works out.
func works(t *testing.T, args ...string) worked {
	t.Helper()
	var w worked
	text := succeeds(t, "", append([]string{"design", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return w
}

// near demands a number to so many digits after the point.
func near(t *testing.T, what string, got, want float64, digits int) {
	t.Helper()
	if !(math.Abs(got-want) <= 0.5001*math.Pow(10, -float64(digits))) {
		t.Errorf("%s is %v, want %.*f", what, got, digits, want)
	}
}

// profiled writes a profile into a file.
func profiled(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDesignGivesTheCheckValuesOfMethods(t *testing.T) {
	for _, c := range []struct {
		mu, rho, a string
		x, y       float64
	}{{"5.28", "0.1", "0.2", 4.26522, 3.97327}, {"6.84", "0.5", "0.05", 11.34599, 3.41027}} {
		w := works(t, "--rollout-cost", c.mu, "--correlation", c.rho, "--noise-exponent", c.a)
		near(t, "x*", *w.Horizon, c.x, 5)
		near(t, "y*", *w.ReplayRatio, c.y, 5)
		near(t, "m mu", w.TrainCost*w.RolloutCost, 1, 12)
		near(t, "the savings", w.Savings, 1-w.Objective/w.OnPolicy, 12)
		if w.Where != "inside" || len(w.Infinite) != 0 || fmt.Sprint(w.RolloutCost) != c.mu || fmt.Sprint(w.Correlation) != c.rho || fmt.Sprint(*w.NoiseExponent) != c.a {
			t.Errorf("mu %s, rho %s, a %s: %+v", c.mu, c.rho, c.a, w)
		}
		text := succeeds(t, "", "design", "--rollout-cost", c.mu, "--correlation", c.rho, "--noise-exponent", c.a)
		for _, want := range []string{fmt.Sprintf("%.4g versions (x* = N/R)", c.x), fmt.Sprintf("%.4g uses of each rollout (y* = B/R)", c.y)} {
			if !strings.Contains(text, want) {
				t.Errorf("the words lack %q:\n%s", want, text)
			}
		}
	}
}

func TestDesignGivesTheComputeRatioAsTheFormulaHasItNotAsTheTableOfTheSourcePrintsIt(t *testing.T) {
	w := works(t, "--rollout-cost", "6.84", "--correlation", "0.5", "--noise-exponent", "0.05")
	if c := w.Configuration; c.Workers != 6 || c.Trainers != 2 {
		t.Fatalf("(%d, %d), want (6, 2)", c.Workers, c.Trainers)
	}
	near(t, "gamma of (6, 2) at mu 6.84", w.Configuration.ComputeRatio, 0.510, 3)
	near(t, "its replay ratio", w.Configuration.ReplayRatio, 2.28, 9)
}

func TestDesignReadsFlatNoiseAsMethodsDoes(t *testing.T) {
	// (6, 2) at mu 5.28 has R = 3B/5.28: with these batches a buffer of 16B is 28.16 versions, and one of 4B 7.04.
	w := works(t, "--noise-exponent", "0", "--correlation", "0", "--batch", "1024")
	row := slices.IndexFunc(w.WhatIf.Splits, func(s struct{ Workers, Trainers int }) bool { return s.Workers == 6 && s.Trainers == 2 })
	for capacity, saved := range map[int]float64{16 * 1024: 0.32, 4 * 1024: 0.20} {
		column := slices.Index(w.WhatIf.Capacities, capacity)
		if row < 0 || column < 0 {
			t.Fatalf("the what-if table has no (6, 2) at %d: %+v", capacity, w.WhatIf)
		}
		near(t, fmt.Sprintf("what (6, 2) saves at N %d", capacity), 1-*w.WhatIf.Objective[row][column]/w.Once.Objective, saved, 2)
	}
	if w.Once.AtMost {
		t.Error("flat noise gives sigma2(0), so that nothing is 'at most'")
	}
}

func TestDesignWritesNullAndAWordForWhatIsInfinite(t *testing.T) {
	flat := works(t, "--noise-exponent", "0", "--correlation", "0.1")
	if flat.Horizon != nil || flat.ReplayRatio == nil || !slices.Equal(flat.Infinite, []string{"staleness_horizon"}) || flat.Where != "at infinity" {
		t.Errorf("flat noise: %+v", flat)
	}
	near(t, "y* of flat noise", *flat.ReplayRatio, 1/math.Sqrt(0.1/5.28), 9)
	free := works(t, "--noise-exponent", "0", "--correlation", "0")
	if free.Horizon != nil || free.ReplayRatio != nil || !slices.Equal(free.Infinite, []string{"staleness_horizon", "replay_ratio"}) {
		t.Errorf("flat noise without correlation: %+v", free)
	}
	near(t, "its cost", free.Objective, 1/5.28, 9)
	if text := succeeds(t, "", "design", "--noise-exponent", "0", "--correlation", "0"); !strings.Contains(text, "infinitely many versions") || strings.Contains(text, "Inf") || strings.Contains(text, "NaN") {
		t.Errorf("the words:\n%s", text)
	}
}

func TestDesignRefusesEveryWrongFlagAtOnce(t *testing.T) {
	fails(t, call(t, "", "design", "--rollout-cost=0", "--correlation=1.5", "--noise-exponent=-1", "--gpus=1", "--batch=0", "--group=-8", "--most-capacity=0", "--bound-gap=-1", "--sim", "--rollouts=3"),
		"--rollout-cost: 0: want 0.001 to 100000", "--correlation: 1.5: want 0 to 1", "--noise-exponent: -1: want 1e-06 to 10, or 0 for", "--gpus: 1: want 2 to",
		"--batch: 0: want 1 to", "--group: -8: want 1 to", "--most-capacity: 0: want 1 to", "--bound-gap: -1: want a finite number above 0",
		"--bound-smoothness: not given: want", "--bound-updates: not given: want", "--rollouts: 3: want")
	fails(t, call(t, "", "design", "--rollout-cost=NaN", "--correlation=NaN", "--noise-exponent=NaN", "--bound-bias=NaN", "--bound-learning-rate=Inf"),
		"--rollout-cost: NaN", "--correlation: NaN", "--noise-exponent: NaN", "--bound-bias: NaN", "--bound-learning-rate: +Inf")
	fails(t, call(t, "", "design", "--batch=4", "--group=8", "--most-capacity=3"), "--group: 8: want at most the batch (4)", "--most-capacity: 3: want at least the batch (4)")
	fails(t, call(t, "", "design", "--noise-exponent=0.2", "--profile="+profiled(t, "1\n2")), "--noise-exponent: 0.2: want it left out beside --profile")
	fails(t, call(t, "", "design", "--profile=/nowhere/at/all"), "--profile: open /nowhere/at/all")
	fails(t, call(t, "", "design", "--profile="+profiled(t, "1")), "no configuration for 8 GPUs, batches of 1024", "a longer profile")
	fails(t, call(t, "", "design", "--html=/nowhere/at/all.html"), "--html: ", "/nowhere/at/all")
	fails(t, call(t, "", "design", "--from="+t.TempDir()), "config.yaml")
}

func TestDesignWarnsWhereTheTheoryDoesNotReach(t *testing.T) {
	all := "The theory is of plain SGD"
	for _, c := range []struct {
		args      []string
		want, not []string
	}{
		{nil, []string{all, "What is marked as supposed", "each rollout exactly once"}, []string{"x* is infinite", "at its limit", "exists below 0.5", "profile ends", "replay ratio of"}},
		{[]string{"--rollout-cost=5.28", "--correlation=0.1", "--noise-exponent=0.2"}, []string{all}, []string{"What is marked as supposed"}},
		{[]string{"--noise-exponent=0.5"}, []string{all, "Noise exponent 0.5: the theory's optimum exists below 0.5 alone"}, nil},
		{[]string{"--noise-exponent=0.4", "--rollout-cost=1"}, []string{"horizon of less than one version"}, []string{"exists below"}},
		{[]string{"--noise-exponent=0"}, []string{"x* is infinite", "capacity of 65536 is at its limit", "--most-capacity (65536)"}, []string{"y* is infinite"}},
		{[]string{"--noise-exponent=0", "--correlation=0"}, []string{"x* is infinite", "y* is infinite"}, nil},
		{[]string{"--profile=" + profiled(t, "1\n1.01\n1.02")}, []string{"The profile ends after 3 versions"}, []string{"exists below", "is at its limit"}},
		{[]string{"--most-capacity=1024", "--profile=" + profiled(t, strings.Repeat("1\n", 50))}, []string{"The profile ends after 50 versions", "capacity of 1024 is at its limit", "--most-capacity (1024)"}, nil},
		{[]string{"--rollout-cost=5", "--correlation=0", "--gpus=4", "--batch=999", "--group=1", "--profile=" + profiled(t, strings.Repeat("1\n", 19)+"1.4")}, []string{"At these GPUs the profile ends"}, []string{"The profile ends after", "is at its limit"}},
		{[]string{"--profile=" + profiled(t, "[1,3,9,20,40]")}, []string{"horizon of less than one version"}, []string{"profile ends"}},
		{[]string{"--noise-exponent=0.6"}, []string{"some are never used", "nothing is saved"}, []string{"exactly once"}},
		{[]string{"--gpus=8192", "--batch=8192"}, []string{"A group takes a worker 10.6 updates"}, nil},
		{[]string{"--noise-exponent=0.01", "--correlation=0"}, nil, []string{"exactly once, as reprise train"}},
	} {
		warnings := strings.Join(works(t, c.args...).Warnings, "\n")
		for _, want := range c.want {
			if !strings.Contains(warnings, want) {
				t.Errorf("%v: no warning has %q:\n%s", c.args, want, warnings)
			}
		}
		for _, not := range c.not {
			if strings.Contains(warnings, not) {
				t.Errorf("%v: a warning has %q:\n%s", c.args, not, warnings)
			}
		}
	}
}

func TestALawIsAGuessBeyondWhatItWasFittedTo(t *testing.T) {
	for cost, guessed := range map[float64]bool{4: true, 0.01: false} { // generation that costs next to nothing keeps no rollouts
		m := fittedTo(t, proxy("p", cost))
		found := &calculation{theory: m.theory, noise: m.noise, fleet: design.Fleet{}.WithDefaults(), best: m.theory.Optimum()}
		var err error
		if found.plan, err = m.theory.Configure(design.Fleet{MostCapacity: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		found.warn()
		if said(found.warnings, "rests on measurements up to staleness 3.5") != guessed {
			t.Errorf("x* is %v, of the configuration %v: %q", found.best.X, found.plan.Horizon, found.warnings)
		}
	}
}

func TestTheDocumentationShowsWhatDesignPrints(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	if printed := succeeds(t, "", "design"); !strings.Contains(string(doc), "```\n"+printed+"```\n") {
		t.Errorf("docs/design.md does not have what reprise design prints:\n%s", printed)
	}
	_, rest, found := strings.Cut(string(doc), "The beginning, of `")
	flags, rest, _ := strings.Cut(rest, "`:\n\n```\n")
	begins, _, ends := strings.Cut(rest, "  …\n```")
	if printed := succeeds(t, "", append([]string{"design", "--json"}, strings.Fields(flags)...)...); !found || !ends || !strings.HasPrefix(printed, begins) {
		t.Errorf("docs/design.md does not have how the JSON of %s begins:\n%s", flags, printed)
	}
}

func TestDesignComparesWithTrainingThatUsesEachRolloutOnce(t *testing.T) {
	profile := works(t, "--profile", profiled(t, "[2, 2.5, 3]"), "--rollout-cost", "4")
	near(t, "J of each used once", profile.Once.Objective, 2*1.25, 12)
	near(t, "the savings against it", profile.Once.Savings, 1-profile.Objective/2.5, 12)
	law := works(t, "--noise-exponent", "0.2", "--rollout-cost", "4")
	near(t, "the most that J of each used once can be", law.Once.Objective, 1.25/1.4, 12)
	if profile.Once.AtMost || !law.Once.AtMost || profile.NoiseExponent != nil || !slices.Equal(profile.NoiseProfile, []float64{2, 2.5, 3}) || law.NoiseProfile != nil {
		t.Errorf("a profile gives %+v, a law %+v", profile, law)
	}
}

func TestDesignGivesTheBoundOfTheoremThreePointFour(t *testing.T) {
	args := []string{"--bound-gap=2", "--bound-smoothness=4", "--bound-updates=50", "--bound-bias=0.01"}
	w := works(t, args...)
	c := w.Configuration
	most := min(c.New/(2*math.Sqrt2*0.01*float64(c.Capacity)), 1/(2*4.))
	near(t, "the greatest learning rate", w.Bound.Most, most, 12)
	near(t, "the learning rate taken", w.Bound.LearningRate, most, 12)
	x, eta, b, n := c.Horizon, most, float64(c.Batch), float64(c.Capacity)
	noise := math.Pow(x, 0.4) / 1.4 * (1/b + 1/n + 0.1/c.New)
	near(t, "the bound", w.Bound.Bound, 12*2/(eta*50)+8*eta*(4*x*x*1e-4*eta+4)*noise, 12)
	near(t, "the factor of the bound after much compute", w.Asymptotic, 2*math.Sqrt(96*w.Objective), 9)
	fails(t, call(t, "", append([]string{"design", "--bound-learning-rate=0.2"}, args...)...), "--bound-learning-rate: 0.2: want at most 0.125")
	if text := succeeds(t, "", append([]string{"design", "--bound-learning-rate=0.1"}, args...)...); !strings.Contains(text, "after 50 updates at a learning rate of 0.1 (at most 0.125; theorem 3.4)") {
		t.Errorf("the words:\n%s", text)
	}
	if works(t).Bound != nil {
		t.Error("a bound that nobody asked for")
	}
}
