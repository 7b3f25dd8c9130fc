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

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

// A checkpoint is a file of three snapshots, one after another: the gate's count, the prompts if the table has any, and
// the table. It outlives the table.

const checkpointSuffix = ".table"

// checkpointPath returns the file of a checkpoint.
func (t *table) checkpointPath(name string) (string, error) {
	if t.journal == nil {
		return "", wire.Errorf(wire.Invalid,
			"checkpoint: the service keeps nothing: start it with a data folder (--data)")
	}
	if err := wire.CheckName(name); err != nil {
		return "", wire.Errorf(wire.Invalid, "checkpoint %s", err)
	}
	return filepath.Join(t.service.options.Data, "checkpoints", t.Name, name+checkpointSuffix), nil
}

// checkpoint saves the whole table under a name and replaces an earlier checkpoint of that name.
func (s *Service) checkpoint(_ context.Context, t *table, r *wire.CheckpointRequest) (any, error) {
	path, err := t.checkpointPath(r.Name)
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

func (t *table) save(path string) (size int64, err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return 0, err
	}
	if err := removeUnfinished(folder); err != nil {
		return 0, err
	}
	if err := disk.ReplaceFile(path, t.writeState); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), errors.Join(os.Chmod(path, 0o600), disk.SyncFolder(filepath.Dir(folder)),
		disk.SyncFolder(t.service.options.Data))
}

// unfinished ends the names of checkpoints that are being written; earlier versions began them with .new-.
const unfinished = ".tmp"

// removeUnfinished removes checkpoints that a crash cut off. Nobody else writes one meanwhile, because admin is held.
func removeUnfinished(folder string) error {
	files, err := os.ReadDir(folder)
	for _, f := range files {
		if strings.HasSuffix(f.Name(), unfinished) || strings.HasPrefix(f.Name(), ".new-") {
			err = errors.Join(err, os.Remove(filepath.Join(folder, f.Name())))
		}
	}
	return err
}

func (t *table) writeState(w io.Writer) error {
	if err := t.gateSnapshot().write(w); err != nil {
		return err
	}
	if t.prompts != nil {
		if err := t.prompts.Snapshot(w); err != nil {
			return err
		}
	}
	return t.rollouts.Snapshot(w)
}

// restore replaces the whole table by what was saved under a name. It ends all leases: their rollouts may be gone.
func (s *Service) restore(_ context.Context, t *table, r *wire.CheckpointRequest) (any, error) {
	path, err := t.checkpointPath(r.Name)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wire.Errorf(wire.NotFound, "checkpoint %q: table %q has none of that name: want one that was saved",
			r.Name, t.Name)
	}
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "opening checkpoint %q: %s", r.Name, err)
	}
	defer f.Close() // it was only read
	if err := t.readState(bufio.NewReader(f)); err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", r.Name, err)
	}
	t.notifyAll()
	if err := t.journal.Rewrite(t.rollouts); err != nil {
		return nil, t.journalError(err)
	}
	s.log.Info("table restored", "table", t.Name, "checkpoint", r.Name, "version", t.version(), "rollouts", t.present())
	return t.info(), nil
}

// readState replaces the table's state by what writeState wrote: all of it or nothing.
func (t *table) readState(r io.Reader) error {
	g, err := readGateSnapshot(r)
	if err != nil {
		return err
	}
	t.life.Lock()
	defer t.life.Unlock()
	if t.dropped.Load() {
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
	if err := t.rollouts.Restore(r); err != nil {
		return err
	}
	if t.prompts != nil {
		if err := copyPrompts(t.prompts, saved); err != nil {
			return err
		}
	}
	t.durable.Store(0) // ids go on from those of the snapshot
	t.leases.endAll()
	t.reports.forget()
	t.gate.Store(newGate(t.Gate, g.countFor(t), t.gate.Load().Next())) // insertions went on between the two snapshots
	return nil
}

// copyPrompts copies the state of a buffer with the same options, which cannot fail.
func copyPrompts(to, from *prompts.Buffer) error {
	var b bytes.Buffer
	if err := from.Snapshot(&b); err != nil {
		return err
	}
	return to.Restore(&b)
}
