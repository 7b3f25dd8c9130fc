package pipeline_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// save is what a checkpoint holds.
type save struct {
	state   []byte // gob
	weights map[rollout.Version]pipeline.Weights
	buffer  *naive
	chooser []byte
	version rollout.Version
}

func snapshot(t *testing.T, m *pipeline.Machine, b *naive, c *prompts.Chooser) save {
	t.Helper()
	s, weights, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := gob.NewEncoder(&file).Encode(s); err != nil {
		t.Fatal(err)
	}
	return save{file.Bytes(), weights, b.clone(), saved(t, c), s.Version}
}

func (s save) load(t *testing.T) pipeline.State {
	t.Helper()
	var state pipeline.State
	if err := gob.NewDecoder(bytes.NewReader(s.state)).Decode(&state); err != nil {
		t.Fatal(err)
	}
	return state
}

// interrupted runs the setup with an interruption after each of the given updates, and what is computed beside the
// machine ends in random order.
func (s setup) interrupted(t *testing.T, kills ...int) outcome {
	t.Helper()
	r := newReleaser(s.seed)
	defer r.close()
	s.opts.Concurrency = 4
	parts := func(b *naive, learner *sim.Learner, c *prompts.Chooser) pipeline.Parts {
		p := s.parts(b, learner, c)
		p.Generator = delayedGenerator{p.Generator, r}
		return p
	}
	out := outcome{buffer: s.buffer(), chooser: s.chooser(t)}
	var at save
	hooks := out.hooks()
	observe := hooks.OnUpdate
	hooks.OnUpdate = func(m *pipeline.Machine, u pipeline.Update) error {
		observe(m, u)
		if len(kills) > 0 && int(u.Version) == kills[0] {
			at = snapshot(t, m, out.buffer, out.chooser)
			return pipeline.ErrStop
		}
		return nil
	}
	m, err := pipeline.New(s.opts, parts(out.buffer, &sim.Learner{}, out.chooser), hooks)
	for {
		if err != nil {
			t.Fatalf("seed %d: %v", s.seed, err)
		}
		if err := m.Run(context.Background()); err != nil {
			t.Fatalf("seed %d: %v", s.seed, err)
		}
		if len(kills) == 0 {
			break
		}
		kills = kills[1:]
		out.buffer, out.chooser = at.buffer, s.chooser(t)
		if out.chooser != nil {
			if err := out.chooser.Restore(bytes.NewReader(at.chooser)); err != nil {
				t.Fatalf("seed %d: %v", s.seed, err)
			}
		}
		m, err = pipeline.Resume(s.opts, parts(out.buffer, &sim.Learner{Version: at.version}, out.chooser), hooks,
			at.load(t), at.weights)
	}
	if out.state, _, err = m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAResumedRunContinuesExactly(t *testing.T) {
	inFlight, inLine, chunks, replayed, held, parked, unrewarded := 0, 0, 0, 0, 0, 0, 0
	seeds := tests.Count(200, 40)
	for seed := range uint64(seeds) {
		s := randomSetup(seed)
		want := s.run(t, nil)
		r := rollout.Stream(seed, "test/kill", 0)
		first := 1 + r.IntN(s.opts.Updates-2)
		second := first + 1 + r.IntN(s.opts.Updates-first-1)
		got := s.interrupted(t, first, second)
		same(t, seed, got, want)
		for _, w := range got.state.Workers {
			if w.Busy {
				inFlight++
			}
			if w.Busy && w.Replayed {
				replayed++
			}
			chunks = max(chunks, len(w.Versions))
		}
		inLine += len(got.state.Groups)
		parked += len(got.state.Parked)
		for _, g := range got.state.Groups {
			if g.Held {
				unrewarded++
			}
		}
		if first%s.opts.BatchUpdates > 0 || second%s.opts.BatchUpdates > 0 {
			held++
		}
	}
	if inFlight < seeds/2 || inLine < seeds/10 || chunks < 4 || replayed < seeds/10 || held < seeds/5 ||
		parked < seeds/5 || unrewarded < seeds/40 {
		t.Errorf("%d jobs in flight, %d of them about replayed prompts, %d groups waiting, at most %d chunks, %d runs "+
			"interrupted within a batch's updates, %d jobs parked and %d groups held: the test shows little",
			inFlight, replayed, inLine, chunks, held, parked, unrewarded)
	}
}

func TestJobsAreRegeneratedWithTheWeightsTheyHad(t *testing.T) {
	// mu = 3, chunks of 2 of 8 positions: after update 3, at 24, group 1 (versions 0, 0, 1, 2) has just
	// been decoded to its end. After update 2, at 20, its chunk 3 of versions 0, 0, 1 is under way.
	s := setup{seed: 7, opts: small(3)}
	s.opts.WeightSync, s.opts.Chunk, s.opts.MaxTokens = pipeline.ByToken, 2, 8
	out := s.interruptedState(t, 2)
	expect(t, "job", out.Workers[0].Job, 1)
	expect(t, "versions", out.Workers[0].Versions, []rollout.Version{0, 0, 1})
	expect(t, "weights to save", out.Versions(), []rollout.Version{0, 1, 2})

	wrong := out
	wrong.Workers = []pipeline.WorkerState{out.Workers[0]}
	wrong.Workers[0].Versions = []rollout.Version{0, 1, 1}
	rights, wrongs := s.continued(t, out), s.continued(t, wrong)
	if reflect.DeepEqual(rights.inserts[0].Rollouts, wrongs.inserts[0].Rollouts) {
		t.Error("other weights made the same rollouts: the resume tests could not tell")
	}
}

// interruptedState returns the state after an update.
func (s setup) interruptedState(t *testing.T, after int) pipeline.State {
	t.Helper()
	s.opts.Updates = after
	return s.run(t, nil).state
}

// continued resumes with an empty buffer at the state's version, for one update.
func (s setup) continued(t *testing.T, state pipeline.State) *record {
	t.Helper()
	s.opts.Updates = int(state.Version) + 2
	b := s.buffer()
	b.Version = state.Version
	weights := map[rollout.Version]pipeline.Weights{}
	for _, v := range state.Versions() {
		weights[v] = pipeline.Weights{Version: v}
	}
	var r record
	m, err := pipeline.Resume(s.opts, s.parts(b, &sim.Learner{Version: state.Version}, nil), r.hooks(), state, weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestResumeReportsEveryMismatch(t *testing.T) {
	s := setup{seed: 7, opts: small(3)}
	s.opts.WeightSync, s.opts.Chunk, s.opts.MaxTokens = pipeline.ByToken, 2, 8
	state := s.interruptedState(t, 2)
	s.opts.Workers, s.opts.Chunk = 2, 8
	_, err := pipeline.Resume(s.opts, s.parts(s.buffer(), &sim.Learner{}, nil), pipeline.Hooks{}, state, nil)
	for _, part := range []string{
		"state has 1 workers, pipeline.workers is 2", "learner's weights have version 0, the state's trainers are at 2",
		"weights of version 1", "weights of version 2", "job 1 in chunk 3, the options have 1",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q:\n%v", part, err)
		}
	}
}

func TestAnAdvantageOfZeroSurvivesAState(t *testing.T) {
	s := setup{seed: 7, opts: small(0.5)}
	s.opts.Updates = 5
	b := newNaive(1, 8, true)
	p := s.parts(b, &sim.Learner{}, nil)
	p.Generator = advised{p.Generator}
	m, err := pipeline.New(s.opts, p, pipeline.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	at := snapshot(t, m, b, nil)
	s.opts.Updates = 6
	p.Buffer, p.Learner = at.buffer, &sim.Learner{Version: at.version}
	var r record
	m, err = pipeline.Resume(s.opts, p, r.hooks(), at.load(t), at.weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	rs := r.inserts[0].Rollouts
	if rs[0].Advantage == nil || *rs[0].Advantage != 0 || rs[1].Advantage == nil || *rs[1].Advantage != 1 ||
		rs[2].Advantage != nil {
		t.Errorf("advantages are %v, %v, %v, want 0, 1 and none", rs[0].Advantage, rs[1].Advantage, rs[2].Advantage)
	}
}

// advised is a generator that gives the first two rollouts advantages 0 and 1.
type advised struct{ pipeline.Generator }

func (a advised) Start(job pipeline.Job) (pipeline.Generation, error) {
	g, err := a.Generator.Start(job)
	return advisedGeneration{g}, err
}

type advisedGeneration struct{ pipeline.Generation }

func (a advisedGeneration) Rollouts() ([]*rollout.Rollout, error) {
	rs, err := a.Generation.Rollouts()
	zero, one := float32(0), float32(1)
	rs[0].Advantage, rs[1].Advantage = &zero, &one
	return rs, err
}

func TestSnapshotsAreTakenAtTheEndOfAnUpdateOnly(t *testing.T) {
	var m *pipeline.Machine
	var inside error
	p := parts(newNaive(1, 8, true))
	m, err := pipeline.New(small(1), p, pipeline.Hooks{
		OnInsert: func(pipeline.Insertion) { _, _, inside = m.Snapshot() },
		OnUpdate: func(m *pipeline.Machine, u pipeline.Update) error {
			_, _, err := m.Snapshot()
			return errors.Join(err, pipeline.ErrStop)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Snapshot(); err != nil {
		t.Errorf("before the run: %v", err)
	}
	if err := m.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(inside, pipeline.ErrNoBoundary) {
		t.Errorf("at an insertion: %v, want ErrNoBoundary", inside)
	}
	if _, _, err := m.Snapshot(); err != nil {
		t.Errorf("after the run: %v", err)
	}
}
