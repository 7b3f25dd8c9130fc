// Package advantage turns rewards into advantages: how much better a rollout was than expected.
//
// [Kind] says what was expected. The group-relative kinds ([Group], [NoStd], [LeaveOneOut], [LogMeanExp]) compare a
// rollout with the others of its prompt. They are computed once, when the group enters a table ([OfGroup]). The other
// kinds are computed at each use, because they depend on the training batch ([OfBatch]) or on a critic that changes
// ([GAE]).
//
// Rewards must be finite. Sums are in float64 and in the order given, so equal input gives equal bits. Nothing here
// keeps state; everything is safe for concurrent use.
package advantage

import (
	"fmt"
	"math"
	"slices"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Kind is a way to compute advantages.
type Kind string

// The kinds. Standard deviations have [Epsilon] under the root.
const (
	Group       Kind = "group"         // (r - group mean) / group std: GRPO
	NoStd       Kind = "no_std"        // r - group mean: Dr. GRPO
	LeaveOneOut Kind = "leave_one_out" // r - mean of the others in the group: RLOO
	LogMeanExp  Kind = "log_mean_exp"  // r - log mean exp r of the group: OAPL
	Batch       Kind = "batch"         // (r - batch mean) / batch std: REINFORCE++
	GroupBatch  Kind = "group_batch"   // r - group mean, then normalised over the batch: REINFORCE++-baseline
	Critic      Kind = "gae"           // generalised advantage estimation with a critic's values: PPO
)

// Kinds returns every kind, the default first.
func Kinds() []Kind { return []Kind{Group, NoStd, LeaveOneOut, LogMeanExp, Batch, GroupBatch, Critic} }

// Values returns every kind as text.
func (Kind) Values() []string {
	var names []string
	for _, kind := range Kinds() {
		names = append(names, string(kind))
	}
	return names
}

// Validate reports a kind that does not exist.
func (k Kind) Validate() error {
	if slices.Contains(Kinds(), k) {
		return nil
	}
	return &option.Error{Key: "advantage", Value: string(k), Want: option.List(k.Values())}
}

// GroupRelative reports whether the rewards of one group are all that the kind depends on.
func (k Kind) GroupRelative() bool { return slices.Contains(Kinds()[:4], k) }

// UsesBatch reports whether the kind normalises over the training batch.
func (k Kind) UsesBatch() bool { return k == Batch || k == GroupBatch }

// OfGroup writes the group-relative advantages of one group's rewards to dst, which may be rewards itself. It returns
// the moments of the rewards. If all rewards are equal, the advantages are 0. It panics if the lengths differ or the
// kind is not group-relative.
func OfGroup(dst, rewards []float32, kind Kind) Moments { return Among(dst, rewards, rewards, kind) }

// Among is [OfGroup] of rewards that are some of a larger set, with which it compares them: dst gets the advantage of
// each of rewards, and all the moments are of compared. dst may be rewards or compared.
func Among(dst, rewards, compared []float32, kind Kind) Moments {
	checkLength(dst, rewards)
	if !kind.GroupRelative() {
		panic(fmt.Sprintf("advantage: kind %q is not group-relative", string(kind)))
	}
	m := MomentsOf(compared)
	centre, scale := m.Mean, 1.0
	switch kind {
	case Group:
		scale = 1 / math.Sqrt(m.Var+Epsilon)
	case LeaveOneOut: // r - (sum - r)/(n - 1) = n/(n - 1) (r - mean)
		n := float64(len(compared))
		scale = n / (n - 1)
	case LogMeanExp:
		centre = logMeanExp(compared)
	}
	m.standardize(dst, rewards, centre, scale)
	return m
}

// OfBatch writes advantages normalised over a training batch to dst, which may be rewards itself. It returns the
// moments of what it normalised. groupMeans has the mean reward of each rollout's group; only [GroupBatch] reads it. If
// all values are equal, the advantages are 0. It panics if the lengths differ or the kind does not use the batch.
func OfBatch(dst, rewards, groupMeans []float32, kind Kind) Moments {
	checkLength(dst, rewards)
	switch kind {
	case Batch:
		copy(dst, rewards)
	case GroupBatch:
		checkLength(groupMeans, rewards)
		for i, r := range rewards {
			dst[i] = r - groupMeans[i]
		}
	default:
		panic(fmt.Sprintf("advantage: kind %q does not normalise over a batch", string(kind)))
	}
	return Normalize(dst)
}

// Normalize shifts and scales values in place to mean 0 and population variance 1 and returns their moments before.
// Equal values become 0.
func Normalize(values []float32) Moments {
	m := MomentsOf(values)
	m.standardize(values, values, m.Mean, 1/math.Sqrt(m.Var+Epsilon))
	return m
}

func checkLength(dst, src []float32) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("advantage: %d numbers in, room for %d out", len(src), len(dst)))
	}
}

// Epsilon is added to a variance under the root ([OG]).
const Epsilon = 1e-8

// Moments are the statistics of the rewards of a group or batch.
type Moments struct {
	Mean float64
	Var  float64 // population variance
	Zero bool    // all rewards are equal, so comparing them teaches nothing
}

// Std returns the population standard deviation, without [Epsilon].
func (m Moments) Std() float64 { return math.Sqrt(m.Var) }

// MomentsOf returns the moments of rewards. Zero compares the largest reward with the smallest, because a variance
// computed from rounded sums need not be 0 for equal rewards.
func MomentsOf(rewards []float32) Moments {
	if len(rewards) == 0 {
		return Moments{Zero: true}
	}
	if lowest := slices.Min(rewards); lowest == slices.Max(rewards) {
		return Moments{Mean: float64(lowest), Zero: true}
	}
	var m Moments
	n := float64(len(rewards))
	for _, r := range rewards {
		m.Mean += float64(r)
	}
	m.Mean /= n
	for _, r := range rewards {
		d := float64(r) - m.Mean
		m.Var += d * d
	}
	m.Var /= n
	return m
}

// logMeanExp returns log mean exp r, without overflow: between the mean and the largest.
func logMeanExp(rewards []float32) float64 {
	largest, sum := float64(slices.Max(rewards)), 0.0
	for _, r := range rewards {
		sum += math.Exp(float64(r) - largest)
	}
	return largest + math.Log(sum/float64(len(rewards)))
}

// standardize writes (value - centre) scale to dst, exactly 0 if the values are all equal.
func (m Moments) standardize(dst, values []float32, centre, scale float64) {
	for i, v := range values {
		if m.Zero {
			dst[i] = 0
			continue
		}
		dst[i] = float32((float64(v) - centre) * scale)
	}
}

// GAE is generalised advantage estimation over the tokens that the policy produced:
//
//	A_t = sum_k (Gamma Lambda)^k delta_{t+k},  delta_t = r_t + Gamma V_{t+1} - V_t
type GAE struct {
	Gamma  float64 // discount per token, in [0, 1]
	Lambda float64 // 0: one-step errors; 1: Monte Carlo returns minus values
}

// DefaultGAE returns Gamma 1 and Lambda 0.95, the usual choice for language models.
func DefaultGAE() GAE { return GAE{Gamma: 1, Lambda: 0.95} }

// Trajectory is one rollout of L tokens as [GAE] sees it.
type Trajectory struct {
	Rewards   []float32 // [L] per token; the reward of the whole rollout is on the policy's last token
	Values    []float32 // [L] the critic's value before the token
	Mask      []uint8   // [L] 1 where the policy produced the token; nil: everywhere
	Bootstrap float32   // value after the last token: 0 if the episode ended, the critic's if it was truncated
}

// Advantages writes the advantage of each token to dst [L], 0 where the mask is 0. The state after a policy token is
// the next policy token: tokens of the environment in between are skipped, and their rewards count for the policy token
// before them. A critic is fitted to the advantage plus the value. It panics if lengths differ.
func (g GAE) Advantages(dst []float32, t Trajectory) {
	checkLength(dst, t.Rewards)
	checkLength(dst, t.Values)
	if t.Mask != nil && len(t.Mask) != len(dst) {
		panic("advantage: the mask's length differs from the rewards'")
	}
	next, carried, skipped := float64(t.Bootstrap), 0.0, 0.0
	for i := len(dst) - 1; i >= 0; i-- {
		reward := float64(t.Rewards[i])
		if t.Mask != nil && t.Mask[i] == 0 {
			dst[i] = 0
			skipped += reward
			continue
		}
		value := float64(t.Values[i])
		carried = reward + skipped + g.Gamma*next - value + g.Gamma*g.Lambda*carried
		dst[i] = float32(carried)
		next, skipped = value, 0
	}
}
