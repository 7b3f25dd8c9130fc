package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// Cluster is the nodes that a service belongs to. They decide which of them owns a table, and keep its journal:
// Options.Sync has no effect. It may be called concurrently.
type Cluster interface {
	// Locate returns the parts of a table in order; one, with the table's name, for a table that is not in parts; none
	// if there is no such table.
	Locate(ctx context.Context, table string) ([]wire.Part, error)
	// Create has a node open a new table, unless there is one of that name.
	Create(ctx context.Context, table string, definition []byte) error
	// Drop removes a table, wherever it is.
	Drop(ctx context.Context, table string) error
	// Valid reports whether the service may answer for its tables now. Otherwise another node may own them already.
	Valid() bool
	// DiskFull returns an error while a node's disk has no room for the copies of what would be inserted.
	DiskFull() error
	// Scrub reads every copy of the log of a table that the service has, at up to bytesPerSecond, and tells the other
	// nodes which are damaged.
	Scrub(ctx context.Context, table string, bytesPerSecond int64) ([]wire.ScrubbedCopy, error)
	// View returns what the service knows of the other nodes.
	View() wire.ClusterView
}

// elsewhere returns the error of a table that this service does not have: it names the service that has it.
func (s *Service) elsewhere(name string) error {
	if s.options.Cluster == nil {
		return notFound(name)
	}
	parts, err := s.options.Cluster.Locate(s.cut, name)
	switch {
	case err != nil:
		return err
	case len(parts) == 0:
		return notFound(name)
	case len(parts) != 1 || parts[0].Table != name:
		return wire.Errorf(wire.Invalid, "table %q is in %d parts: want a client that was given it by the action %s",
			name, len(parts), wire.Locate)
	case parts[0].Address == "":
		return wire.ElsewhereError("", "table %q: no node has it now: retry", name)
	}
	return wire.ElsewhereError(parts[0].Address, "table %q is at %s now: ask there", name, parts[0].Address)
}

// checkLease returns an error unless the service may answer for its tables now.
func (s *Service) checkLease() error {
	if s.options.Cluster == nil || s.options.Cluster.Valid() {
		return nil
	}
	return wire.ElsewhereError("", "this node could not renew its lease, so that another may own its tables: retry")
}

// createAnywhere creates a table here, or on the node that the cluster chooses: then the error says which that is, with
// code wire.Elsewhere. It finds the table if it exists with the same definition.
func (s *Service) createAnywhere(ctx context.Context, w wire.Table) (*table, error) {
	if s.options.Cluster == nil {
		return s.create(w, s.options.MaxTables)
	}
	d, err := define(w)
	if err != nil {
		return nil, err
	}
	if t := s.served(w.Name); t != nil {
		return t, cmp.Or(t.checkSame(w, d), s.checkLease())
	}
	tables := s.options.Cluster.View().Tables
	named := func(p wire.PlacedTable) bool { return p.Name == w.Name }
	if !slices.ContainsFunc(tables, named) {
		if n := len(tables); n >= s.options.MaxTables {
			return nil, tooManyTables(w.Name, n)
		}
		if err := s.checkDisk(); err != nil {
			return nil, err
		}
	}
	given := *d
	d.CapacityBytes = cmp.Or(d.CapacityBytes, s.tableMemory.most/(defaultTables+1))
	text, err := d.text()
	if err != nil {
		return nil, err
	}
	if err := s.options.Cluster.Create(ctx, w.Name, text); err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		t, err := s.table(w.Name)
		if !errors.Is(err, wire.ErrElsewhere) || wire.AddressOf(err) != "" || time.Since(began) > openTime {
			if err == nil {
				err = t.checkSame(w, &given)
			}
			return t, err
		}
		select {
		case <-time.After(openTime / 100):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// openTime is how long the creation of a table waits for a node to open it.
const openTime = 5 * time.Second

// CreateInCluster creates the tables of the options that do not exist yet, on whatever nodes. It tries until it has or
// the context ends.
func (s *Service) CreateInCluster(ctx context.Context) error {
	for _, w := range s.options.Tables {
		for {
			_, err := s.createAnywhere(ctx, w)
			if err == nil || wire.AddressOf(err) != "" {
				break
			}
			if code := wire.CodeOf(err); code == wire.Invalid || code == wire.Exists {
				return err
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("creating table %q: %w", w.Name, err)
			}
		}
	}
	return nil
}

// Open serves a table that the cluster gives this service, recovered from its log.
func (s *Service) Open(name string, text []byte, log journal.Log) error {
	d, err := readDefinition(text)
	if err != nil {
		return err
	}
	s.removeOldExperts()
	experts, err := s.expertsOf(name, log)
	if err != nil {
		return err
	}
	o := journal.Options{Interval: s.options.Interval, Logger: s.log.With("table", name), Experts: experts}
	j, store, found, err := journal.OpenIn(log, o, func() (*replay.Table, error) {
		return replay.New(s.replayOptions(d))
	})
	if err != nil {
		return err
	}
	t := s.newTable(d, store)
	t.journal = j
	if err := t.loadJournaled(found.Blobs); err != nil {
		_ = j.Close() // err says more
		return err
	}
	t.attachToJournal()
	t.recount()
	s.mu.Lock()
	s.tables[name] = t
	s.mu.Unlock()
	s.log.Info("table opened", "table", name, "found", found.String())
	if found.WithoutExperts > 0 {
		s.log.Warn("routed_experts are lost: they stay on the node that had the table before", "table", name, "rollouts",
			found.WithoutExperts)
	}
	return nil
}

// expertsFolder is where a table's routed experts are kept, in a folder named after its log.
func (s *Service) expertsFolder(table string) string {
	return filepath.Join(s.options.Data, "experts", table)
}

// expertsOf returns the folder of a table's routed experts, after removing what an earlier table of that name left.
func (s *Service) expertsOf(table string, log journal.Log) (string, error) {
	all, name := s.expertsFolder(table), strings.ReplaceAll(log.String(), " ", "-")
	left, err := os.ReadDir(all)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	for _, folder := range left {
		if folder.Name() != name {
			if err := os.RemoveAll(filepath.Join(all, folder.Name())); err != nil {
				return "", err
			}
		}
	}
	return filepath.Join(all, name), nil
}

// Close stops serving a table that the cluster gives another node. Its last changes are in the log then, unless this
// node has lost it.
func (s *Service) Close(name string) {
	t := s.served(name)
	if t == nil {
		return
	}
	s.forget(t)
	if err := t.journal.Close(); err != nil {
		s.log.Warn("closing a table", "table", name, "error", err)
	}
	s.removeOldExperts()
}

// removeOldExperts removes the routed experts of tables that were dropped, perhaps while another node had them.
func (s *Service) removeOldExperts() {
	folders, err := os.ReadDir(s.expertsFolder(""))
	for _, folder := range folders {
		named := func(p wire.PlacedTable) bool { return p.Name == folder.Name() }
		if !slices.ContainsFunc(s.options.Cluster.View().Tables, named) {
			err = errors.Join(err, os.RemoveAll(s.expertsFolder(folder.Name())))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("removing the routed experts of dropped tables", "error", err)
	}
}

// Counts returns what the other nodes are told of a table.
func (s *Service) Counts(name string) wire.Counts {
	t := s.served(name)
	if t == nil {
		return wire.Counts{}
	}
	f := t.rollouts.ServiceView().Flow()
	return wire.Counts{Version: int32(t.version()), Present: f.Present, Bytes: f.Bytes, Inserted: f.Inserted,
		LogBytes: t.journal.Stats().LogBytes}
}

// DiskFull returns an error with code wire.DiskFull while the service's own disk has no room for insertions.
func (s *Service) DiskFull() error { return s.space.check() }

// checkDisk returns an error with code wire.DiskFull while nothing may be inserted: the disk of the service is full, or
// that of another node, which holds copies.
func (s *Service) checkDisk() error {
	if err := s.space.check(); err != nil || s.options.Cluster == nil {
		return err
	}
	return s.options.Cluster.DiskFull()
}

// served returns a table that this service has, nil if it has not.
func (s *Service) served(name string) *table {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tables[name]
}
