package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/wire"
)

// SoakSettings are the settings of a soak.
type SoakSettings struct {
	Program   string        `default:"bin/reprise" help:"Program whose verb serve is soaked."`
	For       time.Duration `name:"for" default:"30m" help:"How long the load lasts."`
	Dir       string        `help:"Folder for the journals, removed in the end; the system's folder for temporary files by default."`
	Seed      uint64        `default:"1" help:"Seed of every choice."`
	Producers int           `default:"16" help:"Clients that insert."`
	Trainers  int           `default:"4" help:"Clients that sample and set versions."`
	Hostile   int           `default:"2" help:"Clients that send what no client should."`
	Pace      time.Duration `default:"40ms" help:"Longest pause of a client between two calls."`
	Longest   int           `default:"4096" help:"Tokens of the longest rollouts."`
	Every     time.Duration `default:"10s" help:"Time between two lines of output."`
	Keep      bool          `help:"Keep the folder."`
}

const (
	// the service's limit of a message, bytes: small, so that messages above it are cheap
	soakMessage   = 8 << 20
	settleTimeout = 60 * time.Second // for leases and goroutines to end after the clients have left
	stallTimeout  = 60 * time.Second // how long a table may make no progress under load
)

// soaker is a soak in progress.
type soaker struct {
	SoakSettings
	out      io.Writer
	verdict  *Verdict
	server   *server
	proxy    *proxy
	direct   *client.Client // past the proxy
	tables   []*loadTable
	load     *load
	attacks  counter
	idle     reading // before anybody works
	readings []reading
}

// errServerEnded ends a soak whose verdict is clear.
var errServerEnded = errors.New("the service ended")

// soak soaks a service and returns the verdict. An error means that there is no verdict.
func soak(ctx context.Context, settings SoakSettings, out io.Writer) (*Verdict, error) {
	dir, remove, err := workspace(settings.Dir, "reprise-soak", settings.Keep, out)
	if err != nil {
		return nil, err
	}
	defer remove()
	s := &soaker{SoakSettings: settings, out: out, verdict: &Verdict{}}
	if s.server, err = newServer(s.Program, dir, "--max-message", fmt.Sprint(soakMessage)); err != nil {
		return nil, err
	}
	defer s.server.close()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.direct.Close()
	if err := s.work(ctx); errors.Is(err, errServerEnded) {
		return s.verdict, nil
	} else if err != nil {
		return nil, err
	}
	return s.verdict, s.check(ctx)
}

// begin starts the service, creates its tables, and measures it idle.
func (s *soaker) begin(ctx context.Context) (err error) {
	if _, err := s.server.start(ctx); err != nil {
		return err
	}
	if s.direct, err = s.server.dial(ctx); err != nil {
		return err
	}
	if s.proxy, err = newProxy(s.server.listen, s.Seed); err != nil {
		return err
	}
	s.load = &load{address: s.proxy.address(), seed: s.Seed, pace: s.Pace, longest: s.Longest, verdict: s.verdict}
	for _, t := range soakTables() {
		s.tables = append(s.tables, &loadTable{Table: t, load: s.load})
	}
	hostile := wire.Table{Name: hostileTable, Options: replay.Options{Capacity: 512, MaxUses: 64, Vocab: vocab,
		MaxTokens: 1 << 16, LeaseSeconds: 1}}
	for _, t := range append(soakTables(), hostile) {
		if _, err := s.direct.Create(ctx, t); err != nil {
			return err
		}
	}
	if s.idle, err = s.readQuiet(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "soaking %s for %s: %d tables, %d producers, %d trainers, %d hostile clients; idle: %s, %.0f "+
		"goroutines\n",
		s.server.address(), s.For, len(s.tables)+1, s.Producers, s.Trainers, s.Hostile, mega(s.idle.anonymous),
		s.idle.goroutines)
	return nil
}

// work runs all clients for the configured time, and watches the service.
func (s *soaker) work(ctx context.Context) error {
	watched, done := context.WithTimeout(ctx, s.For)
	defer done()
	ctx, cancel := context.WithCancel(ctx) // no deadline here: calls would send it to the service
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.proxy.serve(ctx) })
	for i := range s.Producers {
		p := newProducer(s.tables[i%len(s.tables)], i)
		all.Go(func() { p.run(ctx) })
	}
	for i := range s.Trainers {
		t := newTrainer(s.tables[i%len(s.tables)], i)
		all.Go(func() { t.run(ctx) })
	}
	for i := range s.Hostile {
		h := newHostileClient(s.server, soakMessage, s.verdict, &s.attacks, s.Seed, i)
		all.Go(func() { h.run(ctx) })
	}
	err := s.watch(watched)
	cancel()
	all.Wait()
	return err
}

// progress is how far a table had come, and when.
type progress struct {
	inserted, drawn uint64
	moved           time.Time // when both last grew
}

// watch measures the service until the context ends, checks the tables' counts, and prints lines.
func (s *soaker) watch(ctx context.Context) error {
	began := time.Now()
	tables := make([]progress, len(s.tables))
	for i := range tables {
		tables[i].moved = began
	}
	tick := time.NewTicker(max(min(s.For/120, s.Every), 100*time.Millisecond))
	defer tick.Stop()
	printed := began
	for {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case <-s.server.Ended():
			s.verdict.violation("the service ended by itself (%v): %s", s.server.Err(), s.server.Output())
			return errServerEnded
		case <-tick.C:
		}
		r, err := s.server.read(ctx)
		if err == nil {
			r.after = time.Since(began)
			s.readings = append(s.readings, r)
			err = s.checkTables(ctx, tables)
		}
		if err != nil && ctx.Err() == nil && s.server.Alive() {
			s.verdict.violation("after %s: %v", time.Since(began).Round(time.Second), err)
		}
		if time.Since(printed) >= s.Every {
			printed = time.Now()
			s.printLine(r)
		}
	}
}

// checkTables checks the counts of every table, which balance at all times, and that every table makes progress.
func (s *soaker) checkTables(ctx context.Context, tables []progress) error {
	for i, t := range s.tables {
		stats, err := s.direct.Table(t.Name).Statistics(ctx)
		if err != nil {
			return fmt.Errorf("statistics: %w", err)
		}
		if err := checkBalance(stats); err != nil {
			s.verdict.violation("table %s: the counts do not balance: %v", t.Name, err)
		}
		if stats.Present > t.Capacity {
			s.verdict.violation("table %s holds %d rollouts of at most %d", t.Name, stats.Present, t.Capacity)
		}
		tables[i].update(t, stats, s.verdict)
	}
	return nil
}

// update notes how far a table has come. No progress for too long is a violation.
func (p *progress) update(t *loadTable, stats *wire.TableStatistics, v *Verdict) {
	now := time.Now()
	if stats.Inserted > p.inserted && stats.Drawn > p.drawn {
		p.inserted, p.drawn, p.moved = stats.Inserted, stats.Drawn, now
	}
	if now.Sub(p.moved) > stallTimeout {
		v.violation("table %s made no progress for %s: inserted %d (before: %d), drawn %d (before: %d), present %d",
			t.Name, stallTimeout, stats.Inserted, p.inserted, stats.Drawn, p.drawn, stats.Present)
		p.moved = now
	}
}

// printLine prints the state of the soak.
func (s *soaker) printLine(r reading) {
	var rows, received uint64
	for _, t := range s.tables {
		_, in, _, out := t.totals()
		rows, received = rows+in, received+out
	}
	fmt.Fprintf(s.out, "%6s  inserted %d, received %d; memory %s (live heap %s), %.0f goroutines, files %s; %d "+
		"connections cut; insert %s; sample %s\n",
		r.after.Round(time.Second), rows, received, mega(r.anonymous), mega(r.live), r.goroutines, mega(r.files),
		s.proxy.cut.Load(), &s.load.inserts, &s.load.samples)
}

// collectors is by how many goroutines two readings of an idle service may differ: the collectors behind /metrics run
// at the same time, and one of them counts the goroutines. A leak shows as more, one for each of many connections.
const collectors = 3

// readQuiet waits until the service has no more goroutines than when idle, and returns the last reading: of the fewest
// goroutines within a second, again and again.
func (s *soaker) readQuiet(ctx context.Context) (reading, error) {
	deadline := time.Now().Add(settleTimeout)
	for {
		fewest, err := s.server.read(ctx)
		for range 10 {
			wait(ctx, 100*time.Millisecond)
			var r reading
			if r, err = s.server.read(ctx); err == nil && r.goroutines < fewest.goroutines {
				fewest = r
			}
		}
		if err != nil || s.idle.goroutines == 0 || fewest.goroutines <= s.idle.goroutines+collectors ||
			time.Now().After(deadline) {
			return fewest, err
		}
	}
}
