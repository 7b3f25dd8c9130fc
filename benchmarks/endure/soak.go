package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/client"
)

// SoakSettings say how a service is soaked.
type SoakSettings struct {
	Program   string        `default:"bin/reprise" help:"The program whose verb serve is soaked."`
	For       time.Duration `name:"for" default:"30m" help:"How long the load lasts."`
	Dir       string        `help:"Folder for the journals, removed in the end; the system's for temporary files if it is not given."`
	Seed      uint64        `default:"1" help:"Of every choice."`
	Producers int           `default:"16" help:"Clients that insert."`
	Trainers  int           `default:"4" help:"Clients that sample and set versions."`
	Vandals   int           `default:"2" help:"Clients that send nonsense."`
	Pace      time.Duration `default:"40ms" help:"Longest pause of a client between two calls."`
	Longest   int           `default:"4096" help:"Tokens of the longest rollouts."`
	Every     time.Duration `default:"10s" help:"Print a line that often."`
	Keep      bool          `help:"Keep the folder."`
}

// soakMessage is the service's limit of a message while it is soaked: small, so that messages above it are cheap.
const soakMessage = 8 << 20

// settleTimeout is how long what the clients left behind may take to go.
const settleTimeout = 60 * time.Second

// soaker is a soak under way.
type soaker struct {
	SoakSettings
	out      io.Writer
	verdict  *Verdict
	server   *server
	proxy    *proxy
	direct   *client.Client // past the proxy
	places   []*place
	load     *load
	attacks  tally
	idle     reading
	readings []reading
}

// soak soaks a service and returns the verdict; an error means that there is none.
func soak(ctx context.Context, s SoakSettings, out io.Writer) (*Verdict, error) {
	dir, leave, err := workspace(s.Dir, "reprise-soak", s.Keep, out)
	if err != nil {
		return nil, err
	}
	defer leave()
	k := &soaker{SoakSettings: s, out: out, verdict: &Verdict{}}
	err = k.run(ctx, dir)
	if errors.Is(err, errJudged) {
		err = nil
	}
	return k.verdict, err
}

// errJudged ends a soak whose verdict is clear: the service is gone.
var errJudged = errors.New("the service ended")

func (k *soaker) run(ctx context.Context, dir string) error {
	if err := k.begin(ctx, dir); err != nil {
		return err
	}
	defer k.server.close()
	defer k.direct.Close()
	if err := k.work(ctx); err != nil {
		return err
	}
	return k.end(ctx)
}

// begin starts the service and makes its tables, and measures it before anybody works.
func (k *soaker) begin(ctx context.Context, dir string) (err error) {
	if k.server, err = newServer(k.Program, dir, "--max-message", fmt.Sprint(soakMessage)); err != nil {
		return err
	}
	if _, err := k.server.start(ctx); err != nil {
		k.server.close()
		return err
	}
	if k.direct, err = k.server.dial(ctx); err != nil {
		k.server.close()
		return err
	}
	if k.proxy, err = newProxy(k.server.listen, k.Seed); err != nil {
		return err
	}
	k.load = &load{address: k.proxy.address(), seed: k.Seed, pace: k.Pace, longest: k.Longest, verdict: k.verdict}
	for _, t := range soakTables() {
		k.places = append(k.places, &place{Table: t, load: k.load})
	}
	if err := create(ctx, k.direct, append(soakTables(), wreckTable())...); err != nil {
		return err
	}
	if k.idle, err = k.calm(ctx); err != nil {
		return err
	}
	fmt.Fprintf(k.out, "soaking %s for %s: %d tables, %d producers, %d trainers, %d vandals; idle: %s, %.0f goroutines\n",
		k.server.address(), k.For, len(k.places)+1, k.Producers, k.Trainers, k.Vandals, mega(k.idle.anonymous), k.idle.goroutines)
	return nil
}

// work has everybody work for the time that was asked for, and watches.
func (k *soaker) work(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.For)
	defer cancel()
	var everybody sync.WaitGroup
	everybody.Go(func() { k.proxy.serve(ctx) })
	for i := range k.Producers {
		p := newProducer(k.places[i%len(k.places)], i)
		everybody.Go(func() { p.run(ctx) })
	}
	for i := range k.Trainers {
		t := newTrainer(k.places[i%len(k.places)], i)
		everybody.Go(func() { t.run(ctx) })
	}
	for i := range k.Vandals {
		v := newVandal(k.server, soakMessage, k.verdict, &k.attacks, k.Seed, i)
		everybody.Go(func() { v.run(ctx) })
	}
	err := k.watch(ctx)
	cancel()
	everybody.Wait()
	return err
}

// end judges what is left, stops the service and judges what it left on disk.
func (k *soaker) end(ctx context.Context) error {
	k.judgeMemory()
	calm, err := k.calm(ctx)
	if err != nil {
		return err
	}
	k.judgeGoroutines(calm)
	before, err := k.judgeBooks(ctx)
	if err != nil {
		return err
	}
	if err := k.judgeRest(ctx); err != nil {
		return err
	}
	k.facts()
	if err := k.server.stop(); err != nil {
		k.verdict.violate("stop: %v", err)
	} else {
		k.verdict.hold(true, "the service stopped when it was told to, with exit code 0")
	}
	return k.judgeJournals(ctx, before)
}

// journals are the files of the service's journals.
func (s *server) journals() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.data, "tables", "*.journal"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no journal is there", s.data)
	}
	return files, err
}
