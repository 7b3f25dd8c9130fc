package countdown

import (
	"math/big"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// values returns everything that the numbers are worth, all of them used, by dividing them into two in every way:
// another search than Solve's, in other arithmetic.
func values(numbers []int, operations string) map[string]bool {
	found := map[string]bool{}
	if len(numbers) == 1 {
		found[big.NewRat(int64(numbers[0]), 1).RatString()] = true
		return found
	}
	for split := 1; split < 1<<len(numbers)-1; split++ {
		var left, right []int
		for i, n := range numbers {
			if split>>i&1 == 1 {
				left = append(left, n)
			} else {
				right = append(right, n)
			}
		}
		for x := range values(left, operations) {
			for y := range values(right, operations) {
				for _, op := range []byte(operations) {
					a, _ := new(big.Rat).SetString(x)
					b, _ := new(big.Rat).SetString(y)
					if v := apply(op, a, b); v != nil {
						found[v.RatString()] = true
					}
				}
			}
		}
	}
	return found
}

// someValues is values of every choice of at least one of the numbers.
func someValues(numbers []int, operations string) map[string]bool {
	found := map[string]bool{}
	for choice := 1; choice < 1<<len(numbers); choice++ {
		var chosen []int
		for i, n := range numbers {
			if choice>>i&1 == 1 {
				chosen = append(chosen, n)
			}
		}
		for v := range values(chosen, operations) {
			found[v] = true
		}
	}
	return found
}

func TestSolverFindsExactlyWhatThereIs(t *testing.T) {
	for seed := range uint64(60) {
		r := rollout.Stream(seed, "countdown test solve", 0)
		numbers := make([]int, 1+r.IntN(4))
		for i := range numbers {
			numbers[i] = r.IntN(13)
		}
		operations := []string{"+-*/", "+-", "*/", "-", "+*"}[r.IntN(5)]
		all, some := values(numbers, operations), someValues(numbers, operations)
		for range 25 {
			target := r.IntN(60)
			for _, whole := range []bool{true, false} {
				name := big.NewRat(int64(target), 1).RatString()
				there := all[name]
				if !whole {
					there = some[name]
				}
				text, found := solve(numbers, target, operations, whole)
				if found != there {
					t.Fatalf("seed %d: %v %q to %d, all %v: %q, %v, want %v", seed, numbers, operations, target, whole,
						text, found, there)
				}
				if !found {
					continue
				}
				e, err := parse(text)
				if err != nil || e.value == nil || e.value.Cmp(big.NewRat(int64(target), 1)) != 0 {
					t.Fatalf("%v to %d: %q is %v, %v", numbers, target, text, e.value, err)
				}
				v := Verifier{Use: Any}
				if !v.allows(e.numbers, numbers) || whole && len(e.numbers) != len(numbers) {
					t.Fatalf("%v to %d: %q uses %v", numbers, target, text, e.numbers)
				}
			}
		}
	}
}

func TestSolverNeedsFractionsAndRefusesWhatItCannotCount(t *testing.T) {
	if text, ok := solve([]int{3, 3, 8, 8}, 24, "+-*/", true); !ok || text != "8/(3-8/3)" {
		t.Errorf("3 3 8 8 to 24: %q, %v", text, ok)
	}
	for _, numbers := range [][]int{nil, {1, 2, 3, 4, 5, 6, 7}, {501, 1}, {-1, 2}} {
		if text, ok := solve(numbers, 3, "+-*/", true); ok {
			t.Errorf("%v: %q", numbers, text)
		}
	}
}

// The greatest numbers on the way are exact: 500^6 from six numbers, and sums of fractions with such denominators.
func TestFractionsOfTheLargestNumbersDoNotOverflow(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rollout.Stream(seed, "countdown test fractions", 0)
		values := make([]fraction, 6)
		exact := make([]*big.Rat, 6)
		for i := range values {
			n := maxNumber - r.IntN(4)
			values[i], exact[i] = whole(n), big.NewRat(int64(n), 1)
		}
		for len(values) > 1 {
			i := r.IntN(len(values) - 1)
			op := "+-*/"[r.IntN(4)]
			v, ok := combine(op, values[i], values[i+1])
			want := apply(op, exact[i], exact[i+1])
			if ok != (want != nil) {
				t.Fatalf("seed %d: %c: %v, %v", seed, op, ok, want)
			}
			if !ok {
				break
			}
			if big.NewRat(v.num, v.den).Cmp(want) != 0 || v.den < 1 || big.NewInt(v.den).Cmp(want.Denom()) != 0 {
				t.Fatalf("seed %d: %v, want %v", seed, v, want)
			}
			values, exact = slices.Delete(values, i, i+1), slices.Delete(exact, i, i+1)
			values[i], exact[i] = v, want
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for b.Loop() {
		if _, found := solve([]int{1, 1, 1, 2}, 97, "+-*/", true); found {
			b.Fatal("found")
		}
	}
}
