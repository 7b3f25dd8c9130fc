package run

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/policy"
	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/rollout"
)

// A checkpoint is the folder checkpoint/ of a run: the policy as a Hugging Face folder, and beside it what resuming
// needs. It is written as a whole beside the old one and then put in its place.
const (
	stateFile = "state.gob"
	tableFile = "table.gob"
)

// saved is what state.gob holds.
type saved struct {
	Progress progress
	Machine  pipeline.State
	Learner  policy.LearnerState // without the weights, which stand in model.safetensors
	Older    map[rollout.Version][][]float32
}

// checkpoint saves the run as it stands at the end of an update.
func (s *session) checkpoint(m *pipeline.Machine) error {
	if err := s.finishEvaluations(true); err != nil {
		return err
	}
	state, err := s.save(m)
	if err != nil {
		return fmt.Errorf("checkpoint at update %d: %w", s.last.Version, err)
	}
	place := filepath.Join(s.dir, results.CheckpointDir)
	err = replaceFolder(place, func(dir string) error {
		if err := s.start.model.Save(dir, s.learner.Weights(), s.start.tokenizer); err != nil {
			return err
		}
		if err := s.table.save(context.Background(), dir); err != nil {
			return err
		}
		if err := s.savePrompts(dir); err != nil {
			return err
		}
		part := filepath.Join(dir, stateFile+".part") // renamed when whole: state.gob says that the checkpoint is
		if err := writeStream(part, func(w *bufio.Writer) error { return gob.NewEncoder(w).Encode(state) }); err != nil {
			return err
		}
		return os.Rename(part, filepath.Join(dir, stateFile))
	})
	if err != nil {
		return fmt.Errorf("checkpoint at update %d: %w", s.last.Version, err)
	}
	return nil
}

// save gathers the state after syncing the logs that it counts on.
func (s *session) save(m *pipeline.Machine) (*saved, error) {
	if err := errors.Join(s.metrics.Sync(), s.timing.Sync(), s.evals.Sync()); err != nil {
		return nil, err
	}
	machine, weights, err := m.Snapshot()
	if err != nil {
		return nil, err
	}
	state := &saved{Progress: s.progress, Machine: machine, Older: make(map[rollout.Version][][]float32)}
	state.Progress.Elapsed = s.elapsed()
	state.Progress.Last = s.last
	state.Progress.Last.Metrics = nil
	state.Progress.Lines.Metrics, state.Progress.Lines.Timing, state.Progress.Lines.Evals = s.metrics.Lines(), s.timing.Lines(), s.evals.Lines()
	if state.Learner, err = s.learner.State(); err != nil {
		return nil, err
	}
	state.Learner.Weights = nil
	for v, w := range weights {
		if v == state.Learner.Version {
			continue
		}
		if state.Older[v], err = w.Tensors.(*policy.Weights).Flat(); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// Resume goes on with the run in a folder from its last checkpoint, to the same bytes that it would have written
// uninterrupted. The budget may differ from the one it was begun with.
func Resume(ctx context.Context, c Config, dir string, h Hooks) (*results.Summary, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	place, err := findCheckpoint(dir)
	if err == nil {
		c, err = c.again(dir)
	}
	if err != nil {
		return nil, err
	}
	state, err := readState(place)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	start, err := beginFrom(place)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	s, err := newSession(ctx, c, start, dir, h, false)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	defer s.table.close()
	defer s.closeLogs()
	if err := s.restore(ctx, place, state); err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	if err := writeConfig(dir, c); err != nil { // its budget may be another
		return nil, err
	}
	return s.carryOut(ctx)
}

// restore puts the parts of a new session back to where a checkpoint was taken.
func (s *session) restore(ctx context.Context, place string, state *saved) (err error) {
	if state.Learner.Weights, err = s.start.weights.Flat(); err != nil {
		return err
	}
	if err := s.learner.Restore(state.Learner); err != nil {
		return err
	}
	weights := map[rollout.Version]pipeline.Weights{state.Learner.Version: learner{s.learner}.Weights()}
	for v, flat := range state.Older {
		w, err := s.start.model.NewWeights(v, flat)
		if err != nil {
			return err
		}
		weights[v] = pipeline.Weights{Version: v, Tensors: w}
	}
	if err := s.table.restore(ctx, place); err != nil {
		return err
	}
	if err := s.restorePrompts(place); err != nil {
		return err
	}
	s.progress, s.last = state.Progress, state.Progress.Last
	s.clock = stopwatch{began: time.Now(), tokens: s.Tokens}
	if err := s.resumeLogs(); err != nil {
		return err
	}
	s.machine, err = pipeline.Resume(s.config.pipelineOptions(), s.parts(), s.pipelineHooks(), state.Machine, weights)
	return err
}

func readState(place string) (*saved, error) {
	f, err := os.Open(filepath.Join(place, stateFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var s saved
	if err := gob.NewDecoder(bufio.NewReader(f)).Decode(&s); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return &s, nil
}

// findCheckpoint returns the folder of the newest whole checkpoint: a crash between the two renames of replaceFolder
// leaves it under its temporary name.
func findCheckpoint(dir string) (string, error) {
	place := filepath.Join(dir, results.CheckpointDir)
	for _, p := range []string{place, place + newSuffix, place + oldSuffix} {
		if _, err := os.Stat(filepath.Join(p, stateFile)); err == nil {
			return p, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s holds no checkpoint: name the folder of a run that was interrupted, or start one without --resume", dir)
}
