package service

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

// A checkpoint is a file of three snapshots, one after another: the gate's books, the prompts where the table has any, and the
// table. It outlives the table.

const checkpointSuffix = ".table"

// checkpointFile returns where a checkpoint stands.
func (t *table) checkpointFile(name string) (string, error) {
	if t.journal == nil {
		return "", wire.Errorf(wire.Invalid, "the service keeps nothing: start it with a data folder (--data) to have checkpoints")
	}
	if err := wire.CheckName(name); err != nil {
		return "", wire.Errorf(wire.Invalid, "checkpoint %s", err)
	}
	return filepath.Join(t.service.options.Data, "checkpoints", t.Name, name+checkpointSuffix), nil
}

// checkpoint saves everything of a table under a name, in place of what was saved under it.
func (s *Service) checkpoint(_ context.Context, t *table, r *wire.CheckpointRequest) (any, error) {
	path, err := t.checkpointFile(r.Name)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	size, err := t.save(path)
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "saving checkpoint %q: %s", r.Name, err)
	}
	return wire.CheckpointAnswer{TableInfo: t.info(), Name: r.Name, FileBytes: size}, nil
}

// save writes a checkpoint: a crash leaves the old file or the new one.
func (t *table) save(path string) (size int64, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	if err := removeUnfinished(filepath.Dir(path)); err != nil {
		return 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), unfinished+"*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = t.writeState(f)
	if err == nil {
		err = f.Sync()
	}
	if info, statErr := f.Stat(); statErr == nil {
		size = info.Size()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return 0, err
	}
	folder := filepath.Dir(path)
	return size, errors.Join(syncFolder(folder), syncFolder(filepath.Dir(folder)), syncFolder(t.service.options.Data))
}

// unfinished begins the names of checkpoints that are being written; those of checkpoints never begin with a dot.
const unfinished = ".new-"

// removeUnfinished removes what a crash left of checkpoints. Nobody else writes one meanwhile: admin is held.
func removeUnfinished(folder string) error {
	files, err := os.ReadDir(folder)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), unfinished) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, f.Name())))
		}
	}
	return err
}

func (t *table) writeState(w io.Writer) error {
	if err := t.gateImage().write(w); err != nil {
		return err
	}
	if t.prompts != nil {
		if err := t.prompts.Snapshot(w); err != nil {
			return err
		}
	}
	return t.store.Snapshot(w)
}

// restore replaces everything of a table by what was saved under a name. Leases of before are void: what they are of may be gone.
func (s *Service) restore(_ context.Context, t *table, r *wire.CheckpointRequest) (any, error) {
	path, err := t.checkpointFile(r.Name)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wire.Errorf(wire.NotFound, "checkpoint %q: table %q has none of that name: want one that was saved", r.Name, t.Name)
	}
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "opening checkpoint %q: %s", r.Name, err)
	}
	defer f.Close() // it was only read
	if err := t.load(bufio.NewReader(f)); err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", r.Name, err)
	}
	t.changed()
	if err := t.journal.Rewrite(t.store); err != nil {
		return nil, t.journalError(err)
	}
	s.log.Info("table restored", "table", t.Name, "checkpoint", r.Name, "version", t.version(), "rollouts", t.store.Len())
	return t.info(), nil
}

// load replaces the table's state by what writeState wrote, all of it or nothing.
func (t *table) load(r io.Reader) error {
	im, err := readGateImage(r)
	if err != nil {
		return err
	}
	t.life.Lock()
	defer t.life.Unlock()
	if t.gone.Load() {
		return notFound(t.Name)
	}
	var saved *prompts.Buffer
	if t.prompts != nil {
		if saved, err = prompts.New(t.prompts.Options()); err != nil {
			return err
		}
		if err := saved.Restore(r); err != nil {
			return err
		}
	}
	if err := t.store.Restore(r); err != nil {
		return err
	}
	if t.prompts != nil {
		if err := copyPrompts(t.prompts, saved); err != nil {
			return err
		}
	}
	t.leases.takeAll()
	t.reports.forget()
	t.gate.Store(NewGate(t.Gate, im.booksOf(t), t.gate.Load().Next())) // insertions went on between the two snapshots
	return nil
}

// copyPrompts gives one buffer the state of another with its options, which cannot fail.
func copyPrompts(to, from *prompts.Buffer) error {
	var b bytes.Buffer
	if err := from.Snapshot(&b); err != nil {
		return err
	}
	return to.Restore(&b)
}
