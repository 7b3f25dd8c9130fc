package advantage

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a way to compute advantages.
type Kind string

// The kinds. Epsilon stands under each root.
const (
	Group       Kind = "group"         // (r - group mean) / group std: GRPO
	NoStd       Kind = "no_std"        // r - group mean: Dr. GRPO
	LeaveOneOut Kind = "leave_one_out" // r - mean of the group's others: RLOO
	Batch       Kind = "batch"         // (r - batch mean) / batch std: REINFORCE++
	GroupBatch  Kind = "group_batch"   // r - group mean, then normalised over the batch: REINFORCE++-baseline
	Critic      Kind = "gae"           // generalised advantage estimation with a critic's values: PPO
)

// Kinds returns every kind, the default first.
func Kinds() []Kind { return []Kind{Group, NoStd, LeaveOneOut, Batch, GroupBatch, Critic} }

// Parse returns the kind of that name.
func Parse(name string) (Kind, error) {
	k := Kind(name)
	if err := k.Validate(); err != nil {
		return "", err
	}
	return k, nil
}

// Validate returns an error that lists the kinds if k is none of them.
func (k Kind) Validate() error {
	if slices.Contains(Kinds(), k) {
		return nil
	}
	names := make([]string, len(Kinds()))
	for i, known := range Kinds() {
		names[i] = string(known)
	}
	return fmt.Errorf("advantage is %q: give one of %s", string(k), strings.Join(names, ", "))
}

// GroupRelative tells whether the kind is a function of one group's rewards alone, so that it is
// computed once, at insertion. The others are computed over a batch at the step.
func (k Kind) GroupRelative() bool { return k == Group || k == NoStd || k == LeaveOneOut }

// UsesBatch tells whether the kind normalises over the training batch at each use.
func (k Kind) UsesBatch() bool { return k == Batch || k == GroupBatch }
