package main

import (
	"context"
	"errors"
	"fmt"
	"github.com/reprise-rl/reprise/replay"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// CrashSettings say how a service is crashed.
type CrashSettings struct {
	Program   string        `default:"bin/reprise" help:"The program whose verb serve is killed."`
	Times     int           `default:"200" help:"How often it is killed."`
	Dir       string        `help:"Folder for the journals, removed in the end; the system's for temporary files if it is not given."`
	Seed      uint64        `default:"1" help:"Of every choice."`
	Inserting int           `default:"8" help:"Clients that insert."`
	Life      time.Duration `default:"1s" help:"Longest time between a start and the next kill."`
	Pace      time.Duration `default:"10ms" help:"Longest pause of a client between two calls."`
	Longest   int           `default:"512" help:"Tokens of the longest rollouts."`
	Keep      bool          `help:"Keep the folder."`
}

// crashTables are one that keeps everything and a queue; neither evicts anything.
func crashTables() []wire.Table {
	return []wire.Table{
		{Name: "kept", Options: replay.Options{Capacity: 1 << 22, Sampler: "uniform", GroupSize: groupSize, Vocab: vocab, LeaseSeconds: 5}},
		{Name: "queue", Options: replay.Options{Capacity: 1 << 22, Sampler: "fifo", GroupSize: groupSize, Vocab: vocab, LeaseSeconds: 5}},
	}
}

// crasher is a service that is killed again and again.
type crasher struct {
	CrashSettings
	out     io.Writer
	verdict *Verdict
	server  *server
	fates   [2]fates // of the rollouts, by table
	starts  []time.Duration
	answers tally
}

// crash kills a service under load and returns the verdict; an error means that there is none.
func crash(ctx context.Context, s CrashSettings, out io.Writer) (*Verdict, error) {
	dir, leave, err := workspace(s.Dir, "reprise-crash", s.Keep, out)
	if err != nil {
		return nil, err
	}
	defer leave()
	c := &crasher{CrashSettings: s, out: out, verdict: &Verdict{}}
	if c.server, err = newServer(s.Program, dir); err != nil {
		return nil, err
	}
	defer c.server.close()
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if err := c.work(ctx); err != nil {
		return nil, err
	}
	return c.verdict, c.judge(ctx)
}

func (c *crasher) begin(ctx context.Context) error {
	if _, err := c.server.start(ctx); err != nil {
		return err
	}
	direct, err := c.server.dial(ctx)
	if err != nil {
		return err
	}
	defer direct.Close()
	return create(ctx, direct, crashTables()...)
}

// work kills and starts the service while clients work; everybody who inserts ends with an answer to the last insertion.
func (c *crasher) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := make(chan struct{})
	var inserting, training sync.WaitGroup
	for i := range c.Inserting {
		in := &inserter{crasher: c, number: i, random: rollout.Stream(c.Seed, "inserter", uint64(i))}
		inserting.Go(func() { in.run(ctx, enough) })
	}
	training.Go(func() { (&consumer{crasher: c}).run(ctx) })
	training.Go(func() { c.sample(ctx) })
	err := c.killOften(ctx)
	close(enough)
	if err != nil {
		cancel()
	}
	inserting.Wait()
	cancel()
	training.Wait()
	return err
}

// killOften kills the service at random moments: mostly after it has served for a while, sometimes while it still opens its journals.
func (c *crasher) killOften(ctx context.Context) error {
	random := rollout.Stream(c.Seed, "killer", 0)
	began := time.Now()
	for i := range c.Times {
		wait(ctx, time.Duration(random.Int64N(int64(c.Life))))
		if !c.server.alive() {
			return fmt.Errorf("the service ended by itself (%v): %s", c.server.err, c.server.said())
		}
		c.server.kill()
		if random.IntN(8) == 0 {
			if err := c.killEarly(ctx, random); err != nil {
				return err
			}
		}
		took, err := c.server.start(ctx)
		if err != nil {
			return fmt.Errorf("after kill %d: %w", i+1, err)
		}
		c.starts = append(c.starts, took)
		if (i+1)%20 == 0 || i+1 == c.Times {
			fmt.Fprintf(c.out, "%6s  killed %d times; acknowledged %d, of them consumed %d; last start took %s\n", time.Since(began).Round(time.Second),
				i+1, c.fates[0].count(isAcknowledged)+c.fates[1].count(isAcknowledged), c.fates[1].count(isConsumed), took.Round(time.Millisecond))
		}
	}
	return nil
}

// killEarly starts the service and kills it before it is ready, or hardly.
func (c *crasher) killEarly(ctx context.Context, random *rand.Rand) error {
	early, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(100))*time.Millisecond)
	defer cancel()
	_, err := c.server.start(early)
	if err != nil && early.Err() == nil {
		return err
	}
	if c.server.alive() {
		c.server.kill()
	}
	return ctx.Err()
}

// inserter inserts into both tables in turn, each batch under its id until it is answered.
type inserter struct {
	*crasher
	number int
	random *rand.Rand
}

func (in *inserter) run(ctx context.Context, enough <-chan struct{}) {
	var conn *client.Client
	for conn == nil && ctx.Err() == nil { // the service may be down
		conn, _ = client.Dial(ctx, in.server.address(), client.Options{Patience: -1})
	}
	if conn == nil {
		return
	}
	defer conn.Close()
	for batch := 0; ; batch++ {
		select {
		case <-enough:
			return
		case <-ctx.Done():
			return
		default:
		}
		wait(ctx, time.Duration(in.random.Int64N(int64(in.Pace))))
		if err := in.insert(ctx, conn, batch); err != nil && ctx.Err() == nil {
			in.verdict.violate("insertion %d of client %d: %v", batch, in.number, err)
		}
	}
}

// insert inserts one batch. Some are given up by their caller at first, and repeated: nobody knows then what became of the first try.
func (in *inserter) insert(ctx context.Context, conn *client.Client, batch int) error {
	which := batch % 2
	table := conn.Table(crashTables()[which].Name).Waiting(client.Forever)
	made := groups(in.number, batch, 1+in.random.IntN(4), in.Longest, 0)
	id := fmt.Sprintf("inserter-%d-%d", in.number, batch)
	if in.random.IntN(5) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(in.random.IntN(8000))*time.Microsecond)
		_, err := table.InsertOnce(short, id, made...)
		cancel()
		if err != nil {
			in.answers.add("given up and repeated")
		}
	}
	ids, err := table.InsertOnce(ctx, id, made...)
	if err != nil {
		return err
	}
	at := 0
	for _, g := range made {
		for _, r := range g.Rollouts {
			k, err := parseKey(r.Text)
			if err != nil {
				return err
			}
			if err := in.fates[which].acknowledged(k, ids[at]); err != nil {
				return err
			}
			at++
		}
	}
	if at != len(ids) {
		return fmt.Errorf("%d ids were answered for %d rollouts", len(ids), at)
	}
	return nil
}

// sample draws from the table that keeps everything, so that uses are written too.
func (c *crasher) sample(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := client.Dial(ctx, c.server.address(), client.Options{Patience: -1})
		if err != nil {
			continue // the service is down
		}
		table := conn.Table("kept").Waiting(client.Forever)
		stream, err := table.Stream(ctx, wire.SampleRequest{Size: batchSize})
		for err == nil {
			wait(ctx, c.Pace)
			var b *rollout.Batch
			if b, err = stream.Next(ctx); err == nil {
				for _, d := range b.Draws {
					if _, wrong := check(d.Rollout, c.Longest); wrong != nil {
						c.verdict.violate("sample: %v", wrong)
					}
				}
			}
		}
		if ctx.Err() == nil && !errors.Is(err, client.ErrUnreachable) {
			c.verdict.violate("sample: %v", err)
		}
		stream.Close()
		conn.Close()
	}
}

// startTimes reads: median 31ms, longest 80ms.
func (c *crasher) startTimes() string {
	if len(c.starts) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(c.starts))
	return fmt.Sprintf("median %s, longest %s", sorted[len(sorted)/2].Round(time.Millisecond), sorted[len(sorted)-1].Round(time.Millisecond))
}
