package advantage

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(t *testing.T, got []float32, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range got {
		if math.Abs(float64(got[i])-want[i]) > 1e-6*(1+math.Abs(want[i])) {
			t.Errorf("got %v, want %v", got, want)
			return
		}
	}
}

func TestGroupAdvantagesMatchNumbersWorkedByHand(t *testing.T) {
	cases := []struct {
		name    string
		kind    Kind
		rewards []float32
		want    []float64
	}{
		// Mean 1/4, variance (9 + 3)/16/4 = 3/16, std 0.4330127: 0.75/0.4330127 = sqrt 3, -0.25/0.4330127 =
		// -1/sqrt 3. Epsilon changes the eighth digit.
		{"one of four is right", Group, []float32{1, 0, 0, 0},
			[]float64{1.7320508, -0.5773503, -0.5773503, -0.5773503}},
		// Mean 1/4 taken off, nothing else.
		{"one of four is right", NoStd, []float32{1, 0, 0, 0}, []float64{0.75, -0.25, -0.25, -0.25}},
		// The others of the first: mean 0. Those of the second: (1 + 0 + 0)/3.
		{"one of four is right", LeaveOneOut, []float32{1, 0, 0, 0}, []float64{1, -1.0 / 3, -1.0 / 3, -1.0 / 3}},
		// Mean 3, variance (4 + 1 + 9)/3 = 14/3, std 2.1602469.
		{"rewards of any size", Group, []float32{1, 2, 6}, []float64{-0.9258201, -0.4629100, 1.3887301}},
		// 1 - (2 + 6)/2, 2 - (1 + 6)/2, 6 - (1 + 2)/2.
		{"rewards of any size", LeaveOneOut, []float32{1, 2, 6}, []float64{-3, -1.5, 4.5}},
		// log((1 + 1 + 1 + e)/4) = 0.3573739; large rewards do not overflow: 1000 + log((1 + 1/e)/2) = 999.6201145.
		{"one of four is right", LogMeanExp, []float32{1, 0, 0, 0},
			[]float64{0.6426261, -0.3573739, -0.3573739, -0.3573739}},
		{"rewards of any size", LogMeanExp, []float32{1000, 999}, []float64{0.3798855, -0.6201145}},
		// Rewards +-1e-4 about 0: variance 1e-8 equals Epsilon, so the advantages are 1/sqrt 2.
		{"epsilon stands under the root", Group, []float32{1e-4, -1e-4}, []float64{0.7071068, -0.7071068}},
	}
	for _, c := range cases {
		t.Run(string(c.kind)+": "+c.name, func(t *testing.T) {
			dst := make([]float32, len(c.rewards))
			m := OfGroup(dst, c.rewards, c.kind)
			near(t, dst, c.want...)
			if m.Zero {
				t.Error("rewards that differ are reported as equal")
			}
		})
	}
}

func TestRewardsAreComparedWithALargerSet(t *testing.T) {
	all := []float32{1, 0, 0, 0}
	for kind, want := range map[Kind][]float64{Group: {-0.5773503, 1.7320508}, NoStd: {-0.25, 0.75},
		LeaveOneOut: {-1.0 / 3, 1}, LogMeanExp: {-0.3573739, 0.6426261}} {
		dst := []float32{0, 1}
		m := Among(dst, dst, all, kind)
		near(t, dst, want...)
		if m.Mean != 0.25 {
			t.Errorf("the mean is %v, want that of the larger set", m.Mean)
		}
	}
}

func TestEqualRewardsGiveNoAdvantageAndAreReported(t *testing.T) {
	// 0.1 is not a binary fraction: a variance of rounded sums would not vanish.
	for _, rewards := range [][]float32{{1}, {0.1, 0.1, 0.1}, {0, 0}} {
		for _, kind := range []Kind{Group, NoStd, LeaveOneOut, LogMeanExp} {
			dst := make([]float32, len(rewards))
			dst[0] = 9
			m := OfGroup(dst, rewards, kind)
			near(t, dst, make([]float64, len(rewards))...)
			if !m.Zero || m.Var != 0 || m.Mean != float64(rewards[0]) {
				t.Errorf("%s of %v: moments %+v", kind, rewards, m)
			}
		}
		if m := OfBatch(make([]float32, len(rewards)), rewards, nil, Batch); !m.Zero {
			t.Errorf("batch of %v: moments %+v", rewards, m)
		}
	}
	if m := MomentsOf(nil); !m.Zero || m.Std() != 0 {
		t.Errorf("moments of nothing: %+v", m)
	}
}

func TestBatchAdvantagesMatchNumbersWorkedByHand(t *testing.T) {
	// Mean 1/2, std 1/2 over the batch of two groups.
	rewards := []float32{1, 0, 1, 1, 0, 0}
	dst := make([]float32, 6)
	m := OfBatch(dst, rewards, nil, Batch)
	near(t, dst, 1, -1, 1, 1, -1, -1)
	if m.Mean != 0.5 || m.Std() != 0.5 {
		t.Errorf("moments %+v", m)
	}
	// Groups {1, 0} of mean 1/2 and {1, 1, 1, 0} of mean 3/4 leave 1/2, -1/2, 1/4 three times and -3/4: mean
	// 0, variance (1/4 + 1/4 + 3/16 + 9/16)/6 = 5/24, std 0.4564355.
	rewards = []float32{1, 0, 1, 1, 1, 0}
	OfBatch(dst, rewards, []float32{0.5, 0.5, 0.75, 0.75, 0.75, 0.75}, GroupBatch)
	near(t, dst, 1.0954451, -1.0954451, 0.5477226, 0.5477226, 0.5477226, -1.6431677)
}

func TestGAEMatchesNumbersWorkedByHand(t *testing.T) {
	// gamma 1, lambda 0.95, end of episode. delta = r + V' - V: third 1 - 0.6 = 0.4, second 0.6 - 0.5 = 0.1,
	// first 0.5 - 0.2 = 0.3. A3 = 0.4, A2 = 0.1 + 0.95 x 0.4 = 0.48, A1 = 0.3 + 0.95 x 0.48 = 0.756.
	dst := make([]float32, 3)
	whole := Trajectory{Rewards: []float32{0, 0, 1}, Values: []float32{0.2, 0.5, 0.6}}
	DefaultGAE().Advantages(dst, whole)
	near(t, dst, 0.756, 0.48, 0.4)
	// Cut off where the critic expects 0.8: delta3 = 1 + 0.8 - 0.6 = 1.2; A2 = 0.1 + 1.14, A1 = 0.3 + 1.178.
	cut := whole
	cut.Bootstrap = 0.8
	DefaultGAE().Advantages(dst, cut)
	near(t, dst, 1.478, 1.24, 1.2)
	// gamma 0.5, lambda 0: one-step errors 0.25 - 0.2, 0.3 - 0.5, 1 - 0.6.
	GAE{Gamma: 0.5}.Advantages(dst, whole)
	near(t, dst, 0.05, -0.2, 0.4)
	// gamma 1, lambda 1: return 1 minus the value.
	GAE{Gamma: 1, Lambda: 1}.Advantages(dst, whole)
	near(t, dst, 0.8, 0.5, 0.4)
}

func TestGAEStepsOverTheEnvironmentsTokens(t *testing.T) {
	// The policy's tokens are 1, 2 and 4 and give what TestGAEMatchesNumbersWorkedByHand works out; the
	// tool's reward 0.3 on token 3 counts to token 2: delta2 = 0.1 + 0.3, A2 = 0.78, A1 = 0.3 + 0.741.
	dst := make([]float32, 5)
	DefaultGAE().Advantages(dst, Trajectory{
		Rewards: []float32{0, 0, 0, 0.3, 1},
		Values:  []float32{7, 0.2, 0.5, 7, 0.6},
		Mask:    []uint8{0, 1, 1, 0, 1},
	})
	near(t, dst, 0, 1.041, 0.78, 0, 0.4)
}

// Shifting all rewards changes nothing, and group advantages sum to 0: what makes them advantages.
func TestAdvantagesAreRelative(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 2 + random.IntN(30)
		rewards, shifted := make([]float32, n), make([]float32, n)
		for i := range rewards {
			rewards[i] = float32(random.IntN(9))
			shifted[i] = rewards[i] + 4
		}
		for _, kind := range []Kind{Group, NoStd, LeaveOneOut} {
			a, b := make([]float32, n), make([]float32, n)
			OfGroup(a, rewards, kind)
			OfGroup(b, shifted, kind)
			sum := 0.0
			for i := range a {
				sum += float64(a[i])
				if math.Abs(float64(a[i]-b[i])) > 1e-5 {
					t.Fatalf("%s of %v: %v, shifted %v", kind, rewards, a, b)
				}
			}
			if math.Abs(sum) > 1e-4 {
				t.Fatalf("%s of %v sums to %v", kind, rewards, sum)
			}
		}
	}
}

func TestEveryKindIsComputedInOneWay(t *testing.T) {
	for _, k := range Kinds() {
		if err := k.Validate(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		n := 0
		for _, way := range []bool{k.GroupRelative(), k.UsesBatch(), k == Critic} {
			if way {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is computed in %d ways", k, n)
		}
	}
	err := Kind("grpo").Validate()
	if err == nil || err.Error() != `advantage: grpo: want group, no_std, leave_one_out, log_mean_exp, batch, group_batch or gae` {
		t.Errorf("got %v", err)
	}
}

func TestMisusePanics(t *testing.T) {
	two, three := make([]float32, 2), make([]float32, 3)
	for name, f := range map[string]func(){
		"lengths":     func() { OfGroup(two, three, Group) },
		"batch kind":  func() { OfGroup(two, two, Batch) },
		"group kind":  func() { OfBatch(two, two, nil, Group) },
		"group means": func() { OfBatch(two, two, three, GroupBatch) },
		"values":      func() { DefaultGAE().Advantages(two, Trajectory{Rewards: two, Values: three}) },
		"mask": func() {
			DefaultGAE().Advantages(two, Trajectory{Rewards: two, Values: two, Mask: []uint8{1}})
		},
		"unknown kind": func() { OfGroup(two, two, "") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
