package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"
	"github.com/reprise-rl/reprise/results"
)

// createFolder makes the folder of a new run and writes its resolved configuration. It refuses a folder that holds a
// run already.
func createFolder(dir string, c Config) error {
	if err := vacant(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the run's folder: %w", err)
	}
	return writeConfig(dir, c)
}

// vacant refuses a folder that holds a run.
func vacant(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, results.ConfigFile)); err == nil {
		return fmt.Errorf("%s holds a run already: give another --out, go on with it by --resume, or replace it by --force", dir)
	}
	return nil
}

// writeConfig writes config.yaml, defaults spelled out, and where the table is if that is elsewhere.
func writeConfig(dir string, c Config) error {
	if c.remote != nil {
		if err := c.remote.write(dir); err != nil {
			return fmt.Errorf("write %s: %w", bufferFile, err)
		}
	}
	c, err := c.resolved()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return results.WriteConfig(dir, append(text, "# Draws: "+c.Sampling()+"\n"...))
}

func (s *session) createLogs() (err error) {
	if s.metrics, err = results.CreateLog[results.Update](filepath.Join(s.dir, results.MetricsFile)); err != nil {
		return err
	}
	if s.timing, err = results.CreateLog[results.Timing](filepath.Join(s.dir, results.TimingFile)); err != nil {
		return err
	}
	s.evals, err = results.CreateLog[results.Eval](filepath.Join(s.dir, results.EvalFile))
	return err
}

// resumeLogs cuts the logs back to where the checkpoint was taken and reads the evaluations that stand in them.
func (s *session) resumeLogs() (err error) {
	if s.metrics, err = results.ResumeLog[results.Update](filepath.Join(s.dir, results.MetricsFile), s.Lines.Metrics); err != nil {
		return err
	}
	if s.timing, err = results.ResumeLog[results.Timing](filepath.Join(s.dir, results.TimingFile), s.Lines.Timing); err != nil {
		return err
	}
	path := filepath.Join(s.dir, results.EvalFile)
	if s.evals, err = results.ResumeLog[results.Eval](path, s.Lines.Evals); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.evaluations, err = results.ParseEvals(text)
	return err
}

// closeLogs closes what is open. Everything that counts was synced by the last checkpoint.
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
}

const (
	newSuffix = ".new"
	oldSuffix = ".old"
)

// replaceFolder writes a folder under a temporary name and puts it in the place of the one before. At every moment
// one of the two is whole.
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
	return errors.Join(syncFolder(filepath.Dir(place)), os.RemoveAll(old))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeStream writes a file through a buffer and syncs it.
func writeStream(path string, write func(*bufio.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Sync(), f.Close())
}
