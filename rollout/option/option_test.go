package option_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/reprise-rl/reprise/rollout/option"
)

func Example() {
	var problems option.Problems
	problems.Check(false, "capacity", -1, "1 to %d", 10)
	problems.Check(true, "shards", 1, "1 or more")
	fmt.Println(option.Under("replay", problems.Err()))
	// Output: replay.capacity: -1: want 1 to 10
}

func TestEachTakesNestedJoinsApart(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	if got := option.Each(errors.Join(a, errors.Join(b, c))); len(got) != 3 || got[0] != a || got[2] != c {
		t.Fatalf("Each = %v, want a, b and c", got)
	}
	if got := option.Each(nil); got != nil {
		t.Fatalf("Each(nil) = %v, want none", got)
	}
}

func TestUnderKeepsTheErrorTypeAndItsCause(t *testing.T) {
	cause := errors.New("no such file")
	err := option.Under("task", errors.Join(&option.Error{Key: "size", Value: 0, Want: "1 or more"}, cause))
	var problem *option.Error
	if !errors.As(err, &problem) || problem.Key != "task.size" {
		t.Errorf("As found %v, want the key task.size", problem)
	}
	if !errors.Is(err, cause) {
		t.Errorf("%v does not wrap its cause", err)
	}
	if option.Under("task", nil) != nil {
		t.Error("Under of no error is an error")
	}
}

func TestNoProblemsAreNoError(t *testing.T) {
	var problems option.Problems
	problems.Add(nil, nil)
	if err := problems.Err(); err != nil {
		t.Errorf("Err = %v, want nil", err)
	}
}
