// Command reverse trains a small model to write words backwards. It is the tutorial of docs/own-task.md: a complete
// task, and a program that trains on it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/task"
)

// reverse asks for words of four letters: "abcd:" is answered by "dcba". Every ninth word is held out.
type reverse struct{ order task.Order }

const words = 5 * 5 * 5 * 5 // of the letters a to e

func newReverse(seed uint64) (task.Task, error) {
	return reverse{task.Order{Seed: seed, Purpose: "reverse train", N: words - (words+8)/9}}, nil
}

func (r reverse) Train(i uint64) task.Prompt {
	n := r.order.At(i)
	return prompt(n + n/8 + 1)
}

func (reverse) HeldOut() (held []task.Prompt) {
	for n := 0; n < words; n += 9 {
		held = append(held, prompt(n))
	}
	return held
}

// Verify rewards the share of letters in their places.
func (reverse) Verify(p task.Prompt, response string) task.Verdict {
	right := 0
	for i := range min(len(response), len(p.Answer)) {
		if response[i] == p.Answer[i] {
			right++
		}
	}
	reward := float32(right) / float32(max(len(response), len(p.Answer)))
	return task.Verdict{Reward: reward, Correct: response == p.Answer, Extracted: response}
}

func (reverse) Demonstrate(p task.Prompt) string { return p.Answer } // for the warm-up
func (reverse) Characters() string               { return "abcde:" } // for a model with random weights

func prompt(n int) task.Prompt {
	word := []byte{'a' + byte(n%5), 'a' + byte(n/5%5), 'a' + byte(n/25%5), 'a' + byte(n/125)}
	p := task.Prompt{ID: "reverse/" + string(word), Text: string(word) + ":"}
	slices.Reverse(word)
	p.Answer = string(word)
	return p
}

// train starts a run in a folder, or continues the one that is there.
func train(ctx context.Context, dir string, settings []string) (*results.Summary, error) {
	c, err := run.Load("", append([]string{"name=reverse", "generate.max_tokens=6", "pipeline.batch=512",
		"replay.capacity=2048", "budget.compute=40", "evaluate.every=10"}, settings...))
	if err != nil {
		return nil, err
	}
	c = c.WithTask("reverse", newReverse)
	hooks := run.Hooks{OnEval: func(e results.Eval) {
		fmt.Printf("update %3d  held-out pass@1 %.2f  reward %.2f\n", e.Update, e.Pass1, e.Reward.Float())
	}}
	if run.Resumable(dir) {
		return run.Resume(ctx, c, dir, hooks)
	}
	start, err := run.Begin(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	return run.Train(ctx, c, start, dir, hooks)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	const dir = "runs/reverse"
	summary, err := train(ctx, dir, os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d updates in %s, ended: %s\n", summary.Updates, dir, summary.Ended)
}
