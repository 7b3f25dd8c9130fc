// Package tasktest has the tests that every task must pass. Only tests import it.
package tasktest

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// New makes a task or ends the test.
func New[S, T any](t testing.TB, create func(S, uint64) (T, error), s S, seed uint64) T {
	t.Helper()
	made, err := create(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Case is settings and the keys of the problems that are expected with them, in order and separated by spaces.
type Case[S any] = struct {
	Settings S
	Keys     string
}

// Problems checks that validate returns the problems of each case, all of them complete option errors.
func Problems[S any](t *testing.T, validate func(S) error, cases []Case[S]) {
	t.Helper()
	for _, c := range cases {
		err := validate(c.Settings)
		var keys []string
		for _, e := range option.Each(err) {
			var problem *option.Error
			if !errors.As(e, &problem) || problem.Want == "" {
				t.Errorf("%+v: %v is not a complete option error", c.Settings, e)
				continue
			}
			keys = append(keys, problem.Key)
		}
		if got := strings.Join(keys, " "); got != c.Keys {
			t.Errorf("%+v: problems with %q, want %q (%v)", c.Settings, got, c.Keys, err)
		}
	}
}

// Created returns a validate function that makes the task.
func Created[S, T any](create func(S, uint64) (T, error)) func(S) error {
	return func(s S) error {
		_, err := create(s, 0)
		return err
	}
}

// SeedOrdersTraining checks that the seed determines the first n training prompts and nothing else does, that with
// another seed at most the given number agree, and that held-out prompts do not depend on the seed. again makes the
// same task as one.
func SeedOrdersTraining(t *testing.T, one, again, other task.Task, n uint64, most int) {
	t.Helper()
	if !reflect.DeepEqual(one.HeldOut(), other.HeldOut()) || !reflect.DeepEqual(one.HeldOut(), again.HeldOut()) {
		t.Error("held-out prompts depend on the seed")
	}
	same := 0
	for i := range n {
		p := one.Train(i)
		if !reflect.DeepEqual(p, again.Train(i)) {
			t.Fatalf("training prompt %d differs for one seed", i)
		}
		if p.ID == other.Train(i).ID {
			same++
		}
	}
	if same > most {
		t.Errorf("%d of %d training prompts agree between seeds", same, n)
	}
}

// HeldOut checks that there are as many held-out prompts as expected, that key tells them apart, and that none of their
// keys occurs in the first n training prompts. It also checks that equal IDs mean equal problems.
func HeldOut(t *testing.T, made task.Task, want int, n uint64, key func(task.Prompt) string) {
	t.Helper()
	held := map[string]bool{}
	for _, p := range made.HeldOut() {
		held[key(p)] = true
	}
	if len(held) != want || len(made.HeldOut()) != want {
		t.Errorf("%d held-out prompts, %d of them distinct, want %d", len(made.HeldOut()), len(held), want)
	}
	texts := map[string]string{}
	for i := range n {
		p := made.Train(i)
		if held[key(p)] {
			t.Fatalf("training prompt %d, %s, is held out", i, p.ID)
		}
		text := p.Text + "\x00" + p.State + "\x00" + string(p.Image)
		if before, known := texts[p.ID]; known && before != text {
			t.Fatalf("%s is the ID of %q and of %q", p.ID, before, text)
		}
		texts[p.ID] = text
	}
}

// Characters checks that the alphabet names each character once, and that n training episodes use no others: in their
// prompts, observations, answers, demonstrations, advice and actions. It returns everything that was written.
func Characters(t *testing.T, made task.Task, n uint64) string {
	t.Helper()
	characters := made.(task.Alphabet).Characters()
	for i, c := range characters {
		if strings.ContainsRune(characters[:i], c) {
			t.Errorf("the alphabet has %q twice", c)
		}
	}
	var written strings.Builder
	random := rollout.Stream(1, "alphabet test", 0)
	for i := range n {
		p := made.Train(i)
		written.WriteString(p.Text + p.Answer)
		if d, ok := made.(task.Demonstrator); ok {
			written.WriteString(d.Demonstrate(p))
		}
		e := task.Begin(made, p, i)
		for done := false; !done; {
			text := ""
			if expert, ok := e.(task.Expert); ok {
				text = expert.Advise()
			}
			if actor, ok := e.(task.Actor); ok && random.IntN(2) == 0 {
				text = actor.Actions()[random.IntN(len(actor.Actions()))]
			}
			written.WriteString(text)
			if random.IntN(4) == 0 {
				text = "nonsense"
			}
			step := e.Step(text)
			written.WriteString(step.Text)
			done = step.Done
		}
	}
	for _, r := range written.String() {
		if !strings.ContainsRune(characters, r) {
			t.Fatalf("%q is not in the alphabet %q", r, characters)
		}
	}
	return written.String()
}

// Refuses checks that no episode begins in these states.
func Refuses(t *testing.T, made task.Environment, states ...string) {
	t.Helper()
	for _, state := range states {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("an episode begins in %q", state)
				}
			}()
			made.Reset(task.Prompt{State: state}, 1)
		}()
	}
}
