package run

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/gomlx/compute/gobackend"
	. "github.com/gomlx/gomlx/core/graph"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

var sampled = flag.String("sampled", "", "a batch that python/tests/test_torch.py drew, to write its losses beside")

// sampledBatch names a batch that Python drew from a table of a running service, what it knows of its rollouts, and the
// configurations to compute its loss with.
type sampledBatch struct {
	Service, Table, Request string                                                         // address, name and request id
	Size                    int                                                            // in rollouts
	Rollouts                map[rollout.ID]struct{ Logprobs, Anchor, Reference []float64 } // [L] each
	Configurations          []json.RawMessage
}

// sampledLoss is a loss of it, and its gradient by the log-probs of each draw's tokens.
type sampledLoss struct {
	Loss     float64
	Gradient [][]float64
}

func TestTheLossOfABatchThatPythonDrew(t *testing.T) {
	if *sampled == "" {
		t.Skip("python/tests/test_torch.py draws a batch and runs this")
	}
	var given sampledBatch
	text, err := os.ReadFile(*sampled)
	if err == nil {
		err = json.Unmarshal(text, &given)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), given.Service, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	batch, err := c.Table(given.Table).Sample(t.Context(), rollout.Request{Size: given.Size, ID: given.Request})
	if err != nil {
		t.Fatal(err)
	}
	var losses []sampledLoss
	for _, text := range given.Configurations {
		config := Default()
		if err := reader().YAML(text, &config); err != nil {
			t.Fatal(err)
		}
		learning, err := config.policyLearning()
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, lossOf(t, learning.Objective, batch.Draws, given))
	}
	if text, err = json.Marshal(losses); err == nil {
		err = os.WriteFile(*sampled+".losses", text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lossOf computes an objective of draws in float64.
func lossOf(t *testing.T, o objective.Objective, draws []rollout.Draw, given sampledBatch) sampledLoss {
	t.Helper()
	length := 0
	for _, d := range draws {
		length = max(length, len(d.Rollout.Tokens))
	}
	grid := func(entry func(d rollout.Draw, i int) float64) (g [][]float64) {
		for _, d := range draws {
			row := make([]float64, length)
			for i := range d.Rollout.Tokens {
				row[i] = entry(d, i)
			}
			g = append(g, row)
		}
		return g
	}
	row := func(entry func(d rollout.Draw) float32) (r []float64) {
		for _, d := range draws {
			r = append(r, float64(entry(d)))
		}
		return r
	}
	logprobs := grid(func(d rollout.Draw, i int) float64 { return given.Rollouts[d.ID].Logprobs[i] })
	behaviour := grid(func(d rollout.Draw, i int) float64 { return float64(d.Rollout.Logprobs[i]) })
	advantage := grid(func(d rollout.Draw, _ int) float64 { return float64(d.Advantage) })
	mask := grid(func(d rollout.Draw, i int) float64 { return float64(d.Rollout.Mask[i]) })
	tokens := 0.0
	var moments []objective.Moment
	for b := range mask {
		for i, counts := range mask[b] {
			if m, a := logprobs[b][i]-behaviour[b][i], advantage[b][i]; counts != 0 {
				tokens++
				moments = append(moments, objective.Moment{LogRatio: m, Advantage: a})
			}
		}
	}
	backend, err := gobackend.New("ops_sequential,num_executors=1")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	exec := MustNewExec(backend, func(in []*Node) (*Node, *Node) {
		out := o.Loss(objective.Inputs{Logprobs: in[0], Behaviour: in[1], Advantage: in[2], Mask: in[3], Anchor: in[4],
			Reference: in[5], Weight: in[6], Reward: in[7], GroupMean: in[8], Rollouts: in[9], Tokens: in[10],
			SecondMoment: in[11]})
		return out.Loss, Gradient(out.Loss, in[0])[0]
	})
	loss, gradient, err := exec.Call2(logprobs, behaviour, advantage, mask,
		grid(func(d rollout.Draw, i int) float64 { return given.Rollouts[d.ID].Anchor[i] }),
		grid(func(d rollout.Draw, i int) float64 { return given.Rollouts[d.ID].Reference[i] }),
		row(func(d rollout.Draw) float32 { return d.Weight }),
		row(func(d rollout.Draw) float32 { return d.Rollout.Reward }),
		row(func(d rollout.Draw) float32 { return d.GroupMean }), float64(len(draws)), tokens,
		objective.SecondMoment(moments, o.Needs().SecondMoment))
	if err != nil {
		t.Fatal(err)
	}
	result := sampledLoss{Loss: loss.Value().(float64)}
	for b, d := range draws {
		result.Gradient = append(result.Gradient,
			slices.Clone(gradient.Value().([][]float64)[b][:len(d.Rollout.Tokens)]))
	}
	return result
}
