package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/reprise-rl/reprise/replay"
)

const (
	// mapped is how much address space a file gets at first: 64 GB, where addresses have 64 bits. The map never has to be made
	// anew below that, which would wait for a backup that is under way. It costs no memory.
	mapped = 1 << (30 + 6*(^uint(0)>>63))

	// growth is by how much a file grows at a time: growing takes a sync of its own.
	growth = 32 << 20

	// chunk is how many bytes of records are written in one transaction into a file that is begun anew.
	chunk = 32 << 20
)

// totals is how many records each bucket has: a page that hides some is found by it.
type totals struct {
	Commit   uint64 // transactions so far
	Rollouts uint64
	Uses     uint64
	Requests uint64
	Salvaged bool // some of it may be missing
}

const totalsLength = 4*8 + 1

func (t *totals) append(b []byte) []byte {
	for _, n := range [...]uint64{t.Commit, t.Rollouts, t.Uses, t.Requests} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	if t.Salvaged {
		return append(b, 1)
	}
	return append(b, 0)
}

func (t *totals) read(b []byte) error {
	if len(b) != totalsLength || b[totalsLength-1] > 1 {
		return fmt.Errorf("its payload has %d bytes, the last %x; %d are needed, the last 0 or 1", len(b), b[max(0, len(b)-1):], totalsLength)
	}
	for i, n := range [...]*uint64{&t.Commit, &t.Rollouts, &t.Uses, &t.Requests} {
		*n = binary.LittleEndian.Uint64(b[8*i:])
	}
	t.Salvaged = b[totalsLength-1] == 1
	return nil
}

// store is an open file and what is known of its content. One goroutine writes to it.
type store struct {
	path    string
	db      *bbolt.DB
	encoder *encoder
	totals  totals
	first   uint64 // number of the oldest request
	next    uint64 // of the next one

	pageSize int64
	used     atomic.Int64 // bytes up to the last page ever used, before the latest transaction
}

// openStore opens a file that check found whole, or begins one.
func openStore(path string, timeout time.Duration, e *encoder) (*store, error) {
	var file *os.File
	options := &bbolt.Options{
		Timeout: timeout, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: mapped,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, mode)
			file = f
			return f, err
		},
	}
	db, err := bbolt.Open(path, 0o600, options)
	if errors.Is(err, syscall.ENOMEM) { // address space is limited
		options.InitialMmapSize = 0
		db, err = bbolt.Open(path, 0o600, options)
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, inUse(path, timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the journal %s: %w", path, err)
	}
	if err := stillThere(path, file); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.AllocSize = growth
	s := &store{path: path, db: db, encoder: e, next: 1, first: 1, pageSize: int64(db.Info().PageSize)}
	if err := db.View(func(tx *bbolt.Tx) error { s.used.Store(tx.Size()); return nil }); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal %s: %w", path, err), db.Close())
	}
	return s, nil
}

func inUse(path string, waited time.Duration) error {
	return fmt.Errorf("opening the journal %s: another process has had it open for the %v that this one waited: stop that one, or give this one another file", path, waited)
}

// stillThere refuses a file that was replaced while this process waited for its lock.
func stillThere(path string, f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return fmt.Errorf("opening the journal %s: %w", path, err)
	}
	named, err := os.Stat(path)
	if err == nil && !os.SameFile(mine, named) {
		err = errors.New("another process replaced it meanwhile: try again")
	}
	if err != nil {
		return fmt.Errorf("opening the journal %s: %w", path, err)
	}
	return nil
}

// begin makes the buckets of a new file.
func (s *store) begin(definition []byte) error {
	return s.update(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		en, err := s.encoder.state(definitionKey, definition)
		if err != nil {
			return err
		}
		return tx.Bucket([]byte(stateBucket)).Put(en.key, en.record)
	})
}

// update is a transaction that counts itself. It is not bbolt's Update, which would read the whole map again after a panic, in a
// goroutine of its own, where the next fault ends the process.
func (s *store) update(change func(tx *bbolt.Tx) error) error {
	before, first, next := s.totals, s.first, s.next
	tx, err := s.db.Begin(true)
	if err == nil {
		s.used.Store(tx.Size())
		if err = s.count(tx, change); err == nil {
			err = tx.Commit()
		} else {
			err = errors.Join(err, tx.Rollback())
		}
	}
	if err != nil {
		s.totals, s.first, s.next = before, first, next
		return fmt.Errorf("writing the journal %s: %w", s.path, err)
	}
	return nil
}

// count makes a change and writes how many records there are then.
func (s *store) count(tx *bbolt.Tx, change func(tx *bbolt.Tx) error) error {
	if err := change(tx); err != nil {
		return err
	}
	s.totals.Commit++
	en, err := s.encoder.state(totalsKey, s.totals.append(nil))
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(stateBucket)).Put(en.key, en.record)
}

// apply writes batches, in order, in one transaction.
func (s *store) apply(batches []*batch) error {
	return s.update(func(tx *bbolt.Tx) error {
		for _, b := range batches {
			if err := s.put(tx, b); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *store) put(tx *bbolt.Tx, b *batch) error {
	rollouts, uses, state := tx.Bucket([]byte(rolloutsBucket)), tx.Bucket([]byte(usesBucket)), tx.Bucket([]byte(stateBucket))
	for _, k := range []*bbolt.Bucket{rollouts, uses, tx.Bucket([]byte(requestsBucket))} {
		k.FillPercent = 1 // keys come in ascending order
	}
	for _, id := range b.removed {
		key := numberKey(uint64(id))
		if err := rollouts.Delete(key); err != nil {
			return err
		}
		s.totals.Rollouts--
		if uses.Get(key) != nil {
			if err := uses.Delete(key); err != nil {
				return err
			}
			s.totals.Uses--
		}
	}
	for _, en := range b.rollouts {
		if err := rollouts.Put(en.key, en.record); err != nil {
			return err
		}
		s.totals.Rollouts++
	}
	for _, en := range b.uses {
		if uses.Get(en.key) == nil {
			s.totals.Uses++
		}
		if err := uses.Put(en.key, en.record); err != nil {
			return err
		}
	}
	if err := s.putRequests(tx, b); err != nil {
		return err
	}
	for _, en := range b.state {
		if err := state.Put(en.key, en.record); err != nil {
			return err
		}
	}
	return nil
}

// putRequests adds requests and forgets the oldest beyond those to keep.
func (s *store) putRequests(tx *bbolt.Tx, b *batch) error {
	bucket := tx.Bucket([]byte(requestsBucket))
	for i := range b.requests {
		en, err := s.encoder.request(s.next, &b.requests[i])
		if err == nil {
			err = bucket.Put(en.key, en.record)
		}
		if err != nil {
			return err
		}
		s.next++
		s.totals.Requests++
	}
	for ; s.totals.Requests > uint64(b.keep); s.first++ {
		if err := bucket.Delete(numberKey(s.first)); err != nil {
			return err
		}
		s.totals.Requests--
	}
	return nil
}

// fill writes a cut that is everything into a file just begun, in as many transactions as it takes: the file is nobody's yet.
func (s *store) fill(b *batch) error {
	a := s.encoder.arenas.Get().(*arena)
	defer s.encoder.arenas.Put(a)
	for rest := b.anew; len(rest) > 0; {
		n, bytes := 0, int64(0)
		for n < len(rest) && bytes < chunk {
			bytes += rest[n].Rollout.Bytes()
			n++
		}
		entries, err := s.encoder.rollouts(a, rest[:n])
		if err != nil {
			return err
		}
		if err := s.apply([]*batch{{rollouts: entries}}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return s.apply([]*batch{{requests: b.requests, keep: b.keep, state: b.state, uses: b.uses}})
}

// writeAnew makes a file with all that the batch holds, and gives it its name once it is on disk. What had that name is gone
// then. The store has the file's lock.
func writeAnew(path string, definition []byte, timeout time.Duration, e *encoder, b *batch, salvaged bool) (*store, error) {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("making the journal %s anew: %w", path, err)
	}
	s, err := openStore(temporary, timeout, e)
	if err != nil {
		return nil, err
	}
	s.totals.Salvaged = salvaged
	s.db.NoSync = true
	err = s.begin(definition)
	if err == nil {
		err = s.fill(b)
	}
	if err == nil {
		err = s.db.Sync()
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("making the journal %s anew: %w", path, errors.Join(err, s.db.Close(), os.Remove(temporary)))
	}
	s.path, s.db.NoSync = path, false
	return s, nil
}

// syncFolder makes a rename in a folder survive.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// mergeUses puts the last uses into the rollouts that they are of, both by ascending ID. It returns those of no rollout.
func mergeUses(all []replay.Stored, uses []replay.Usage) (strays []replay.Usage) {
	i := 0
	for _, u := range uses {
		for i < len(all) && all[i].ID < u.ID {
			i++
		}
		if i < len(all) && all[i].ID == u.ID {
			all[i].Usage = u
		} else {
			strays = append(strays, u)
		}
	}
	return strays
}
