package objective

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/internal/tests"
)

// armRewards are a one-token task: three arms, of which arm 0 is the best.
func armRewards() [3]float64 { return [3]float64{1, 0.6, 0} }

// staleBehaviour hardly ever takes the best arm and often the second. The policy gradient on its rollouts without a
// ratio moves logit k in proportion to b_k A_k: with mean 0.02 + 0.58*0.6 = 0.368 these are 0.013, 0.135 and -0.147, so
// that it goes to arm 1, reward 0.6. With the ratio it is pi_k A_k less its mean, and goes to arm 0.
func staleBehaviour() [3]float64 { return [3]float64{0.02, 0.58, 0.40} }

// bandit is a softmax policy of three logits, with a critic of one value, that learns from a table of one-token
// rollouts. The rollouts of an arm are one row, whose weight is their number.
type bandit struct {
	t         testing.TB
	objective Objective
	kind      advantage.Kind
	exec      *Exec
	rate      float64
	uses      int  // steps on each batch: r' is of the first
	untrue    bool // the ratios are taken as 1: the uncorrected loss

	logits [3]float64
	value  float64
	steps  int
	anchor [3]float64 // policy at the start of the batch
	ref    [3]float64 // reference policy, swapped every 20 steps
}

func newBandit(t testing.TB, o Objective, kind advantage.Kind) *bandit {
	b := &bandit{t: t, objective: o, kind: kind, uses: 1, rate: 2}
	b.exec = MustNewExec(newBackend(t), func(in []*Node) []*Node {
		logits, value, rows := in[0], in[1], in[2]
		row := func(i int) *Node { return Reshape(SliceAxis(rows, 0, AxisElem(i)), 3) }
		column := func(x *Node) *Node { return ExpandAxes(x, -1) }
		chosen := column(LogSoftmax(logits))
		n := ReduceAllSum(row(0))
		out := o.Loss(Inputs{Logprobs: chosen, Mask: OnesLike(chosen), Weight: row(0), Behaviour: column(row(1)),
			Advantage: column(row(2)),
			Reward:    row(3), GroupMean: row(4), Reference: column(row(5)), Anchor: column(row(6)),
			Values: BroadcastToShape(ExpandLeftToRank(value, 2), chosen.Shape()), OldValues: column(row(7)),
			Returns:      column(row(3)),
			SecondMoment: ReduceAllMax(row(8)), Rollouts: n, Tokens: n})
		return Gradient(out.Loss, logits, value)
	})
	return b
}

func softmax(logits [3]float64) (p [3]float64) {
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(l)
	}
	for k, l := range logits {
		p[k] = math.Exp(l) / sum
	}
	return p
}

func (b *bandit) policy() [3]float64 { return softmax(b.logits) }

// advantages returns those of each arm in a batch, which is one group, by the kind, and the mean reward.
func (b *bandit) advantages(arms [3]int) (of [3]float64, mean float64) {
	var rewards []float32
	for k, n := range arms {
		rewards = append(rewards, slices.Repeat([]float32{float32(armRewards()[k])}, n)...)
	}
	mean = advantage.MomentsOf(rewards).Mean
	switch {
	case b.kind == advantage.Critic: // one token: its reward less its value
		for i := range rewards {
			rewards[i] -= float32(b.value)
		}
		advantage.Normalize(rewards)
	case b.kind.UsesBatch():
		advantage.OfBatch(rewards, rewards, slices.Repeat([]float32{float32(mean)}, len(rewards)), b.kind)
	default:
		advantage.OfGroup(rewards, rewards, b.kind)
	}
	next := 0
	for k, n := range arms {
		if n > 0 {
			of[k] = float64(rewards[next])
		}
		next += n
	}
	return of, mean
}

// step learns from a batch that behaviour drew, given by the number of rollouts of each arm.
func (b *bandit) step(arms [3]int, behaviour [3]float64) {
	if b.steps%b.uses == 0 {
		b.anchor = b.policy()
	}
	if b.steps%20 == 0 {
		b.ref = b.policy()
	}
	if b.untrue {
		behaviour, b.anchor = b.policy(), b.policy()
	}
	b.steps++
	of, mean := b.advantages(arms)
	rows := make([]float64, 9*3)
	var tokens []Moment
	for k, n := range arms {
		tokens = append(tokens, slices.Repeat([]Moment{{math.Log(b.policy()[k] / behaviour[k]), of[k]}}, n)...)
	}
	bound := SecondMoment(tokens, b.objective.Needs().SecondMoment)
	for k, n := range arms {
		for i, x := range []float64{float64(n), math.Log(behaviour[k]), of[k], armRewards()[k], mean,
			math.Log(b.ref[k]), math.Log(b.anchor[k]), b.value, bound} {
			rows[3*i+k] = x
		}
	}
	out, err := b.exec.Call(tensors.FromFlatDataAndDimensions(b.logits[:], 3), tensors.FromScalar(b.value),
		tensors.FromFlatDataAndDimensions(rows, 9, 3))
	if err != nil {
		b.t.Fatal(err)
	}
	for k, g := range out[0].Value().([]float64) {
		b.logits[k] -= b.rate * g
	}
	b.value -= min(b.rate, 1) * tensors.ToScalar[float64](out[1])
}

func (b *bandit) expected() (reward float64) {
	for k, p := range b.policy() {
		reward += p * armRewards()[k]
	}
	return reward
}

// draw draws n rollouts of a policy and counts those of each arm.
func draw(rng *rand.Rand, policy [3]float64, n int) (arms [3]int) {
	for range n {
		u, k := rng.Float64(), 0
		for ; k < 2 && u >= policy[k]; k++ {
			u -= policy[k]
		}
		arms[k]++
	}
	return arms
}

// expectedArms are as many rollouts of each arm as the stale behaviour draws in expectation.
func expectedArms() (arms [3]int) {
	for k, p := range staleBehaviour() {
		arms[k] = int(100*p + 0.5)
	}
	return arms
}

// contender is an objective with the advantages that it takes.
type contender struct {
	objective Objective
	kind      advantage.Kind
	uses      int
}

// contenders returns the objectives with a ratio; clip and high are the bounds of the ratio, 0: the defaults. Those
// with r' exact keep the default clip, as it is centred on the policy.
func contenders(low, high float64) map[string]contender {
	grpo := GRPO{ClipLow: low, ClipHigh: high}
	variant := func(method string) GRPO {
		o := grpo
		o.Method = method
		if method == DrGRPO {
			o.ConstantLength = 1
		}
		return o
	}
	gspo := grpo
	gspo.Ratio = SequenceRatio
	decoupled := grpo
	decoupled.Corrections.Proximal = ProximalRecompute
	truncated := decoupled
	truncated.Corrections.Steps = []Correction{{Kind: Truncate, High: 100}}
	return map[string]contender{
		"cispo":                {variant(CISPO), advantage.Group, 1},
		"decoupled":            {decoupled, advantage.Group, 1},
		"decoupled, 4":         {decoupled, advantage.Group, 4},
		"truncated":            {truncated, advantage.Group, 1},
		"grpo":                 {grpo, advantage.Group, 1},
		"grpo sequence":        {gspo, advantage.Group, 1},
		"grpo_off":             {OffPolicyGRPO{Clip: high}, advantage.Group, 1},
		"grpo_off kl":          {OffPolicyGRPO{Clip: high, KLCoef: 0.05, KLWeighted: true}, advantage.Group, 1},
		"grpo_off exact":       {OffPolicyGRPO{RPrime: RPrimeExact}, advantage.Group, 1},
		"grpo_off exact, 4":    {OffPolicyGRPO{RPrime: RPrimeExact}, advantage.Group, 4},
		"ppo":                  {PPO{Surrogate: grpo}, advantage.Critic, 1},
		"reinforce++":          {variant(ReinforcePP), advantage.Batch, 1},
		"reinforce++-baseline": {variant(ReinforcePPBaseline), advantage.GroupBatch, 1},
		"rloo":                 {variant(RLOO), advantage.LeaveOneOut, 1},
		"dr_grpo":              {variant(DrGRPO), advantage.NoStd, 1},
	}
}

func TestOnPolicyEveryObjectiveReachesTheBestArm(t *testing.T) {
	all := contenders(0, 0)
	all["asymre"] = contender{AsymRE{}, advantage.Group, 1}
	all["raft"] = contender{RAFT{}, advantage.Group, 1}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			if name != "grpo" && name != RLOO {
				tests.Long(t)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			b := newBandit(t, c.objective, c.kind)
			b.rate = 0.5
			for range 300 {
				b.step(draw(rng, b.policy(), 64), b.policy())
			}
			if b.expected() < 0.97 {
				t.Errorf("policy %.3f: reward %.3f, want 0.97 of the best arm's 1", b.policy(), b.expected())
			}
		})
	}
}

func TestFromAStaleTableOnlyTheRatioFindsTheBestArm(t *testing.T) {
	for name, c := range contenders(1, 100) {
		t.Run(name, func(t *testing.T) {
			if name != "grpo" && name != RLOO {
				tests.Long(t)
			}
			learn := func(untrue bool) *bandit {
				b := newBandit(t, c.objective, c.kind)
				b.untrue, b.uses, b.rate = untrue, c.uses, 2/float64(c.uses)
				for range 250 * c.uses {
					b.step(expectedArms(), staleBehaviour())
				}
				return b
			}
			if b := learn(false); b.expected() < 0.95 {
				t.Errorf("corrected: policy %.3f, reward %.3f: want 0.95 of the best arm's 1", b.policy(), b.expected())
			}
			if b := learn(true); b.expected() > 0.65 || b.policy()[1] < 0.9 {
				t.Errorf("uncorrected: policy %.3f, reward %.3f: want the frequent arm's 0.6", b.policy(), b.expected())
			}
		})
	}
}

// The weight k of the best arm goes up to 1/0.02 = 50. A truncation far below it leaves the best arm with a share of the
// gradient that the frequent one exceeds, and the policy stays there; so does a mask that drops its rollouts.
func TestATruncationFindsTheBestArmIfItLetsItsWeightThrough(t *testing.T) {
	learn := func(step Correction) float64 {
		o := GRPO{Corrections: Corrections{ProximalRecompute, []Correction{step}}}
		b := newBandit(t, o, advantage.Group)
		for range 250 {
			b.step(expectedArms(), staleBehaviour())
		}
		return b.expected()
	}
	for _, level := range []Level{LevelToken, LevelSequence, LevelProduct} { // of one token
		for high, found := range map[float64]bool{2: false, 5: false, 50: true} {
			if reward := learn(Correction{Kind: Truncate, Level: level, High: high}); (reward > 0.95) != found {
				t.Errorf("truncated at %g by %s: reward %.3f, the best arm found: want %v", high, level, reward, found)
			}
		}
	}
	for high, found := range map[float64]bool{5: false, 60: true} {
		if reward := learn(Correction{Kind: MaskRatio, Low: 0, High: high}); (reward > 0.95) != found {
			t.Errorf("masked above %g: reward %.3f, the best arm found: want %v", high, reward, found)
		}
	}
}

// The other corrections hold the policy within a distance of the behaviour. With bounds that the best arm's weight of 50
// does not exceed they find it; with their defaults they do not. OPSM drops rollouts that the policy has left already,
// so it finds it with either. Without k, nothing does.
func TestMasksFindTheBestArmIfTheyLetTheRatioThrough(t *testing.T) {
	for name, c := range map[string]struct {
		corrections Corrections
		found       bool
	}{
		"unweighted":    {Corrections{Proximal: ProximalUnweighted}, false},
		"m2po":          {Corrections{Steps: []Correction{{Kind: M2PO}}}, false},
		"m2po, loose":   {Corrections{Steps: []Correction{{Kind: M2PO, Limit: 16}}}, true}, // log(50)^2 is 15.3
		"dppo":          {Corrections{Steps: []Correction{{Kind: DPPO}}}, false},
		"dppo, loose":   {Corrections{Steps: []Correction{{Kind: DPPO, Low: 1, High: 1}}}, true},
		"opsm":          {Corrections{Steps: []Correction{{Kind: OPSM}}}, true},
		"opsm, loose":   {Corrections{Steps: []Correction{{Kind: OPSM, Limit: 10}}}, true},
		"product":       {Corrections{Steps: []Correction{{Kind: MaskRatio, Level: LevelProduct}}}, false},
		"loose product": {Corrections{Steps: []Correction{{Kind: MaskRatio, Level: LevelProduct, High: 60}}}, true},
	} {
		b := newBandit(t, GRPO{ClipLow: 1, ClipHigh: 100, Corrections: c.corrections}, advantage.Group)
		for k, p := range staleBehaviour() {
			b.logits[k] = math.Log(p)
		}
		for range 400 {
			b.step(expectedArms(), staleBehaviour())
		}
		if reward := b.expected(); (reward > 0.95) != c.found {
			t.Errorf("%s: policy %.3f, reward %.3f, the best arm found: want %v", name, b.policy(), reward, c.found)
		}
	}
}

// A clip around ratio 1 lets no arm gain much over its probability under the behaviour policy: from a stale table the
// policy stops near b, and the optimum needs new rollouts, as in the tests below, or a clip around r'.
func TestAClipAroundOneHoldsThePolicyAtTheBehaviour(t *testing.T) {
	b := newBandit(t, GRPO{}, advantage.Group)
	for k, p := range staleBehaviour() {
		b.logits[k] = math.Log(p)
	}
	for range 250 {
		b.step(expectedArms(), staleBehaviour())
	}
	if p := b.policy(); p[0] < 0.021 || p[0] > 0.03 || p[2] > 0.33 {
		t.Errorf("policy %.3f: want a step away from %.3f and no more", p, staleBehaviour())
	}
}

// refreshed are the settings of a table that is refreshed with rollouts of the policy, and learned from in between.
type refreshed struct {
	rate                    float64
	tables, rollouts, steps int
}

// learn returns a bandit that began at the stale behaviour.
func (r refreshed) learn(t *testing.T, c contender, untrue bool) *bandit {
	rng := rand.New(rand.NewPCG(3, 4))
	b := newBandit(t, c.objective, c.kind)
	b.untrue, b.uses, b.rate = untrue, c.uses, r.rate
	for k, p := range staleBehaviour() {
		b.logits[k] = math.Log(p)
	}
	for range r.tables {
		behaviour := b.policy()
		arms := draw(rng, behaviour, r.rollouts)
		for range r.steps {
			b.step(arms, behaviour)
		}
	}
	return b
}

// Every corrected objective reaches the optimum. The uncorrected loss stays with the frequent arm where the steps on
// one table take the policy far from what drew it. How far that is depends on the objective too: rloo and dr_grpo do
// not divide by the rewards' standard deviation, so that their steps are the smaller the more of a table is one arm,
// and at the lower rate the policy stays near enough to its tables.
func TestFromATableRefreshedNowAndThenTheRatioFindsTheBestArm(t *testing.T) {
	for name, c := range contenders(0, 0) {
		for setting, r := range map[string]refreshed{"long steps": {2, 30, 120, 20},
			"more and shorter steps": {0.5, 60, 200, 40}} {
			t.Run(name+", "+setting, func(t *testing.T) {
				if name != "grpo" && name != RLOO {
					tests.Long(t)
				}
				if b := r.learn(t, c, false); b.expected() < 0.95 {
					t.Errorf("corrected: policy %.3f, reward %.3f: want 0.95 of the best arm's 1", b.policy(),
						b.expected())
				}
				small := r.rate < 1 && (name == RLOO || name == DrGRPO)
				switch b := r.learn(t, c, true); {
				case small && b.expected() < 0.95:
					t.Errorf("uncorrected: policy %.3f, reward %.3f: want the best arm's 1, as its steps are small",
						b.policy(), b.expected())
				case !small && b.expected() > 0.65:
					t.Errorf("uncorrected: policy %.3f, reward %.3f: want the frequent arm's 0.6", b.policy(),
						b.expected())
				}
			})
		}
	}
}

// A table that is used for few short steps needs no correction: its rollouts are nearly the policy's own.
func TestFromATableThatIsHardlyUsedTheUncorrectedLossFindsTheBestArmToo(t *testing.T) {
	c := contenders(0, 0)["grpo"]
	for _, untrue := range []bool{false, true} {
		if b := (refreshed{0.5, 60, 120, 10}).learn(t, c, untrue); b.expected() < 0.95 {
			t.Errorf("uncorrected %v: policy %.3f, reward %.3f: want 0.95 of the best arm's 1", untrue, b.policy(),
				b.expected())
		}
	}
}
