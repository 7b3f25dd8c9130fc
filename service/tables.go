package service

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

// Names of what is kept in a journal beside the table.
const (
	gateBlob    = "gate"
	promptsBlob = "prompts"
)

// create makes a table, or returns the one that is there with the same definition.
func (s *Service) create(w wire.Table) (*table, error) {
	d, err := define(w)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	if t, err := s.table(w.Name); err == nil {
		if found := differences(d.Table, t.Table); len(found) > 0 {
			return nil, wire.Errorf(wire.Exists, "table %q is there with another definition: %s: give that, another name, or drop the table", w.Name, strings.Join(found, "; "))
		}
		return t, nil
	}
	store, err := replay.New(s.optionsOf(d))
	if err != nil {
		return nil, err
	}
	t := s.newTable(d, store)
	t.gate.Store(NewGate(d.Gate, GateBooks{}, s.firstGrant()))
	if d.prompts != nil {
		if t.prompts, err = prompts.New(*d.prompts); err != nil {
			return nil, err
		}
	}
	if s.options.Data != "" {
		text, err := d.text()
		if err != nil {
			return nil, err
		}
		if t.journal, err = journal.Create(s.journalOptions(w.Name), text, store); err != nil {
			return nil, wire.Errorf(wire.Failed, "%s", err)
		}
		t.attach()
	}
	s.mu.Lock()
	s.tables[w.Name] = t
	s.mu.Unlock()
	s.log.Info("table made", "table", w.Name, "sampler", d.Sampler, "capacity", d.Capacity, "durable", t.journal != nil)
	return t, nil
}

func (s *Service) newTable(d *definition, store *replay.Table) *table {
	t := &table{definition: d, service: s, created: s.options.Clock(), store: store}
	t.incoming = newBudget(max(s.options.MaxInFlightBytes/2, s.options.MaxMessageBytes))
	if d.Limiter != nil {
		t.limiter = NewLimiter(*d.Limiter, d.MinSize)
	}
	return t
}

// optionsOf is what a table of a definition is made with.
func (s *Service) optionsOf(d *definition) replay.Options {
	o := d.options
	o.Clock = s.options.Clock
	return o
}

func (s *Service) journalOptions(table string) journal.Options {
	return journal.Options{Path: s.journalPath(table), Sync: s.options.Sync, Interval: s.options.Interval, Logger: s.log.With("table", table)}
}

// firstGrant is a number that no gate of an earlier process reached: microseconds since 1970 grow faster than grants are given.
func (s *Service) firstGrant() uint64 { return uint64(max(s.options.Clock().UnixMicro(), 1)) }

// attach has the journal keep the gate's books and the prompts.
func (t *table) attach() {
	t.journal.Attach(gateBlob, func() ([]byte, error) {
		var b bytes.Buffer
		err := t.gateImage().write(&b)
		return b.Bytes(), err
	})
	if t.prompts != nil {
		t.journal.Attach(promptsBlob, func() ([]byte, error) {
			var b bytes.Buffer
			err := t.prompts.Snapshot(&b)
			return b.Bytes(), err
		})
	}
}

// reopen recovers a table from its journal.
func (s *Service) reopen(path string) (*table, error) {
	var d *definition
	j, store, found, err := journal.Open(s.journalOptions(nameOf(path)), func(text []byte) (t *replay.Table, err error) {
		if d, err = readDefinition(text); err != nil {
			return nil, err
		}
		return replay.New(s.optionsOf(d))
	})
	if err != nil {
		return nil, err
	}
	t := s.newTable(d, store)
	t.journal = j
	if err := t.recall(found.Blobs); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	if name := nameOf(path); name != t.Name {
		err := fmt.Errorf("it is of table %q: want the file to be named %s", t.Name, s.journalPath(t.Name))
		return nil, errors.Join(err, j.Close())
	}
	t.attach()
	s.log.Info("table recovered", "table", t.Name, "found", found.String())
	return t, nil
}

func nameOf(path string) string {
	return strings.TrimSuffix(path[strings.LastIndexByte(path, os.PathSeparator)+1:], journalSuffix)
}

// recall fills in what the journal kept beside the table. The prompts may be older than the table by the journal's interval.
func (t *table) recall(blobs map[string][]byte) (err error) {
	im := gateImage{}
	if saved := blobs[gateBlob]; len(saved) > 0 {
		if im, err = readGateImage(bytes.NewReader(saved)); err != nil {
			return err
		}
	}
	t.gate.Store(NewGate(t.Gate, im.booksOf(t), t.service.firstGrant()))
	if t.definition.prompts == nil {
		return nil
	}
	if t.prompts, err = prompts.New(*t.definition.prompts); err != nil {
		return err
	}
	if saved := blobs[promptsBlob]; len(saved) > 0 {
		return t.prompts.Restore(bytes.NewReader(saved))
	}
	return nil
}

// drop ends a table and removes its journal. Those who wait for it are told.
func (s *Service) drop(name string) error {
	s.admin.Lock()
	defer s.admin.Unlock()
	t, err := s.table(name)
	if err != nil {
		return err
	}
	t.life.Lock()
	t.gone.Store(true)
	t.leases.takeAll()
	t.life.Unlock()
	s.mu.Lock()
	delete(s.tables, name)
	s.mu.Unlock()
	t.changed()
	if t.journal == nil {
		s.log.Info("table dropped", "table", name)
		return nil
	}
	if err := t.journal.Close(); err != nil {
		s.log.Warn("closing the journal of a dropped table", "table", name, "error", err)
	}
	if err := os.Remove(s.journalPath(name)); err != nil {
		return wire.Errorf(wire.Failed, "removing the journal: %s", err)
	}
	s.log.Info("table dropped", "table", name)
	return syncFolder(s.tablesFolder())
}

// syncFolder makes the names in a folder safe from a loss of power.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
