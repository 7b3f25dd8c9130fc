package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

// works are generations, scores and learners of one model that share weights: each returns what it came to, to the bit.
func works(m *Model, versions []*Weights) []func() (any, error) {
	c := m.Config()
	var list []func() (any, error)
	for i, w := range versions {
		for _, s := range []Sampling{
			{Temperature: 1, MaxTokens: 10, Stop: []int32{2}},
			{Temperature: 0.8, TopP: 0.9, MaxTokens: 14, RecomputeCache: true},
		} {
			list = append(list, func() (any, error) { return generated(m, versions, i, s) })
		}
		list = append(list, func() (any, error) {
			rng := rollout.Stream(uint64(i), "test/score", 0)
			return m.Score(context.Background(), w,
				Plain(randomTokens(rng, 11, c.VocabSize), randomTokens(rng, 7, c.VocabSize)), 0.9)
		}, func() (any, error) { return learned(m, w, uint64(i)) }, func() (any, error) { return w.Flat() })
	}
	return list
}

// generated continues three prompts, taking up the next version after every fourth token.
func generated(m *Model, versions []*Weights, i int, s Sampling) ([]Row, error) {
	rng := rollout.Stream(uint64(i), "test/prompts", 0)
	prompts, streams := [][]int32{}, []*rand.Rand{}
	for r := range 3 {
		prompts = append(prompts, randomTokens(rng, 2+3*r, m.config.VocabSize))
		streams = append(streams, stream(10*i+r))
	}
	g, err := m.Start(Plain(prompts...), streams, s)
	if err != nil {
		return nil, err
	}
	for done := false; !done; i++ {
		if done, err = g.Continue(context.Background(), versions[i%len(versions)], 4); err != nil {
			return nil, err
		}
	}
	return bare(g.Rows()), nil
}

// learned takes three steps of two trainers each, of several passes.
func learned(m *Model, w *Weights, seed uint64) (any, error) {
	l, err := m.NewLearner(w, Learning{Objective: objective.GRPO{}, Optimizer: Adam{LearningRate: 1e-2},
		PassElements: 3 * 12 * m.config.VocabSize, LogitGradients: true})
	if err != nil {
		return nil, err
	}
	var measured []any
	for n := range uint64(3) {
		one, err := l.Step(context.Background(), []*rollout.Batch{randomBatch(m.config, 10*seed+2*n, 7),
			randomBatch(m.config, 10*seed+2*n+1, 5)})
		if err != nil {
			return nil, err
		}
		measured = append(measured, one.Metrics, feedbackBits(one.Feedback))
	}
	s, err := l.State()
	if err != nil {
		return nil, err
	}
	weights, err := l.Weights().Flat()
	return []any{measured, s, weights}, err
}

// The first caller compiles a program, and weights are shared. Neither may change a bit of the results.
func TestConcurrentWorkGivesTheBitsOfSerialWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := architectures()["grouped queries"]
	fresh := func() []func() (any, error) {
		m := newOwnModel(t, c)
		var versions []*Weights
		for v := range 3 {
			versions = append(versions, randomWeights(t, m, uint64(70+v)).WithVersion(rollout.Version(v)))
		}
		return works(m, versions)
	}
	runtime.GOMAXPROCS(1)
	var want []any
	for i, work := range fresh() {
		got, err := work()
		if err != nil {
			t.Fatalf("work %d: %v", i, err)
		}
		want = append(want, got)
	}
	for _, cores := range []int{1, 2, 4} {
		t.Run(fmt.Sprint("GOMAXPROCS ", cores), func(t *testing.T) {
			runtime.GOMAXPROCS(cores)
			list := fresh()
			got, errs := make([]any, len(list)), make([]error, len(list))
			var wait sync.WaitGroup
			for i, work := range list {
				wait.Go(func() { got[i], errs[i] = work() })
			}
			wait.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for i := range list {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Errorf("work %d came to other bits than alone", i)
				}
			}
		})
	}
}

// Matrices large enough for the backend to divide among goroutines, if it were let to.
func TestLargeMatricesGiveTheSameBitsOnAnyNumberOfCores(t *testing.T) {
	tests.Long(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := largerModel()
	var want []any
	for _, cores := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(cores)
		m := newOwnModel(t, c)
		w, err := m.Initial(3)
		if err != nil {
			t.Fatal(err)
		}
		l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}, LogitGradients: true})
		measured := measure(t, l, benchmarkBatch(c, 1, 24, 33), benchmarkBatch(c, 2, 24, 33))
		prompts := make([][]int32, 64)
		for i := range prompts {
			prompts[i] = []int32{1, int32(i % 16), 3}
		}
		got := []any{measured.Metrics, feedbackBits(measured.Feedback), state(t, l),
			bare(generate(t, m, l.Weights(), prompts, Sampling{Temperature: 1, MaxTokens: 6}, 0))}
		if want == nil {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("with %d cores the step or the tokens have other bits than with one", cores)
		}
	}
}

// What a first call must not share its program with is another first call: building the graph is the part of one that a
// test can watch.
func TestTheFirstCallOfAProgramRunsAlone(t *testing.T) {
	m := newOwnModel(t, architectures()["llama"])
	var building atomic.Int32
	var overlap atomic.Bool
	p, err := m.newProgram("test", func(in []*graph.Node) []*graph.Node {
		building.Add(1)
		defer building.Add(-1)
		for range 1000 {
			runtime.Gosched()
			if building.Load() > 1 {
				overlap.Store(true)
			}
		}
		return []*graph.Node{graph.Neg(in[0])}
	})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for n := 1; n <= 4; n++ {
		for range 2 {
			wait.Go(func() {
				out, err := p.call(dims{rows: n}, []any{make([]float32, n)})
				if err != nil || out[0].Size() != n {
					t.Errorf("call of %d rows: %v, %v", n, out, err)
				}
			})
		}
	}
	wait.Wait()
	if overlap.Load() {
		t.Error("two first calls ran at once")
	}
}
