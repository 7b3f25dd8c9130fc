package objective

import (
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/reprise-rl/reprise/advantage"
)

// armRewards are a one-token task: three arms, of which arm 0 is the best.
func armRewards() [3]float64 { return [3]float64{1, 0.6, 0} }

// staleBehaviour hardly ever takes the best arm and often the second. The policy gradient on its rollouts without a ratio
// moves logit k in proportion to b_k A_k: with mean 0.02 + 0.58*0.6 = 0.368 these are 0.013, 0.135 and -0.147, so that it
// goes to arm 1, reward 0.6. With the ratio it is pi_k A_k less its mean, and goes to arm 0.
func staleBehaviour() [3]float64 { return [3]float64{0.02, 0.58, 0.40} }

// bandit is a softmax policy of three logits, with a critic of one value, that learns from a table of one-token rollouts.
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
		logits, value, arms := in[0], in[1], in[2]
		column := func(x *Node) *Node { return ExpandAxes(x, -1) }
		chosen := column(ReduceSum(Mul(OneHot(arms, 3, logits.DType()), ExpandAxes(LogSoftmax(logits), 0)), 1))
		n := Scalar(logits.Graph(), logits.DType(), float64(arms.Shape().Dim(0)))
		out := o.Loss(Inputs{Logprobs: chosen, Mask: OnesLike(chosen), Behaviour: column(in[3]), Advantage: column(in[4]),
			Reward: in[5], GroupMean: in[6], Reference: column(in[7]), Anchor: column(in[8]),
			Values: BroadcastToShape(ExpandLeftToRank(value, 2), chosen.Shape()), OldValues: column(in[9]), Returns: column(in[5]),
			Rollouts: n, Tokens: n})
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

// advantages of the arms of a batch, which is one group, by the kind.
func (b *bandit) advantages(arms []int32) []float64 {
	rewards, means := make([]float32, len(arms)), make([]float32, len(arms))
	for i, k := range arms {
		rewards[i] = float32(armRewards()[k])
	}
	mean := advantage.MomentsOf(rewards).Mean
	for i := range means {
		means[i] = float32(mean)
	}
	switch {
	case b.kind == advantage.Critic: // one token: its reward less its value
		for i := range rewards {
			rewards[i] -= float32(b.value)
		}
		advantage.Normalize(rewards)
	case b.kind.UsesBatch():
		advantage.OfBatch(rewards, rewards, means, b.kind)
	default:
		advantage.OfGroup(rewards, rewards, b.kind)
	}
	list := make([]float64, len(arms))
	for i, a := range rewards {
		list[i] = float64(a)
	}
	return list
}

// step learns from a batch of arms that behaviour drew.
func (b *bandit) step(arms []int32, behaviour [3]float64) {
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
	of := func(p [3]float64) []float64 {
		list := make([]float64, len(arms))
		for i, k := range arms {
			list[i] = math.Log(p[k])
		}
		return list
	}
	rewards, means, old, mean := make([]float64, len(arms)), make([]float64, len(arms)), make([]float64, len(arms)), 0.0
	for i, k := range arms {
		rewards[i], old[i] = armRewards()[k], b.value
		mean += rewards[i] / float64(len(arms))
	}
	for i := range means {
		means[i] = mean
	}
	out, err := b.exec.Call(b.logits[:], b.value, arms, of(behaviour), b.advantages(arms), rewards, means, of(b.ref), of(b.anchor), old)
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

// draw takes n arms of a policy.
func draw(rng *rand.Rand, policy [3]float64, n int) []int32 {
	arms := make([]int32, n)
	for i := range arms {
		u := rng.Float64()
		for k := 0; k < 2 && u >= policy[k]; k++ {
			u -= policy[k]
			arms[i]++
		}
	}
	return arms
}

// expectedArms are as many rollouts of each arm as the stale behaviour draws in expectation.
func expectedArms() (arms []int32) {
	for k, p := range staleBehaviour() {
		for range int(100*p + 0.5) {
			arms = append(arms, int32(k))
		}
	}
	return arms
}

// contender is an objective with the advantages that it takes.
type contender struct {
	objective Objective
	kind      advantage.Kind
	uses      int
}

// contenders returns the objectives with a ratio; clip and high are the bounds of the ratio, 0: the defaults. Those with
// r' exact keep the default clip, as it is centred on the policy.
func contenders(low, high float64) map[string]contender {
	grpo := GRPO{ClipLow: low, ClipHigh: high}
	dr := grpo
	dr.ConstantLength = 1
	gspo := grpo
	gspo.Ratio = SequenceRatio
	return map[string]contender{
		"grpo":                 {grpo, advantage.Group, 1},
		"grpo sequence":        {gspo, advantage.Group, 1},
		"grpo_off":             {OffPolicyGRPO{Clip: high}, advantage.Group, 1},
		"grpo_off kl":          {OffPolicyGRPO{Clip: high, KLCoef: 0.05, KLWeighted: true}, advantage.Group, 1},
		"grpo_off exact":       {OffPolicyGRPO{RPrime: RPrimeExact}, advantage.Group, 1},
		"grpo_off exact, 4":    {OffPolicyGRPO{RPrime: RPrimeExact}, advantage.Group, 4},
		"ppo":                  {PPO{Surrogate: grpo}, advantage.Critic, 1},
		"reinforce++":          {Variant{ReinforcePP, grpo}, advantage.Batch, 1},
		"reinforce++-baseline": {Variant{ReinforcePPBaseline, grpo}, advantage.GroupBatch, 1},
		"rloo":                 {Variant{RLOO, grpo}, advantage.LeaveOneOut, 1},
		"dr_grpo":              {Variant{DrGRPO, dr}, advantage.NoStd, 1},
	}
}

func TestOnPolicyEveryObjectiveReachesTheBestArm(t *testing.T) {
	all := contenders(0, 0)
	all["asymre"] = contender{AsymRE{}, advantage.Group, 1}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
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

// A clip around ratio 1 lets no arm gain much over its probability under the behaviour policy: from a stale table the policy
// stops near b, and the optimum needs new rollouts, as in the test below, or a clip around r'.
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

func TestFromATableRefreshedNowAndThenOnlyTheRatioFindsTheBestArm(t *testing.T) {
	for name, c := range contenders(0, 0) {
		t.Run(name, func(t *testing.T) {
			learn := func(untrue bool) *bandit {
				rng := rand.New(rand.NewPCG(3, 4))
				b := newBandit(t, c.objective, c.kind)
				b.untrue, b.uses = untrue, c.uses
				for k, p := range staleBehaviour() {
					b.logits[k] = math.Log(p)
				}
				for range 30 { // tables, each learned from 20 times
					behaviour := b.policy()
					arms := draw(rng, behaviour, 120)
					for range 20 {
						b.step(arms, behaviour)
					}
				}
				return b
			}
			if b := learn(false); b.expected() < 0.95 {
				t.Errorf("corrected: policy %.3f, reward %.3f: want 0.95 of the best arm's 1", b.policy(), b.expected())
			}
			if b := learn(true); b.expected() > 0.65 {
				t.Errorf("uncorrected: policy %.3f, reward %.3f: want the frequent arm's 0.6", b.policy(), b.expected())
			}
		})
	}
}
