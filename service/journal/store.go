package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

const (
	// mapped is the address space of a file: 64 GB where addresses have 64 bits. Below that the file is never mapped
	// again as it grows. It costs no memory.
	mapped = 1 << (30 + 6*(^uint(0)>>63))

	// growth is how much a file grows at a time: each growth takes a sync of its own.
	growth = 32 << 20

	// chunk is how many bytes of rollouts one transaction writes into a new file.
	chunk = 32 << 20
)

// batch is an encoded cut.
type batch struct {
	round *round // the callers that wait for it; nil: none
	sync  bool   // whatever Options.Sync says

	rewrite  bool            // the cut replaces all content
	all      []replay.Stored // of such a cut; encoded when written, because it may be the whole table
	rollouts []entry
	uses     []entry
	removed  []rollout.ID
	requests []replay.Insertion
	keep     int     // number of requests to keep, the latest ones
	state    []entry // changed state of the table and blobs

	position position // with Interval: in the log; in a shared log the number only, 0 until it is there
	carried  uint64   // the rollouts of a shared log before this position are in the table no more, or in this cut
	due      bool     // to be written now; otherwise when the interval is over

	bytes int64 // of records
	arena *arena
	apart []replay.Stored // the rollouts whose routed experts are apart
}

// batchMemory is what a batch takes besides its records, about.
const batchMemory = 1 << 10

// memory returns the bytes that a batch holds, about.
func (b *batch) memory() int64 {
	n := batchMemory + len(b.uses)*(headerLength+useLength) + 8*len(b.removed)
	if b.arena != nil {
		for _, part := range b.arena.parts {
			n += cap(part)
		}
	}
	for i := range b.requests {
		n += batchMemory/16 + len(b.requests[i].BatchID)
	}
	for _, en := range b.state {
		n += len(en.record)
	}
	for i := range b.apart {
		n += 2 * len(b.apart[i].Rollout.RoutedExperts)
	}
	return int64(n)
}

func (b *batch) empty() bool {
	return !b.rewrite && len(b.rollouts)+len(b.uses)+len(b.removed)+len(b.requests)+len(b.state) == 0
}

// store is an open file. One goroutine writes to it.
type store struct {
	path   string
	open   *os.File    // closed with db
	file   os.FileInfo // its device and inode
	db     *bbolt.DB
	totals totals
	first  uint64 // number of the oldest request
	next   uint64 // number of the next request

	position position

	unsynced bool // transactions were committed without a sync since the last one
	pageSize int64
	used     atomic.Int64 // bytes up to the last page ever used, before the latest transaction
}

// openStore opens a file that was verified, or makes a new one.
func openStore(path string, timeout time.Duration) (*store, error) {
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
	info, err := file.Stat()
	if err == nil {
		err = checkInPlace(path, info)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal %s: %w", path, err), db.Close())
	}
	if disk.Opened != nil {
		disk.Opened(path, db)
	}
	db.AllocSize = growth
	s := &store{path: path, open: file, file: info, db: db, next: 1, first: 1, pageSize: int64(db.Info().PageSize)}
	if err := db.View(func(tx *bbolt.Tx) error { s.used.Store(tx.Size()); return nil }); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal %s: %w", path, err), db.Close())
	}
	return s, nil
}

func inUse(path string, waited time.Duration) error {
	return fmt.Errorf("opening the journal %s: another process has had it open for the %v that this one waited: "+
		"stop that one, or give this one another file", path, waited)
}

// checkInPlace refuses a path that no longer names the open file.
func checkInPlace(path string, open os.FileInfo) error {
	named, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("somebody removed the file while it was open")
	case err == nil && !os.SameFile(open, named):
		return errors.New("somebody replaced the file while it was open")
	}
	return err
}

// writeAnew writes a new file with the content of a batch and moves it into place once it is on disk. The store holds
// the file's lock.
func writeAnew(path string, definition []byte, timeout time.Duration, b *batch, salvaged bool) (*store, error) {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("writing the journal %s anew: %w", path, err)
	}
	failed := func(err error) error {
		if disk.IsFull(err) && !errors.Is(err, ErrNoSpace) {
			err = noSpace(path, err)
		}
		if removing := os.Remove(temporary); !errors.Is(removing, os.ErrNotExist) {
			err = errors.Join(err, removing)
		}
		return fmt.Errorf("writing the journal %s anew: %w", path, err)
	}
	s, err := openStore(temporary, timeout)
	if err != nil {
		return nil, failed(err)
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
		err = disk.SyncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, failed(errors.Join(err, s.db.Close()))
	}
	s.path, s.db.NoSync, s.unsynced = path, false, false
	return s, nil
}

// begin creates the buckets of a new file.
func (s *store) begin(definition []byte) error {
	return s.update(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return putState(tx, definitionKey, definition)
	})
}

// fill writes a cut that is everything into a new file, in several transactions: nobody reads the file yet.
func (s *store) fill(b *batch) error {
	a := newArena()
	for rest := b.all; len(rest) > 0; {
		n, bytes := 0, int64(0)
		for n < len(rest) && bytes < chunk {
			bytes += rest[n].Rollout.Bytes()
			n++
		}
		entries, err := encodeRollouts(a, rest[:n], true)
		if err != nil {
			return err
		}
		if err := s.apply([]*batch{{rollouts: entries}}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return s.apply([]*batch{{requests: b.requests, keep: b.keep, state: b.state, uses: b.uses, position: b.position}})
}

// apply writes batches, in order, in one transaction.
func (s *store) apply(batches []*batch) error {
	return s.update(func(tx *bbolt.Tx) error {
		for _, b := range batches {
			if err := s.put(tx, b); err != nil {
				return err
			}
			if b.position.log != 0 {
				s.position = b.position
			}
		}
		return s.putPosition(tx)
	})
}

// update runs a transaction and updates the totals. It does not use bbolt's Update, which would read the whole map
// after a panic, in a goroutine of its own, where the next fault would end the process.
func (s *store) update(change func(tx *bbolt.Tx) error) error {
	before, first, next, position := s.totals, s.first, s.next, s.position
	number := 0
	tx, err := s.db.Begin(true)
	if err == nil {
		number = tx.ID()
		s.used.Store(tx.Size())
		if err = change(tx); err == nil {
			s.totals.Commit++
			err = putState(tx, totalsKey, s.totals.append(nil))
		}
		if err == nil {
			err = tx.Commit()
		} else {
			err = errors.Join(err, tx.Rollback())
		}
	}
	if err != nil {
		s.totals, s.first, s.next, s.position = before, first, next, position
		if disk.IsFull(err) && s.rolledBack(number, err) {
			err = noSpace(s.path, err)
		}
		return fmt.Errorf("writing the journal %s: %w", s.path, err)
	}
	s.unsynced = s.db.NoSync
	return nil
}

// rolledBack reports whether a transaction that found the disk full has left the file as it was: it can be repeated. It
// has not if its meta page was written, nor if a sync failed that earlier transactions depend on.
func (s *store) rolledBack(number int, failed error) bool {
	var write *os.PathError
	if s.unsynced && !errors.As(failed, &write) { // not from a write
		return false
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return false
	}
	last := tx.ID()
	return tx.Rollback() == nil && last < number
}

// noSpace is the error of a full disk.
func noSpace(path string, cause error) error {
	free := "it"
	if n := disk.Free(filepath.Dir(path)); n >= 0 {
		free = fmt.Sprintf("it, which has %d bytes left", n)
	}
	return fmt.Errorf("%w: free space on %s: %w", ErrNoSpace, free, cause)
}

// commit returns the number of the latest transaction in the file.
func (s *store) commit() (number uint64, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		payload, err := openRecord(stateBucket, []byte(totalsKey), tx.Bucket([]byte(stateBucket)).Get([]byte(totalsKey)),
			kindState)
		var t totals
		if err == nil {
			err = t.decode(payload)
		}
		number = t.Commit
		return err
	})
	return number, err
}

// putPosition writes up to where the file has the cuts of its log.
func (s *store) putPosition(tx *bbolt.Tx) error {
	if s.position.log == 0 {
		return nil
	}
	return putState(tx, logKey, s.position.append(nil))
}

// beginLog gives the file a log if it has had none.
func (s *store) beginLog() error {
	if s.position.log != 0 {
		return nil
	}
	s.position.log = newLogID()
	return s.update(s.putPosition)
}

func putState(tx *bbolt.Tx, key string, payload []byte) error {
	en, err := encodeState(key, payload)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(stateBucket)).Put(en.key, en.record)
}

func (s *store) put(tx *bbolt.Tx, b *batch) error {
	rollouts, uses, state := tx.Bucket([]byte(rolloutsBucket)), tx.Bucket([]byte(usesBucket)),
		tx.Bucket([]byte(stateBucket))
	for _, k := range []*bbolt.Bucket{rollouts, uses, tx.Bucket([]byte(requestsBucket))} {
		k.FillPercent = 1 // keys come in ascending order
	}
	for _, id := range b.removed {
		key := numberKey(uint64(id))
		if s.totals.Salvaged && rollouts.Get(key) == nil {
			continue // it was lost
		}
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
		if !s.totals.Salvaged || rollouts.Get(en.key) == nil { // otherwise an orphan that the log has too
			s.totals.Rollouts++
		}
		if err := rollouts.Put(en.key, en.record); err != nil {
			return err
		}
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

// putRequests adds requests and removes the oldest beyond those to keep.
func (s *store) putRequests(tx *bbolt.Tx, b *batch) error {
	bucket := tx.Bucket([]byte(requestsBucket))
	for i := range b.requests {
		en, err := encodeRequest(s.next, &b.requests[i])
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

// size returns the bytes of the file, 0 if it is gone, and how many of them are free: freed pages, and the part that
// the file has grown by in advance.
func (s *store) size() (file, free int64) {
	if info, err := os.Stat(s.path); err == nil {
		file = info.Size()
	}
	stats := s.db.Stats() // takes no lock that a panic may have left held, and reads nothing of the map
	return file, max(file-s.used.Load(), 0) + int64(stats.FreePageN+stats.PendingPageN)*s.pageSize
}
