package task

import (
	"slices"
	"testing"
)

func TestOrderVisitsEveryItemOncePerEpoch(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097} {
		o := Order{Seed: 3, Purpose: "test", N: n}
		for epoch := range uint64(3) {
			seen := make([]bool, n)
			for i := range uint64(n) {
				at := o.At(epoch*uint64(n) + i)
				if seen[at] {
					t.Fatalf("n %d, epoch %d: %d occurs twice", n, epoch, at)
				}
				seen[at] = true
			}
		}
	}
}

// Every item is equally likely at every position: 12 positions x 12 items over 2,400 epochs have
// 11 x 11 degrees of freedom; the 99.9% quantile of chi-square is 174.
func TestOrderIsUniform(t *testing.T) {
	const n, epochs = 12, 2400
	o := Order{Seed: 11, Purpose: "test", N: n}
	var counts [n][n]float64
	for i := range uint64(n * epochs) {
		counts[i%n][o.At(i)]++
	}
	chi := 0.0
	for _, row := range counts {
		for _, c := range row {
			chi += (c - epochs/n) * (c - epochs/n) / (epochs / n)
		}
	}
	if chi > 174 {
		t.Errorf("chi-square %.1f over 174", chi)
	}
}

func TestOrderDependsOnSeedPurposeAndEpoch(t *testing.T) {
	base := Order{Seed: 1, Purpose: "a", N: 1000}
	for name, other := range map[string]func(i uint64) int{
		"seed":    Order{Seed: 2, Purpose: "a", N: 1000}.At,
		"purpose": Order{Seed: 1, Purpose: "b", N: 1000}.At,
		"epoch":   func(i uint64) int { return base.At(i + 1000) },
	} {
		same := 0
		for i := range uint64(1000) {
			if base.At(i) == other(i) {
				same++
			}
		}
		if same > 8 { // Poisson of mean 1: above 8 once in a million
			t.Errorf("%d of 1000 positions agree when the %s differs", same, name)
		}
	}
}

func TestPickedItemsAreTheFirstOfTheSequenceInAscendingOrder(t *testing.T) {
	o := Order{Seed: 7, Purpose: "pick", N: 40}
	for _, n := range []int{0, 1, 13, 40} {
		picked := o.Pick(n)
		if len(picked) != n || !slices.IsSorted(picked) {
			t.Fatalf("%d picked as %v", n, picked)
		}
		for i := range n {
			if at := o.At(uint64(i)); !slices.Contains(picked, at) {
				t.Errorf("item %d, the sequence's number %d, is not among the %d picked", at, i, n)
			}
		}
	}
}
