package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
)

// Durable insertions are measured for these lengths, by so many clients, each with a connection of its own.
const (
	durableShort   = 1000
	durableLong    = 32768
	durableClients = 16
	durableTable   = "bench-durable"
)

// durableCapacity is how many rollouts the table keeps: less than is inserted, so that room is used again.
func durableCapacity(tokens int) int { return max(2*durableClients*groupSize, (256<<20)/(13*tokens)) }

// writing is one way of writing to the disk.
type writing struct {
	rewrite bool
	block   int // bytes
}

// writings are the ways in which the disk is measured.
func writings() []writing {
	return []writing{{false, 4 << 20}, {false, 16 << 20}, {false, 64 << 20}, {true, 4 << 20}, {true, 16 << 20}}
}

// disks are the files that the disk is measured on, by whether they are written over.
type disks map[bool]*diskFile

func newDisks(dir string) (disks, error) {
	d := make(disks)
	for _, rewrite := range []bool{false, true} {
		f, err := newDiskFile(dir, rewrite)
		if err != nil {
			d.close()
			return nil, err
		}
		d[rewrite] = f
	}
	return d, nil
}

func (d disks) close() {
	for _, f := range d {
		f.close()
	}
}

// measureDurable measures insertions by many clients, and the disk in the same rounds.
func measureDurable(ctx context.Context, l *lab, s Settings, told progress) (list []Durable, own []Disk, err error) {
	files, err := newDisks(l.disk)
	if err != nil {
		return nil, nil, err
	}
	defer files.close()
	for _, tokens := range []int{durableShort, durableLong} {
		told.say("durable insertions of %d x %d tokens by %s", groupSize, tokens, plural(durableClients, "client"))
		d, measured, err := insertDurably(ctx, l.durable, files, s, tokens)
		if err != nil {
			return nil, nil, fmt.Errorf("durable insertions of %d tokens: %w", tokens, err)
		}
		list, own = append(list, d), measured // the disk's figures of the last
	}
	return list, own, nil
}

func insertDurably(ctx context.Context, s *server, files disks, set Settings, tokens int) (d Durable, own []Disk, err error) {
	if err := s.create(ctx, durableTable, durableCapacity(tokens)); err != nil {
		return d, nil, err
	}
	defer func() { err = errors.Join(err, s.drop(ctx, durableTable)) }()
	c, err := newCrowd(ctx, s, tokens)
	defer c.close()
	if err != nil {
		return d, nil, err
	}
	contenders := []contender{{"service", c.insert}}
	for _, w := range writings() {
		contenders = append(contenders, files[w.rewrite].contender(w.block))
	}
	all, err := take(ctx, contenders, set.Rounds, set.turn())
	if err != nil {
		return d, nil, err
	}
	rate := all[0].rate()
	d = Durable{
		Tokens: tokens, Group: groupSize, Clients: durableClients, Bytes: c.bytes, Rollouts: rate * groupSize,
		GBs: rate * float64(c.bytes) / 1e9, P50: all[0].latency(0.5), P99: all[0].latency(0.99),
		OfDisk: ofBest(all, c.bytes, false), OfRewriting: ofBest(all, c.bytes, true),
	}
	for i, w := range writings() {
		own = append(own, Disk{w.rewrite, w.block, all[i+1].rate() * float64(w.block) / 1e9, all[i+1].latency(0.5)})
	}
	return d, own, nil
}

// ofBest is the median over rounds of the insertions' bytes per second in those of the disk, with the block that was best
// in the round. The first series are the insertions, of so many bytes each; the others are the writings.
func ofBest(all []series, bytes int64, rewrite bool) float64 {
	var shares []float64
	for round, t := range all[0] {
		best := 0.0
		for i, w := range writings() {
			if w.rewrite == rewrite {
				best = max(best, all[i+1][round].rate()*float64(w.block))
			}
		}
		shares = append(shares, t.rate()*float64(bytes)/best)
	}
	return median(shares)
}

// crowd is clients that insert at the same time.
type crowd struct {
	clients []*client.Client
	groups  []rollout.Group // a group for each
	bytes   int64           // of one
}

func newCrowd(ctx context.Context, s *server, tokens int) (*crowd, error) {
	c := &crowd{}
	for i := range durableClients {
		connection, err := s.dial(ctx, TCP)
		if err != nil {
			return c, err
		}
		c.clients = append(c.clients, connection)
		c.groups = append(c.groups, content(groupSize, tokens, i)...)
	}
	c.bytes = payload(c.groups[:1])
	return c, nil
}

// insert has every client insert its group again and again for so long. What is under way at the end is awaited and counted, with its time.
func (c *crowd) insert(ctx context.Context, d time.Duration) (turn, error) {
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

func (c *crowd) close() {
	for _, one := range c.clients {
		one.Close()
	}
}
