package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/benchmarks/process"
	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// AttackSettings are the settings of a service under attack.
type AttackSettings struct {
	Program   string        `default:"bin/reprise" help:"Program whose verb serve is attacked."`
	Attackers string        `help:"Program whose verb hostile attacks; this one by default."`
	Limit     int64         `default:"4000000000" help:"Limit of the process's data in bytes, as by ulimit -d."`
	Each      time.Duration `default:"10s" help:"How long each attack takes."`
	Mixed     time.Duration `default:"1m" help:"How long all attacks together take, in the end."`
	Dir       string        `help:"Folder for the journals, removed in the end; by default among temporary files."`
	Producers int           `default:"4" help:"Honest clients that insert."`
	Consumers int           `default:"2" help:"Honest clients that sample."`
	Pace      time.Duration `default:"100ms" help:"Time between two insertions of an honest client."`
	Least     float64       `default:"0.8" help:"Least rate of the honest clients, as a share of what it was before."`
	Keep      bool          `help:"Keep the folder."`
}

// The tables: a queue for honest clients, tables that hostile clients may read, and one that fills up.
const (
	honestTable  = "honest"
	readTable    = "a-read"
	emptyTable   = "a-empty"
	honestBatch  = 8 // groups
	honestTokens = 512
)

// attacked is a service under attack.
type attacked struct {
	AttackSettings
	out      io.Writer
	log      *os.File // of the attackers
	verdict  *Verdict
	server   *server
	honest   string // token
	hostile  string // token
	outcomes outcomes
	expected counter
	consumed atomic.Uint64 // rollouts
	inserts  latency
	peak     atomic.Int64 // anonymous resident memory, bytes
}

// underAttack runs every attack of [hostilities] beside honest clients, one after another and then all together.
func underAttack(ctx context.Context, settings AttackSettings, out io.Writer) (_ *Verdict, err error) {
	dir, remove, err := workspace(settings.Dir, "attack", settings.Keep, out)
	if err != nil {
		return nil, err
	}
	defer remove()
	a := &attacked{AttackSettings: settings, out: out, verdict: new(Verdict), honest: rand.Text(), hostile: rand.Text()}
	tokens := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "tokens:\n"+
		"  - {name: honest, token: %s, read: ['*'], write: ['*']}\n"+
		"  - {name: hostile, token: %s, read: ['a-*'], write: ['a-*']}\n", a.honest, a.hostile), 0o600); err != nil {
		return nil, err
	}
	if a.server, err = newServer(settings.Program, dir, "--tokens", tokens); err != nil {
		return nil, err
	}
	if a.log, err = os.Create(filepath.Join(dir, "attackers.log")); err != nil {
		return nil, err
	}
	defer a.log.Close()
	if a.Attackers == "" {
		if a.Attackers, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	a.server.limit = settings.Limit
	defer a.server.close()
	if _, err := a.server.start(ctx); err != nil {
		return nil, err
	}
	if err := a.createTables(ctx); err != nil {
		return nil, err
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	var clients sync.WaitGroup
	clients.Go(func() { a.watchMemory(work) })
	inserting, enough := context.WithCancel(work)
	defer enough()
	var producers sync.WaitGroup
	for i := range settings.Producers {
		producers.Go(func() { a.produce(inserting, i) })
	}
	for range settings.Consumers {
		clients.Go(func() { a.consume(work) })
	}
	wait(ctx, settings.Each/2) // connections, journals, caches
	before := a.measure(ctx, settings.Each)
	a.verdict.fact("honest clients alone: %.0f rollouts/s", before)
	if err := a.attackAll(ctx, before); err != nil {
		return nil, err
	}
	enough()
	producers.Wait()
	a.check(ctx)
	stop()
	clients.Wait()
	if a.server.Alive() {
		if err := a.server.Stop(); err != nil {
			a.verdict.violation("stopping: %v", err)
		}
	}
	return a.verdict, ctx.Err()
}

// attackAll carries out the attacks, in a process of less priority, and compares the rate of the honest clients with
// the one before.
func (a *attacked) attackAll(ctx context.Context, before float64) error {
	run := func(name string, took time.Duration, kinds ...string) error {
		attackers, err := process.Start("the attackers", a.log, "nice", append([]string{"-n", "19", a.Attackers,
			"hostile", "--listen", a.server.listen, "--token", a.hostile}, kinds...)...)
		if err != nil {
			return err
		}
		if err := attackers.AwaitReady(ctx, func(context.Context) error {
			if !strings.HasPrefix(attackers.Output(), attacking) {
				return errors.New("it does not attack yet")
			}
			return nil
		}); err != nil {
			attackers.Kill()
			return err
		}
		rate := a.measure(ctx, took)
		if err := attackers.Stop(); err != nil || ctx.Err() != nil {
			return err
		}
		got := strings.TrimSpace(strings.TrimPrefix(attackers.Output(), attacking))
		a.verdict.fact("%s: the attackers got %s", name, got)
		if !a.server.Alive() {
			a.verdict.violation("%s: the service ended: %v", name, a.server.Err())
			return nil
		}
		a.verdict.check(rate >= a.Least*before, "%s: honest clients kept %.0f%% of their rate", name, 100*rate/before)
		fmt.Fprintf(a.out, "%-40s %4.0f%% of the honest rate, memory at most %s so far\n", name, 100*rate/before,
			mega(float64(a.peak.Load())))
		wait(ctx, min(took/5, 10*time.Second))
		return nil
	}
	var all []string
	for i, h := range hostilities() {
		all = append(all, strconv.Itoa(i))
		if !a.server.Alive() || ctx.Err() != nil {
			break
		}
		if err := run(h.name, a.Each, all[i]); err != nil {
			return err
		}
	}
	if a.server.Alive() && ctx.Err() == nil && a.Mixed > 0 {
		if err := run("all together", a.Mixed, all...); err != nil {
			return err
		}
	}
	a.verdict.check(a.peak.Load() < a.Limit*3/4, "memory: at most %s, of memory_bytes, three quarters of the limit: %s",
		mega(float64(a.peak.Load())), mega(float64(a.Limit)*3/4))
	a.verdict.fact("insertions took %s", &a.inserts)
	a.verdict.fact("honest clients were put off by: %s", &a.expected)
	return nil
}

// measure returns the rollouts that honest clients consume a second.
func (a *attacked) measure(ctx context.Context, during time.Duration) float64 {
	before, began := a.consumed.Load(), time.Now()
	select {
	case <-ctx.Done():
	case <-a.server.Ended():
	case <-time.After(during):
	}
	return float64(a.consumed.Load()-before) / time.Since(began).Seconds()
}

func (a *attacked) watchMemory(ctx context.Context) {
	for ctx.Err() == nil && a.server.Alive() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.server.PID()))
		if err == nil {
			bytes, err := parseStatus(status, "RssAnon:")
			if err == nil && int64(bytes) > a.peak.Load() {
				a.peak.Store(int64(bytes))
			}
		}
		wait(ctx, 20*time.Millisecond)
	}
}

// dial connects a client with a token.
func (a *attacked) dial(ctx context.Context, token string) (*client.Client, error) {
	return client.Dial(ctx, a.server.address(), client.Options{Token: token})
}

func (a *attacked) createTables(ctx context.Context) error {
	c, err := a.dial(ctx, a.honest)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, w := range []wire.Table{
		{Name: honestTable, Options: replay.Options{Capacity: 1 << 14, Sampler: replay.FIFO, GroupSize: groupSize,
			Vocab: vocab, LeaseSeconds: 60}},
		{Name: readTable, Options: replay.Options{Capacity: 512, Sampler: replay.Uniform, LeaseSeconds: 60}},
		{Name: emptyTable, Options: replay.Options{Capacity: 512, Sampler: replay.FIFO}},
	} {
		if _, err := c.Create(ctx, w); err != nil {
			return err
		}
	}
	table := c.Table(readTable)
	for batch := range 16 {
		if _, err := table.Insert(ctx, makeGroups(hostileProducer, batch, 4, 16<<10, 0)...); err != nil {
			return err
		}
	}
	return nil
}

// produce inserts at a pace, and repeats each batch until it is answered.
func (a *attacked) produce(ctx context.Context, number int) {
	c, err := a.dial(ctx, a.honest)
	if err != nil {
		if ctx.Err() == nil {
			a.verdict.violation("an honest client: %v", err)
		}
		return
	}
	defer c.Close()
	table := c.Table(honestTable).Waiting(client.Forever)
	next := time.Now()
	for batch := 0; ctx.Err() == nil && a.server.Alive(); batch++ {
		began := time.Now()
		// not under the context: every batch gets its answer, so that the counts can be compared
		ids, err := table.InsertOnce(context.WithoutCancel(ctx), fmt.Sprintf("honest-%d-%d", number, batch),
			makeGroups(number, batch, honestBatch, honestTokens, 0)...)
		if err != nil {
			a.expected.add("an honest insertion: " + string(wire.CodeOf(err)))
			batch-- // once more
			wait(ctx, a.Pace)
			continue
		}
		a.inserts.add(time.Since(began))
		for row, id := range ids {
			if err := a.outcomes.acknowledge(key{number, batch, row}, id); err != nil {
				a.verdict.violation("insert: %v", err)
			}
		}
		next = next.Add(a.Pace)
		wait(ctx, time.Until(next))
	}
}

// consume takes batches from the queue.
func (a *attacked) consume(ctx context.Context) {
	for ctx.Err() == nil && a.server.Alive() {
		if err := a.consumeStream(ctx); err != nil && ctx.Err() == nil {
			a.expected.add("an honest stream: " + string(wire.CodeOf(err)))
			wait(ctx, 100*time.Millisecond)
		}
	}
}

func (a *attacked) consumeStream(ctx context.Context) error {
	c, err := a.dial(ctx, a.honest)
	if err != nil {
		return err
	}
	defer c.Close()
	stream, err := c.Table(honestTable).Waiting(time.Second).Stream(ctx, wire.SampleRequest{Size: 4 * groupSize})
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		b, err := stream.Next(ctx)
		if errors.Is(err, rollout.ErrStarved) {
			continue
		}
		if err != nil {
			return err
		}
		keys := make([]key, len(b.Draws))
		for i, d := range b.Draws {
			if keys[i], err = checkRollout(d.Rollout, honestTokens); err == nil {
				err = a.outcomes.deliver(keys[i], d.ID, d.Redelivered)
			}
			if err != nil {
				a.verdict.violation("sample: %v", err)
			}
		}
		if err := stream.Acknowledge(ctx); err != nil {
			return err
		}
		a.outcomes.consume(keys)
		a.consumed.Add(uint64(len(keys)))
	}
}

// check waits until the queue is empty and compares the counts.
func (a *attacked) check(ctx context.Context) {
	if !a.server.Alive() || ctx.Err() != nil {
		return
	}
	c, err := a.dial(ctx, a.honest)
	if err != nil {
		a.verdict.violation("the last look: %v", err)
		return
	}
	defer c.Close()
	table := c.Table(honestTable)
	var s *wire.TableStatistics
	for until := time.Now().Add(time.Minute); time.Now().Before(until); wait(ctx, 50*time.Millisecond) {
		if s, err = table.Statistics(ctx); err != nil || s.Present == 0 && s.OnLease == 0 {
			break
		}
	}
	if err != nil {
		a.verdict.violation("the last look: %v", err)
		return
	}
	err = checkBalance(s)
	a.verdict.check(err == nil && s.Present == 0,
		"the counts add up: %d inserted, %d consumed, %d returned, %d left (%v)",
		s.Inserted, s.Acknowledged, s.Returned, s.Present, err)
	missing, _ := a.outcomes.missing()
	answered := a.outcomes.count(func(o *outcome) bool { return o.acknowledged })
	a.verdict.check(len(missing) == 0 && answered > 0, "of %d acknowledged rollouts %d were never delivered", answered,
		len(missing))
}
