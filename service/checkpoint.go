package service

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

// A checkpoint is a file of three snapshots, one after another: the gate's count with the table's columns, the prompts
// if the table has any, and the table. It outlives the table.

const checkpointSuffix = ".table"

// checkpointFolder returns the folder of a table's checkpoints; the table may be gone.
func (s *Service) checkpointFolder(table string) (string, error) {
	if s.options.Data == "" {
		return "", wire.Errorf(wire.Invalid,
			"checkpoint: the service keeps nothing: start it with a data folder (--data)")
	}
	if err := wire.CheckName(table); err != nil {
		return "", wire.Errorf(wire.Invalid, "table: %s", err)
	}
	return filepath.Join(s.options.Data, "checkpoints", table), nil
}

// checkpointPath returns the file of a checkpoint.
func (s *Service) checkpointPath(r *wire.CheckpointRequest) (string, error) {
	folder, err := s.checkpointFolder(r.Table)
	if err != nil {
		return "", err
	}
	if err := wire.CheckName(r.Name); err != nil {
		return "", wire.Errorf(wire.Invalid, "checkpoint %s", err)
	}
	return filepath.Join(folder, r.Name+checkpointSuffix), nil
}

// savedIn returns the checkpoints in a table's folder, in order of names.
func savedIn(folder string) ([]wire.SavedCheckpoint, error) {
	files, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, wire.Errorf(wire.Failed, "looking for checkpoints: %s", err)
	}
	list := []wire.SavedCheckpoint{}
	for _, f := range files {
		name, found := strings.CutSuffix(f.Name(), checkpointSuffix)
		if !found {
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, wire.Errorf(wire.Failed, "looking for checkpoints: %s", err)
		}
		list = append(list, wire.SavedCheckpoint{Name: name, FileBytes: info.Size(),
			Saved: info.ModTime().UTC().Truncate(time.Second)})
	}
	return list, nil
}

// listCheckpoints answers wire.ListCheckpoints. The table may be gone: its checkpoints outlive it.
func (s *Service) listCheckpoints(ctx context.Context, _ *call, body []byte) (any, error) {
	var req wire.TableRequest
	if err := decodeJSON("body", body, &req); err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, req.Table, toRead); err != nil {
		return nil, err
	}
	folder, err := s.checkpointFolder(req.Table)
	if err != nil {
		return nil, err
	}
	list, err := savedIn(folder)
	return wire.CheckpointList{Checkpoints: list}, err
}

// deleteCheckpoint answers wire.DeleteCheckpoint.
func (s *Service) deleteCheckpoint(ctx context.Context, _ *call, body []byte) (any, error) {
	var req wire.CheckpointRequest
	if err := decodeJSON("body", body, &req); err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, req.Table, toWrite); err != nil {
		return nil, err
	}
	path, err := s.checkpointPath(&req)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil, noCheckpoint(&req)
	}
	if err == nil {
		err = disk.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "deleting checkpoint %q: %s", req.Name, err)
	}
	s.log.Info("checkpoint deleted", "table", req.Table, "checkpoint", req.Name)
	return nil, nil
}

func noCheckpoint(r *wire.CheckpointRequest) error {
	return wire.Errorf(wire.NotFound, "checkpoint %q: table %q has none of that name: want one of its checkpoints, "+
		"which the service lists", r.Name, r.Table)
}

// checkpoint saves the whole table under a name and replaces an earlier checkpoint of that name.
func (s *Service) checkpoint(ctx context.Context, t *table, r *wire.CheckpointRequest) (any, error) {
	path, err := s.checkpointPath(r)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	left, err := s.checkpointRoom(r)
	if err != nil {
		return nil, err
	}
	if err := s.space.check(); err != nil {
		return nil, err
	}
	room := s.space.room()
	size, err := t.save(ctx, path, min(left, room))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errQuota) && room < left:
		return nil, wire.Errorf(wire.DiskFull, "checkpoint %q: it takes more than the %d bytes that the disk of %s "+
			"can spare: delete others with delete_checkpoint, or free other files", r.Name, max(room, 0), s.options.Data)
	case errors.Is(err, errQuota):
		return nil, wire.Errorf(wire.Invalid, "checkpoint %q: it and the others of table %q take more than "+
			"max_checkpoint_bytes, %d: delete some with delete_checkpoint, or raise it", r.Name, t.Name,
			s.options.MaxCheckpointBytes)
	case wire.CodeOf(err) == wire.DiskFull || wire.CodeOf(err) == wire.Interrupted: // of the journal
		return nil, err
	case err != nil:
		return nil, wire.Errorf(wire.Failed, "saving checkpoint %q: %s", r.Name, err)
	}
	return wire.CheckpointAnswer{TableInfo: t.info(), Name: r.Name, FileBytes: size}, nil
}

// checkpointRoom returns how many bytes a checkpoint may have, by the quotas of its table. A checkpoint that it
// replaces does not count. Holding admin keeps others from saving meanwhile.
func (s *Service) checkpointRoom(r *wire.CheckpointRequest) (bytes int64, err error) {
	folder, err := s.checkpointFolder(r.Table)
	if err != nil {
		return 0, err
	}
	saved, err := savedIn(folder)
	if err != nil {
		return 0, err
	}
	others, used := 0, int64(0)
	for _, c := range saved {
		if c.Name != r.Name {
			others, used = others+1, used+c.FileBytes
		}
	}
	if most := s.options.MaxCheckpoints; others >= most {
		return 0, wire.Errorf(wire.Invalid, "checkpoint %q: table %q has %d others, max_checkpoints is %d: delete "+
			"some with delete_checkpoint, save under a name it has, or raise it", r.Name, r.Table, others, most)
	}
	if s.options.MaxCheckpointBytes == 0 {
		return math.MaxInt64, nil
	}
	return s.options.MaxCheckpointBytes - used, nil
}

// errQuota is returned for a checkpoint with more bytes than it may have.
var errQuota = errors.New("more bytes than the quota")

// limited writes at most left bytes.
type limited struct {
	io.Writer
	left int64
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, errQuota
	}
	return l.Writer.Write(b)
}

// save saves the table in a file of at most left bytes.
func (t *table) save(ctx context.Context, path string, left int64) (size int64, err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return 0, err
	}
	if err := removeUnfinished(folder); err != nil {
		return 0, err
	}
	write := func(w io.Writer) error {
		if err := t.writeState(untilDone{ctx: ctx, Writer: &limited{w, left}}); err != nil {
			return err
		}
		return t.commitSaved(ctx, t.rollouts.ServiceView().LastID()) // a checkpoint has nothing that a crash could undo
	}
	if err := disk.ReplacePrivateFile(path, write); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), errors.Join(disk.SyncFolder(filepath.Dir(folder)), disk.SyncFolder(t.service.options.Data))
}

// untilDone fails reads and writes once a context has ended.
type untilDone struct {
	io.Reader
	io.Writer
	ctx context.Context
}

// Read reads.
func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(b)
}

// Write writes.
func (u untilDone) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Writer.Write(b)
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
	g := t.gateSnapshot()
	g.HasColumns, g.Columns = true, t.Columns
	if err := g.write(w); err != nil {
		return err
	}
	if t.prompts != nil {
		if err := t.prompts.Snapshot(w); err != nil {
			return err
		}
	}
	return t.rollouts.Snapshot(w)
}

// restore replaces the whole table by what was saved under a name. It ends all leases, because their rollouts may be
// gone, and releases those of the checkpoint, because nobody holds them.
func (s *Service) restore(ctx context.Context, t *table, r *wire.CheckpointRequest) (any, error) {
	path, err := s.checkpointPath(r)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noCheckpoint(r)
	}
	if err != nil {
		return nil, wire.Errorf(wire.Failed, "opening checkpoint %q: %s", r.Name, err)
	}
	defer f.Close() // it was only read
	if err := s.checkDisk(); err != nil {
		return nil, err
	}
	size, err := t.roomToRestore(f)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", r.Name, err)
	}
	defer s.tableMemory.add(-size) // what it took is charged to the table
	if err := t.readState(bufio.NewReader(untilDone{ctx: ctx, Reader: f})); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("checkpoint %q: %w", r.Name, err)
	}
	t.notifyAll()
	if err := t.journal.Rewrite(t.rollouts); err != nil {
		return nil, t.journalError(err)
	}
	s.log.Info("table restored", "table", t.Name, "checkpoint", r.Name, "version", t.version(), "rollouts", t.present())
	return t.info(), nil
}

// roomToRestore charges the contents of a checkpoint, which lie beside the table's until they replace them: about as
// much as its file has.
func (t *table) roomToRestore(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, wire.Errorf(wire.Failed, "reading its size: %s", err)
	}
	return info.Size(), t.service.tableMemory.grow(info.Size())
}

// readState replaces the table's state by what writeState wrote: all of it or nothing.
func (t *table) readState(r io.Reader) error {
	g, err := readGateSnapshot(r)
	if err != nil {
		return err
	}
	if err := t.sameColumns(g); err != nil {
		return err
	}
	t.life.Lock()
	defer t.life.Unlock()
	if err := t.gone(); err != nil {
		return err
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
	if t.journal != nil {
		t.journal.Restored() // exports go on meanwhile
	}
	if err := t.rollouts.Restore(r); err != nil {
		return err
	}
	t.rollouts.ServiceView().ReleaseAll()
	if t.prompts != nil {
		if err := copyPrompts(t.prompts, saved); err != nil {
			return err
		}
	}
	if t.journal != nil {
		t.journal.Restored()
	}
	t.leases.endAll()
	t.reports.forget()
	t.gate.Store(newGate(t.Gate, g.countFor(t), t.gate.Load().Next())) // insertions went on between the two snapshots
	return nil
}

// sameColumns refuses a checkpoint whose columns have other names or types: the bytes of its rollouts would be read as
// something else. Older checkpoints do not name theirs.
func (t *table) sameColumns(g gateSnapshot) error {
	if !g.HasColumns {
		if len(t.fields) > 0 {
			t.service.log.Warn("the checkpoint does not name its columns: they are taken for the table's",
				"table", t.Name)
		}
		return nil
	}
	saved, err := wire.ExtraFields(g.Columns)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(saved, t.fields, arrow.Field.Equal) {
		return wire.Errorf(wire.Invalid, "columns: %v: want %v, the checkpoint's: create a table with these columns "+
			"and restore it there", t.Columns, g.Columns)
	}
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
