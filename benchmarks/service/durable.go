package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/rollout"
)

// Durable insertions are measured for these lengths and numbers of clients. Each has a connection of its own.
const (
	durableShort   = 1000
	durableLong    = 32768
	durableClients = 16
	durableTable   = "bench-durable"
)

// durableCapacity is how many rollouts the table keeps: fewer than are inserted, so that space is reused.
func durableCapacity(tokens int) int { return max(2*durableClients*groupSize, (256<<20)/(13*tokens)) }

// writing is one way of writing to the disk.
type writing struct {
	rewrite bool
	block   int // bytes
}

// writings are the ways of writing that are measured: with 4, 16 and 64 MiB where files grow to 256 MiB.
func writings(bytes int) []writing {
	return []writing{{false, bytes / 64}, {false, bytes / 16}, {false, bytes / 4}, {true, bytes / 64},
		{true, bytes / 16}}
}

// disk is the files that the disk is measured on, by whether they are rewritten, and the ways of writing them.
type disk struct {
	files map[bool]*diskFile
	ways  []writing
}

func newDisk(dir string, bytes int) (*disk, error) {
	d := &disk{files: make(map[bool]*diskFile), ways: writings(bytes)}
	for _, rewrite := range []bool{false, true} {
		f, err := newDiskFile(dir, bytes, rewrite)
		if err != nil {
			d.close()
			return nil, err
		}
		d.files[rewrite] = f
	}
	return d, nil
}

func (d *disk) close() {
	for _, f := range d.files {
		f.close()
	}
}

// measureDurable measures insertions by many clients, and the disk in the same rounds.
func measureDurable(ctx context.Context, l *lab, s *runCommand) (list []Durable, own []Disk, err error) {
	disk, err := newDisk(l.disk, cmp.Or(s.diskBytes, defaultDiskBytes))
	if err != nil {
		return nil, nil, err
	}
	defer disk.close()
	lengths := s.durableTokens
	if lengths == nil {
		lengths = []int{durableShort, durableLong}
	}
	for _, tokens := range lengths {
		announce("durable insertions of %d x %d tokens by %s", groupSize, tokens,
			words.Plural(durableClients, "client"))
		d, measured, err := insertDurably(ctx, l.durable, disk, s, tokens)
		if err != nil {
			return nil, nil, fmt.Errorf("durable insertions of %d tokens: %w", tokens, err)
		}
		list, own = append(list, d), measured // the disk's figures of the last
	}
	return list, own, nil
}

func insertDurably(ctx context.Context, s *server, own *disk, set *runCommand, tokens int) (d Durable, figures []Disk,
	err error) {
	if err := s.create(ctx, durableTable, durableCapacity(tokens)); err != nil {
		return d, nil, err
	}
	defer func() { err = errors.Join(err, s.drop(ctx, durableTable)) }()
	c, err := newInserters(ctx, s, tokens)
	defer c.close()
	if err != nil {
		return d, nil, err
	}
	contenders := []contender{{"service", c.insert}}
	for _, w := range own.ways {
		contenders = append(contenders, own.files[w.rewrite].contender(w.block))
	}
	all, err := takeTurns(ctx, contenders, set.Rounds, set.turn())
	if err != nil {
		return d, nil, err
	}
	rate := all[0].rate()
	d = Durable{
		Tokens: tokens, Group: groupSize, Clients: durableClients, Bytes: c.bytes, Rollouts: rate * groupSize,
		GBs: rate * float64(c.bytes) / 1e9, P50: all[0].latency(0.5), P99: all[0].latency(0.99),
		OfDisk: own.ofBest(all, c.bytes, false), OfRewriting: own.ofBest(all, c.bytes, true),
	}
	for i, w := range own.ways {
		figures = append(figures, Disk{w.rewrite, w.block, all[i+1].rate() * float64(w.block) / 1e9,
			all[i+1].latency(0.5)})
	}
	return d, figures, nil
}

// ofBest is the median over rounds of the insertions' bandwidth as a share of the disk's, with the best block size in
// each round. The first series is the insertions, of the given bytes each; the others are the writings.
func (d *disk) ofBest(all []series, bytes int64, rewrite bool) float64 {
	var shares []float64
	for round, t := range all[0] {
		best := 0.0
		for i, w := range d.ways {
			if w.rewrite == rewrite {
				best = max(best, all[i+1][round].rate()*float64(w.block))
			}
		}
		shares = append(shares, t.rate()*float64(bytes)/best)
	}
	return results.Median(shares)
}

// inserters are clients that insert at the same time.
type inserters struct {
	clients []*client.Client
	groups  []rollout.Group // a group for each
	bytes   int64           // of one
}

func newInserters(ctx context.Context, s *server, tokens int) (*inserters, error) {
	c := &inserters{}
	for i := range durableClients {
		connection, err := s.dial(ctx, tcp)
		if err != nil {
			return c, err
		}
		c.clients = append(c.clients, connection)
		c.groups = append(c.groups, newGroups(groupSize, tokens, i)...)
	}
	c.bytes = payload(c.groups[:1])
	return c, nil
}

// insert lets every client insert its group again and again. Insertions in flight at the end are awaited and counted,
// with their time.
func (c *inserters) insert(ctx context.Context, d time.Duration) (turn, error) {
	turns := make([]turn, len(c.clients))
	errs := make([]error, len(c.clients))
	var all sync.WaitGroup
	begin := time.Now()
	for i, one := range c.clients {
		table := one.Table(durableTable).Waiting(client.Forever)
		all.Go(func() {
			turns[i], errs[i] = repeated("", func(ctx context.Context) error {
				_, err := table.Insert(ctx, c.groups[i])
				return err
			}).run(ctx, d)
		})
	}
	all.Wait()
	sum := turn{seconds: time.Since(begin).Seconds()}
	for _, t := range turns {
		sum.operations += t.operations
		sum.latencies = slices.Concat(sum.latencies, t.latencies)
	}
	return sum, errors.Join(errs...)
}

func (c *inserters) close() {
	for _, one := range c.clients {
		one.Close()
	}
}

// defaultDiskBytes is the size that the files grow to.
const defaultDiskBytes = 256 << 20

// diskFile is a file that is written from front to end again and again: either a new file each time, as a log writes
// its segments, or the same file, whose blocks are allocated already. Many disks, above all those of virtual machines,
// rewrite several times as fast.
type diskFile struct {
	path    string
	rewrite bool
	bytes   int64 // that it grows to
	file    *os.File
	block   []byte
	at      int64
}

// newDiskFile makes the file. A file to rewrite is written once, to allocate its blocks.
func newDiskFile(dir string, bytes int, rewrite bool) (*diskFile, error) {
	d := &diskFile{path: filepath.Join(dir, fmt.Sprintf("disk-%t", rewrite)), rewrite: rewrite, bytes: int64(bytes),
		block: make([]byte, bytes/4)}
	for i := range d.block {
		d.block[i] = byte(i * 2654435761 >> 13) // so that no disk can compress it to nothing
	}
	if err := d.begin(); err != nil {
		return nil, err
	}
	if !rewrite {
		return d, nil
	}
	for at := int64(0); at < d.bytes; at += int64(len(d.block)) {
		if _, err := d.file.WriteAt(d.block, at); err != nil {
			d.close()
			return nil, err
		}
	}
	if err := d.file.Sync(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// begin begins a new file in the place of the old one.
func (d *diskFile) begin() (err error) {
	if d.file != nil {
		d.close()
	}
	d.file, err = os.Create(d.path)
	return err
}

// write writes the next block and syncs it.
func (d *diskFile) write(bytes int) error {
	if d.at+int64(bytes) > d.bytes {
		d.at = 0
		if !d.rewrite {
			if err := d.begin(); err != nil {
				return err
			}
		}
	}
	if _, err := d.file.WriteAt(d.block[:bytes], d.at); err != nil {
		return err
	}
	d.at += int64(bytes)
	return datasync(d.file)
}

// contender writes blocks of the given bytes, each with fdatasync.
func (d *diskFile) contender(bytes int) contender {
	return repeated(fmt.Sprintf("disk, %d KiB blocks", bytes>>10),
		func(context.Context) error { return d.write(bytes) })
}

func (d *diskFile) close() {
	d.file.Close()
	os.Remove(d.path)
}
