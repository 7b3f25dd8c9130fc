package run

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
)

// Settings whose zero means something beside their default are pointers: frozenlake's slippery is true unless it is
// said.
func TestSettingsThatMayBeLeftOutAreReadAsTheyAreGiven(t *testing.T) {
	for assignment, outcomes := range map[string]int{"": 3, "slippery=true": 3, "slippery=false": 1,
		"slippery=null": 3} {
		var assignments []string
		if assignment != "" {
			assignments = append(assignments, assignment)
		}
		made, err := NewTask("frozenlake", assignments, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(made.(task.Tabular).Transitions()[0][0]); got != outcomes {
			t.Errorf("%q: %d outcomes, want %d", assignment, got, outcomes)
		}
	}
	made, err := NewTask("frozenlake", []string{"invalid_penalty=0"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if step := made.(task.Environment).Reset(made.Train(0), 1).Step("?"); step.Reward != 0 {
		t.Errorf("a penalty of 0 is %g", step.Reward)
	}
	for assignment, want := range map[string]string{"slippery=perhaps": "slippery: perhaps: want true or false",
		"invalid_penalty=x": "invalid_penalty: x: want a number"} {
		if _, err := NewTask("frozenlake", []string{assignment}, 1); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", assignment, err, want)
		}
	}
}

func TestNamesOfOtherTrainersAreThoseOfKeysThatExist(t *testing.T) {
	all := reader().EveryKey("", reflect.TypeFor[Config]())
	for name, key := range synonyms() {
		found := slices.ContainsFunc(all, func(full string) bool {
			return full == key || strings.HasSuffix(full, "."+key)
		})
		if !found {
			t.Errorf("%s: there is no key %s", name, key)
		}
	}
	for key, want := range map[string]string{"batch_size": "one of", "held_ou": "want held_out", "workers": "one of"} {
		_, err := NewTask("arithmetic", []string{key + "=1"}, 1)
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "pipeline") {
			t.Errorf("a task's setting %s: %v, want %q", key, err, want)
		}
	}
}
