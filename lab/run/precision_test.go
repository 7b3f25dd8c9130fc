package run

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
)

func TestFullPrecisionWritesTheBytesOfARunWithoutTheKey(t *testing.T) {
	tests.Long(t)
	dir := t.TempDir()
	without, with := filepath.Join(dir, "without"), filepath.Join(dir, "with")
	train(t, small(t), without)
	train(t, small(t, "generate.precision=float32"), with)
	sameRuns(t, with, without)
	if files := written(t, with); strings.Contains(files[results.EvalFile]+files[results.SummaryFile], "mismatch") {
		t.Error("a mismatch is reported where nothing is rounded")
	}
}

func TestWorkersOfALowerPrecisionTrainAndTheirMismatchIsMeasured(t *testing.T) {
	tests.Long(t)
	away := make(map[policy.Precision]float64)
	for _, p := range []policy.Precision{policy.BFloat16, policy.Int8} {
		dir := filepath.Join(t.TempDir(), "run")
		// the built-in experiment's model: in smaller ones the embeddings, which int8 leaves alone, weigh more
		sum := train(t, small(t, "policy.hidden=64", "policy.intermediate=176", "policy.layers=2", "policy.heads=4",
			"budget.updates=9", "generate.precision="+string(p)), dir)
		r, err := results.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Evals {
			m := e.Mismatch
			// 20 held-out problems, 1 to 4 tokens each
			if m == nil || m.Tokens < 20 || m.Tokens > 80 || m.AbsLog.Float() == 0 ||
				m.Low.Float() >= m.Mean.Float() || m.High.Float() <= m.Mean.Float() ||
				math.Abs(m.Mean.Float()-1) > m.AbsLog.Float()*1.1 {
				t.Fatalf("%s: the mismatch of version %d is %+v", p, e.Version, m)
			}
		}
		if last := r.Evals[len(r.Evals)-1].Mismatch; *sum.Mismatch != *last {
			t.Errorf("%s: the summary has %+v, the last evaluation %+v", p, sum.Mismatch, last)
		}
		away[p] = r.Evals[0].Mismatch.AbsLog.Float()
	}
	if b, i := away[policy.BFloat16], away[policy.Int8]; !(b > 1e-4 && 1.2*b < i && i < 0.1) {
		t.Errorf("the mean of |log k| is %g with bfloat16 and %g with int8: want less with bfloat16", b, i)
	}
}

// What is stored is the log-prob of the copy that drew the token, and evaluations are of the trainers' weights.
func TestOnlyTheWorkersHaveTheRoundedCopy(t *testing.T) {
	c := small(t, "generate.precision=int8")
	g, s, w := maker(t, c)
	sums, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	rollouts, _ := generated(t, g, w, pipeline.Job{Size: 8, Prompt: sums.Train(3)}, 0)
	once, err := workersCopy(w)
	if again, _ := workersCopy(w); again != once || err != nil {
		t.Errorf("a version is rounded a second time: %v", err)
	}
	rounded, err := s.model.Round(s.weights, policy.Int8)
	if err != nil {
		t.Fatal(err)
	}
	apart := func(w *policy.Weights) (most float64) {
		for _, r := range rollouts {
			score, err := s.model.Score(context.Background(), w, policy.Plain(r.Tokens), 1)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range r.Mask {
				if m == 1 {
					most = max(most, math.Abs(float64(score[0].Logprobs[i]-r.Logprobs[i])))
				}
			}
		}
		return most
	}
	if copied, exact := apart(rounded), apart(s.weights); copied > 1e-5 || exact < 1e-4 {
		t.Errorf("log-probs are up to %g from the copy's and %g from the trainers': want the copy's", copied, exact)
	}
	var lines [2]results.Eval
	for i, config := range []Config{c, small(t)} {
		e, err := newEvaluator(config, sums, s.textModel, sums.HeldOut())
		if err == nil {
			err = e.evaluate(context.Background(), s.weights, &lines[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines[0].Mismatch == nil || lines[1].Mismatch != nil {
		t.Errorf("mismatches %+v with int8 and %+v without", lines[0].Mismatch, lines[1].Mismatch)
	}
	lines[0].Mismatch = nil
	if a, b := lines[0], lines[1]; a.Pass1 != b.Pass1 || a.MeanLength != b.MeanLength || a.PassAt[0] != b.PassAt[0] {
		t.Errorf("an evaluation of the same weights gives %+v where workers round them, else %+v", a, b)
	}
}

func TestAnUnknownPrecisionIsRefused(t *testing.T) {
	_, err := Load("", []string{"generate.precision=fp8"})
	if want := "generate.precision: fp8: want float32, bfloat16 or int8"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
