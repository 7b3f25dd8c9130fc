package run

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run/tensorboard"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// A checkpoint is the folder checkpoint/ of a run: the policy as a Hugging Face folder, and the files below. It is
// written under another name and then renamed into place.
const (
	stateFile = "state.gob"
	tableFile = "table.gob"
)

// saved is the content of state.gob. Renaming a field, here or below, breaks the checkpoints of earlier builds.
//
// In the file its tensors are empty and follow one by one as bytes, float32 in little endian, because an encoder holds
// all that it encodes at once. Files of earlier builds have them in place.
type saved struct {
	Progress progress
	Machine  pipeline.State                  // of a run on the virtual clock
	Live     pipeline.LiveState              // of one on the real clock
	Learner  policy.LearnerState             // its weights are in model.safetensors
	Past     []past                          // weights still in use, oldest first
	Older    map[rollout.Version][][]float32 // the same in files of earlier builds, in another order each time
}

// past are the weights of a version.
type past struct {
	Version rollout.Version
	Tensors [][]float32
}

// gob numbers the types of a process as it meets them: those of state.gob come first, whatever the run does before.
func init() {
	if err := gob.NewEncoder(io.Discard).Encode(saved{}); err != nil {
		panic(err) // a field that gob cannot encode
	}
}

// checkpoint saves the run at the end of an update.
func (s *session) checkpoint() error {
	if err := s.finishEvaluations(true); err != nil {
		return err
	}
	state, err := s.collectState()
	if err != nil {
		return fmt.Errorf("checkpoint at update %d: %w", s.last.Version, err)
	}
	err = replaceFolder(filepath.Join(s.dir, results.CheckpointDir), func(dir string) error {
		if err := s.start.model.Save(dir, s.learner.Weights(), s.start.tokenizer); err != nil {
			return err
		}
		if err := s.table.save(context.Background(), dir); err != nil {
			return err
		}
		if err := errors.Join(s.savePrompts(dir), s.answers.save(dir)); err != nil {
			return err
		}
		// state.gob gets its name last: a folder that has one is complete.
		part := filepath.Join(dir, stateFile+".part")
		if err := writeStream(part, func(w *bufio.Writer) error { return state.encode(gob.NewEncoder(w)) }); err != nil {
			return err
		}
		return os.Rename(part, filepath.Join(dir, stateFile))
	})
	if err != nil {
		return fmt.Errorf("checkpoint at update %d: %w", s.last.Version, err)
	}
	return nil
}

// collectState syncs the logs and returns the state, which holds their lengths.
func (s *session) collectState() (*saved, error) {
	if err := errors.Join(s.metrics.Sync(), s.timing.Sync(), s.evals.Sync()); err != nil {
		return nil, err
	}
	state := &saved{Progress: s.progress}
	var weights map[rollout.Version]pipeline.Weights
	var err error
	switch m := s.machine.(type) {
	case *pipeline.Live:
		state.Live = m.State()
	case *pipeline.Machine:
		if state.Machine, weights, err = m.Snapshot(); err != nil {
			return nil, err
		}
	}
	p := &state.Progress
	p.Last = s.last
	p.Last.Metrics = nil
	p.Lines.Metrics, p.Lines.Timing, p.Lines.Evals = s.metrics.Lines(), s.timing.Lines(), s.evals.Lines()
	if state.Learner, err = s.learner.State(); err != nil {
		return nil, err
	}
	for _, v := range slices.Sorted(maps.Keys(weights)) {
		if v == state.Learner.Version {
			continue
		}
		tensors, err := weights[v].Tensors.(published).Flat()
		if err != nil {
			return nil, err
		}
		state.Past = append(state.Past, past{v, tensors})
	}
	return state, nil
}

// Resume continues the run in a folder from its last checkpoint. It writes the same bytes that the run would have
// written without the interruption. The budget may differ from the one it began with; a configuration that differs in
// anything else is refused. If the budget is spent it trains no more, and returns the run's summary.
func Resume(ctx context.Context, c Config, dir string, h Hooks) (*results.Summary, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	place, err := findCheckpoint(dir)
	if err == nil {
		c, err = c.asRecorded(dir)
	}
	if err == nil {
		c, err = c.withRecordedBuffer(dir)
	}
	if err != nil {
		return nil, err
	}
	s, state, err := openSession(ctx, c, dir, place, h)
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	defer s.close()
	defer s.closeLogs()
	if err := s.restoreMachine(ctx, place, state); err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	if err := writeConfig(dir, c); err != nil { // its budget may differ
		return nil, err
	}
	return s.run(ctx)
}

// asRecorded returns the configuration in the folder of a run, with c's task, buffer and budget. It refuses a c that
// differs from it in other keys.
func (c Config) asRecorded(dir string) (Config, error) {
	recorded, err := readConfig(dir)
	if err != nil {
		return c, err
	}
	recorded.own, recorded.tasks, recorded.remote = c.own, c.tasks, c.remote
	was, err := recorded.text()
	if err != nil {
		return c, fmt.Errorf("%s: %w", dir, err)
	}
	given := c.Budget
	c.Budget = recorded.Budget // some defaults depend on it
	is, err := c.text()
	if err != nil {
		return c, err
	}
	before, now := results.Settings(string(was)), results.Settings(string(is))
	var found option.Problems
	keys := maps.Clone(before)
	maps.Copy(keys, now)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		found.Check(results.SameSetting(before[key], now[key]), key, now[key],
			"%s, as the run in %s has it: it may be resumed with another budget only; or name another folder",
			before[key], dir)
	}
	recorded.Budget = given
	return recorded, found.Err()
}

// openSession makes the session of a run and restores learner and table from a checkpoint. The caller closes the
// session.
func openSession(ctx context.Context, c Config, dir, place string, h Hooks) (*session, *saved, error) {
	state, err := readState(place)
	if err != nil {
		return nil, nil, err
	}
	t, err := c.newTask()
	if err != nil {
		return nil, nil, err
	}
	start, err := loadStart(place, t)
	if err != nil {
		return nil, nil, err
	}
	s, err := newSession(ctx, c, start, dir, h, false)
	if err != nil {
		return nil, nil, err
	}
	err = errors.Join(s.learner.Restore(state.Learner, start.weights), s.table.restore(ctx, place))
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, state, nil
}

// restoreMachine restores what else a run needs to continue: older weights, prompt replay, progress, logs and the
// machine.
func (s *session) restoreMachine(ctx context.Context, place string, state *saved) (err error) {
	weights := map[rollout.Version]pipeline.Weights{state.Learner.Version: s.publisher().Weights()}
	for _, p := range state.Past {
		w, err := s.start.model.NewWeights(p.Version, p.Tensors)
		if err != nil {
			return err
		}
		weights[p.Version] = s.start.publish(w, s.config.Generate.Precision)
	}
	if err := errors.Join(s.restorePrompts(place), s.answers.restore(place)); err != nil {
		return err
	}
	s.progress, s.last = state.Progress, state.Progress.Last
	s.clock = stopwatch{began: time.Now(), tokens: s.Tokens}
	if err := s.resumeLogs(); err != nil {
		return err
	}
	if s.config.live() {
		s.machine, err = s.startLive(ctx, state.Live, false)
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
	if err := s.decode(gob.NewDecoder(bufio.NewReader(f))); err != nil {
		return nil, fmt.Errorf("read %s: %w: it is damaged, or of another version of reprise: restore it from a copy, or "+
			"train again with --force instead of --resume", f.Name(), err)
	}
	return &s, nil
}

// tensors returns all tensors of the state, each list in the order of the parameters.
func (s *saved) tensors() [][][]float32 {
	lists := [][][]float32{s.Learner.First, s.Learner.Second, s.Learner.Began, s.Learner.Reference}
	for _, p := range s.Past {
		lists = append(lists, p.Tensors)
	}
	return lists
}

// encode writes the state and takes its tensors away.
func (s *saved) encode(to *gob.Encoder) error {
	var all [][]float32
	for _, list := range s.tensors() {
		all = append(all, list...)
		clear(list)
	}
	if err := to.Encode(s); err != nil {
		return err
	}
	var b []byte // of one tensor after the other
	for i, t := range all {
		var err error
		if b, err = binary.Append(b[:0], binary.LittleEndian, t); err == nil {
			err = to.Encode(b)
		}
		if err != nil {
			return err
		}
		all[i] = nil // so that its memory is free for the next
	}
	return nil
}

// decode reads what encode wrote.
func (s *saved) decode(from *gob.Decoder) error {
	if err := from.Decode(s); err != nil {
		return err
	}
	for _, v := range slices.Sorted(maps.Keys(s.Older)) {
		s.Past = append(s.Past, past{v, s.Older[v]})
	}
	s.Older = nil
	var b []byte // of one tensor after the other
	for _, list := range s.tensors() {
		for i := range list {
			if len(list[i]) > 0 { // written by an earlier build
				continue
			}
			err := from.Decode(&b)
			if err == nil {
				list[i] = make([]float32, len(b)/4)
				_, err = binary.Decode(b, binary.LittleEndian, list[i])
			}
			if err != nil {
				return fmt.Errorf("tensor %d: %w", i, err)
			}
		}
	}
	return nil
}

// findCheckpoint returns the folder of the newest complete checkpoint. After a crash in replaceFolder it may have its
// temporary name.
func findCheckpoint(dir string) (string, error) {
	for _, suffix := range checkpointSuffixes() {
		p := filepath.Join(dir, results.CheckpointDir+suffix)
		if _, err := os.Stat(filepath.Join(p, stateFile)); err == nil {
			return p, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s holds no checkpoint: name the folder of a run that was interrupted, or start one "+
		"without --resume", dir)
}

// Resumable reports whether a folder holds a checkpoint for [Resume].
func Resumable(dir string) bool {
	_, err := findCheckpoint(dir)
	return err == nil
}

// createFolder makes the folder of a new run and writes its resolved configuration. It refuses a folder that holds a
// run.
func createFolder(dir string, c Config) error {
	if err := checkVacant(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the run's folder: %w", err)
	}
	return writeConfig(dir, c)
}

// checkVacant refuses a folder that holds a run.
func checkVacant(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, results.ConfigFile)); err == nil {
		return fmt.Errorf("%s already holds a run: give another --out, continue it with --resume, or replace it with "+
			"--force", dir)
	}
	return nil
}

// writeConfig writes config.yaml with defaults filled in, and the place of the table if that is in a service.
func writeConfig(dir string, c Config) error {
	if c.remote != nil {
		if err := c.remote.write(dir); err != nil {
			return fmt.Errorf("write %s: %w", bufferFile, err)
		}
	}
	text, err := c.text()
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return results.WriteConfig(dir, text)
}

// text returns the configuration as config.yaml has it, with defaults that depend on other keys.
func (c Config) text() ([]byte, error) {
	c, err := c.resolved()
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(c)
	return append(text, "# Draws: "+c.Sampling()+"\n"...), err
}

func (s *session) createLogs() (err error) {
	if err = results.WriteProblems(s.dir, s.evaluator.recorded()); err != nil {
		return err
	}
	if s.metrics, err = results.CreateLog[results.Update](filepath.Join(s.dir, results.MetricsFile)); err != nil {
		return err
	}
	if s.timing, err = results.CreateLog[results.Timing](filepath.Join(s.dir, results.TimingFile)); err != nil {
		return err
	}
	if s.evals, err = results.CreateLog[results.Eval](filepath.Join(s.dir, results.EvalFile)); err != nil {
		return err
	}
	return s.createEvents()
}

// createEvents makes the event file for TensorBoard, if one is asked for.
func (s *session) createEvents() (err error) {
	if dir := s.hooks.TensorBoard; dir != "" {
		s.events, err = tensorboard.Create(dir, time.Now(), int(s.last.Version))
	}
	return err
}

// resumeLogs cuts the logs back to the checkpoint and reads the evaluations.
func (s *session) resumeLogs() (err error) {
	path := func(file string) string { return filepath.Join(s.dir, file) }
	if s.metrics, err = results.ResumeLog[results.Update](path(results.MetricsFile), s.Lines.Metrics); err != nil {
		return err
	}
	if s.timing, err = results.ResumeLog[results.Timing](path(results.TimingFile), s.Lines.Timing); err != nil {
		return err
	}
	if s.evals, err = results.ResumeLog[results.Eval](path(results.EvalFile), s.Lines.Evals); err != nil {
		return err
	}
	text, err := os.ReadFile(path(results.EvalFile))
	if err != nil {
		return err
	}
	if s.evaluations, err = results.ParseEvals(text); err != nil {
		return err
	}
	if text, err = os.ReadFile(path(results.TimingFile)); err != nil {
		return err
	}
	timings, err := results.ParseTimings(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path(results.TimingFile), err)
	}
	if n := len(timings); n > 0 {
		s.clock.earlier = time.Duration(timings[n-1].Elapsed * float64(time.Second))
	}
	return s.createEvents()
}

// closeLogs closes the logs that are open. The last checkpoint has synced them.
func (s *session) closeLogs() {
	if s.metrics != nil {
		s.metrics.Close()
	}
	if s.timing != nil {
		s.timing.Close()
	}
	if s.evals != nil {
		s.evals.Close()
	}
	if s.events != nil {
		s.events.Close()
	}
}

const (
	newSuffix = ".new"
	oldSuffix = ".old"
)

// checkpointSuffixes are what may follow the name of the newest complete checkpoint, the usual one first.
func checkpointSuffixes() []string { return []string{"", newSuffix, oldSuffix} }

// replaceFolder writes a folder under a temporary name and puts it in the place of the old one. At every moment one of
// the two is complete.
func replaceFolder(place string, write func(dir string) error) error {
	fresh, old := place+newSuffix, place+oldSuffix
	if err := errors.Join(os.RemoveAll(fresh), os.MkdirAll(fresh, 0o755)); err != nil {
		return err
	}
	if err := write(fresh); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(place, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, place); err != nil {
		return err
	}
	return errors.Join(disk.SyncFolder(filepath.Dir(place)), os.RemoveAll(old))
}

// writeStream writes a new file through a buffer and syncs it.
func writeStream(path string, write func(*bufio.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Sync(), f.Close())
}
