package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// CrashSettings are the settings of a crash test.
type CrashSettings struct {
	Program   string        `default:"bin/reprise" help:"Program whose verb serve is killed."`
	Times     int           `default:"200" help:"Number of kills."`
	Dir       string        `help:"Folder for the journals, removed in the end; the system's folder for temporary files by default."`
	Sync      string        `default:"always" enum:"always,interval,off" help:"The service's --sync; each survives kill -9."`
	Seed      uint64        `default:"1" help:"Seed of every choice."`
	Inserting int           `default:"8" help:"Clients that insert."`
	Callers   int           `default:"4" help:"Clients that sample a queue; one call in four dies, and a successor repeats it."`
	Life      time.Duration `default:"1s" help:"Longest time between a start and the next kill."`
	Pace      time.Duration `default:"10ms" help:"Longest pause of a client between two calls."`
	Longest   int           `default:"512" help:"Tokens of the longest rollouts."`
	Keep      bool          `help:"Keep the folder."`
}

// The tables of a crash test: one that is sampled, a queue that is consumed by streams, and one that is sampled call by
// call. None evicts anything.
const (
	sampledTable = iota
	queueTable
	calledTable
	crashTableCount
)

func crashTables() []wire.Table {
	return []wire.Table{
		sampledTable: crashTable("sampled", replay.Uniform),
		queueTable:   crashTable("queue", replay.FIFO),
		calledTable:  crashTable("called", replay.FIFO),
	}
}

func crashTable(name string, s replay.Sampler) wire.Table {
	return wire.Table{Name: name, Options: replay.Options{Capacity: 1 << 22, Sampler: s, GroupSize: groupSize,
		Vocab: vocab, LeaseSeconds: 5}}
}

// crasher is a crash test in progress.
type crasher struct {
	CrashSettings
	out      io.Writer
	verdict  *Verdict
	server   *server
	outcomes [crashTableCount]outcomes // of the rollouts, by table
	starts   []time.Duration
	expected counter // errors that clients must expect
}

// crash kills a service under load and returns the verdict. An error means that there is no verdict.
func crash(ctx context.Context, settings CrashSettings, out io.Writer) (*Verdict, error) {
	dir, remove, err := workspace(settings.Dir, "reprise-crash", settings.Keep, out)
	if err != nil {
		return nil, err
	}
	defer remove()
	c := &crasher{CrashSettings: settings, out: out, verdict: &Verdict{}}
	if c.server, err = newServer(c.Program, dir, "--sync", c.Sync); err != nil {
		return nil, err
	}
	defer c.server.close()
	if _, err := c.server.start(ctx); err != nil {
		return nil, err
	}
	direct, err := c.server.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer direct.Close()
	for _, t := range crashTables() {
		if _, err := direct.Create(ctx, t); err != nil {
			return nil, err
		}
	}
	if err := c.work(ctx); err != nil {
		return nil, err
	}
	return c.verdict, c.check(ctx, direct)
}

// work kills and restarts the service while clients work. Every client that inserts or calls ends with an answer to its
// last insertion or call.
func (c *crasher) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := make(chan struct{})
	var inserting, training sync.WaitGroup
	for i := range c.Inserting {
		in := &inserter{crasher: c, number: i, random: rollout.Stream(c.Seed, "inserter", uint64(i))}
		inserting.Go(func() { in.run(ctx, enough) })
	}
	training.Go(func() { c.consume(ctx) })
	training.Go(func() { c.sample(ctx) })
	for i := range c.Callers {
		inserting.Go(func() { c.call(ctx, i, enough) })
	}
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

// killOften kills the service at random moments, mostly after it has served for a while, sometimes while it opens its
// journals.
func (c *crasher) killOften(ctx context.Context) error {
	random := rollout.Stream(c.Seed, "killer", 0)
	began := time.Now()
	for i := range c.Times {
		wait(ctx, time.Duration(random.Int64N(int64(c.Life))))
		if !c.server.Alive() {
			return fmt.Errorf("the service ended by itself (%v): %s", c.server.Err(), c.server.Output())
		}
		c.server.Kill()
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
			acknowledged, consumed := 0, 0
			for i := range c.outcomes {
				acknowledged += c.outcomes[i].count(func(o *outcome) bool { return o.acknowledged })
				consumed += c.outcomes[i].count(func(o *outcome) bool { return o.consumed })
			}
			fmt.Fprintf(c.out, "%6s  killed %d times; acknowledged %d, consumed %d of them; last start took %s\n",
				time.Since(began).Round(time.Second), i+1, acknowledged, consumed, took.Round(time.Millisecond))
		}
	}
	return nil
}

// killEarly starts the service and kills it before it is ready, or just after.
func (c *crasher) killEarly(ctx context.Context, random *rand.Rand) error {
	early, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(100))*time.Millisecond)
	defer cancel()
	if _, err := c.server.start(early); err != nil && early.Err() == nil {
		return err
	}
	if c.server.Alive() {
		c.server.Kill()
	}
	return ctx.Err()
}

// inserter inserts into the tables in turn. It repeats a batch under its id until it is answered.
type inserter struct {
	*crasher
	number int
	random *rand.Rand
}

func (in *inserter) run(ctx context.Context, enough <-chan struct{}) {
	var conn *client.Client
	for conn == nil && ctx.Err() == nil { // the service may be down
		conn, _ = client.Dial(ctx, in.server.address(), client.Options{RetryFor: -1})
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
			in.verdict.violation("insertion %d of client %d: %v", batch, in.number, err)
		}
	}
}

// insert inserts one batch. It gives up some batches at first and repeats them: then nobody knows what the first
// attempt did.
func (in *inserter) insert(ctx context.Context, conn *client.Client, batch int) error {
	which := batch % crashTableCount
	table := conn.Table(crashTables()[which].Name).Waiting(client.Forever)
	made := makeGroups(in.number, batch, 1+in.random.IntN(4), in.Longest, 0)
	id := fmt.Sprintf("inserter-%d-%d", in.number, batch)
	if in.random.IntN(5) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(in.random.IntN(8000))*time.Microsecond)
		_, err := table.InsertOnce(short, id, made...)
		cancel()
		if err != nil {
			in.expected.add("given up and repeated")
		}
	}
	ids, err := table.InsertOnce(ctx, id, made...)
	if err != nil {
		return err
	}
	if want := len(made) * groupSize; len(ids) != want {
		return fmt.Errorf("%d ids were answered for %d rollouts", len(ids), want)
	}
	for row, answered := range ids {
		if err := in.outcomes[which].acknowledge(key{in.number, batch, row}, answered); err != nil {
			return err
		}
	}
	return nil
}

// sample draws from the sampled table, so that uses are written too.
func (c *crasher) sample(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := client.Dial(ctx, c.server.address(), client.Options{RetryFor: -1})
		if err != nil {
			continue // the service is down
		}
		table := conn.Table(crashTables()[sampledTable].Name).Waiting(client.Forever)
		stream, err := table.Stream(ctx, wire.SampleRequest{Size: batchSize})
		for err == nil {
			wait(ctx, c.Pace)
			var b *rollout.Batch
			if b, err = stream.Next(ctx); err == nil {
				for _, d := range b.Draws {
					if _, wrong := checkRollout(d.Rollout, c.Longest); wrong != nil {
						c.verdict.violation("sample: %v", wrong)
					}
				}
			}
		}
		if ctx.Err() == nil && !errors.Is(err, client.ErrUnreachable) {
			c.verdict.violation("sample: %v", err)
		}
		stream.Close()
		conn.Close()
	}
}

// consume takes batches from the queue with a stock client, which hides no lost connection: once a batch has come, the
// one before it on the stream is consumed for certain.
func (c *crasher) consume(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.consumeStream(ctx)
		if ctx.Err() != nil || err == nil {
			continue
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.Canceled {
			c.verdict.violation("consume: %v", err)
		}
		c.expected.add("stream lost")
		wait(ctx, c.Pace)
	}
}

// consumeStream takes batches until the connection is lost.
func (c *crasher) consumeStream(ctx context.Context) error {
	conn, err := stockClient(c.server.listen)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.DoExchange(ctx)
	if err != nil {
		return err
	}
	if err := requestBatch(stream, true); err != nil {
		return err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer reader.Release()
	var held []key
	for reader.Next() {
		draws, err := wire.Draws(reader.RecordBatch(), nil)
		if err != nil {
			return err
		}
		c.outcomes[queueTable].consume(held)
		held = held[:0]
		for _, d := range draws {
			k, err := checkRollout(d.Rollout, c.Longest)
			if err == nil {
				err = c.outcomes[queueTable].deliver(k, d.ID, d.Redelivered)
			}
			if err != nil {
				c.verdict.violation("consume: id %d: %v", d.ID, err)
			}
			held = append(held, k)
		}
		wait(ctx, c.Pace)
		if err := requestBatch(stream, false); err != nil {
			return err
		}
	}
	return reader.Err()
}

// requestBatch asks for a batch of the queue, which acknowledges the batch before. The first request of a stream names
// the table.
func requestBatch(stream flight.FlightService_DoExchangeClient, first bool) error {
	request, err := json.Marshal(wire.SampleRequest{Size: 8})
	if err != nil {
		return err
	}
	m := &flight.FlightData{AppMetadata: request}
	if first {
		m.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorPATH,
			Path: []string{crashTables()[queueTable].Name}}
	}
	if err := stream.Send(m); err != nil {
		if _, lost := stream.Recv(); lost != nil {
			return lost
		}
		return errors.New("the service closed the stream")
	}
	return nil
}

// call samples a queue call by call, each under an id of its own. Some calls die at a random moment, with their
// connection; a successor repeats them until it has an answer.
func (c *crasher) call(ctx context.Context, number int, enough <-chan struct{}) {
	random := rollout.Stream(c.Seed, "caller", uint64(number))
	o := &c.outcomes[calledTable]
	for n := 0; ; n++ {
		select {
		case <-enough:
			return
		case <-ctx.Done():
			return
		default:
		}
		wait(ctx, time.Duration(random.Int64N(int64(c.Pace))))
		req := rollout.Request{Size: 8, ID: fmt.Sprintf("caller-%d-%d", number, n)}
		b, err := c.callUntilAnswered(ctx, req, random)
		var held []key
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case errors.Is(err, rollout.ErrStarved):
			continue
		case errors.Is(err, rollout.ErrNoLease):
			c.expected.add("calls whose batch was consumed, as an error named")
			var count int
			var first, last rollout.ID
			_, text, _ := strings.Cut(err.Error(), "before, and the ")
			if _, bad := fmt.Sscanf(text, "%d rollouts (of ids %d to %d)", &count, &first, &last); bad != nil {
				c.verdict.violation("call: %v names no rollouts: %v", err, bad)
			}
			o.name(count, first, last)
			continue
		case err != nil:
			c.verdict.violation("call: %v", err)
			continue
		case b.Repeated:
			c.expected.add("batches repeated")
		}
		for _, d := range b.Draws {
			k, err := checkRollout(d.Rollout, c.Longest)
			if err == nil {
				err = o.deliver(k, d.ID, d.Redelivered || b.Repeated)
			}
			if err != nil {
				c.verdict.violation("call: id %d: %v", d.ID, err)
			}
			if d.Redelivered {
				c.expected.add("rollouts redelivered")
			}
			held = append(held, k)
		}
		o.consume(held) // the acknowledgement was answered
	}
}

// callUntilAnswered makes a call, again and again with a client of its own while callers die.
func (c *crasher) callUntilAnswered(
	ctx context.Context, req rollout.Request, random *rand.Rand,
) (*rollout.Batch, error) {
	for {
		conn, err := client.Dial(ctx, c.server.address(), client.Options{RetryFor: -1})
		if err != nil && ctx.Err() == nil {
			continue // the service is down
		}
		if err != nil {
			return nil, err
		}
		life, cancel := ctx, context.CancelFunc(func() {})
		if random.IntN(4) == 0 {
			life, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(20_000))*time.Microsecond) // its death
		}
		b, err := conn.Table(crashTables()[calledTable].Name).Waiting(serverWait).Sample(life, req)
		died := err != nil && life.Err() != nil && ctx.Err() == nil
		cancel()
		conn.Close()
		if !died {
			return b, err
		}
		c.expected.add("callers died")
	}
}

// check looks for every acknowledged rollout.
func (c *crasher) check(ctx context.Context, direct *client.Client) error {
	for i, t := range crashTables() {
		if err := c.checkTable(ctx, direct.Table(t.Name), &c.outcomes[i]); err != nil {
			return err
		}
	}
	starts := slices.Sorted(slices.Values(c.starts))
	if n := len(starts); n > 0 {
		c.verdict.fact("killed %d times; start until ready: median %s, longest %s; %s",
			c.Times, starts[n/2].Round(time.Millisecond), starts[n-1].Round(time.Millisecond), &c.expected)
	}
	if err := c.server.Stop(); err != nil {
		c.verdict.violation("stop: %v", err)
	}
	return verifyJournals(ctx, c.Program, c.server, c.verdict)
}

func (c *crasher) checkTable(ctx context.Context, table *client.Table, o *outcomes) error {
	err := table.Export(ctx, client.ExportOptions{Rows: 256}, func(rec arrow.RecordBatch) error {
		draws, err := wire.Draws(rec, nil)
		if err != nil {
			return err
		}
		for _, d := range draws {
			k, err := checkRollout(d.Rollout, c.Longest)
			if err == nil {
				err = o.find(k, d.ID)
			}
			if err != nil {
				c.verdict.violation("table %s: id %d: %v", table.Name(), d.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	missing, named := o.missing()
	c.verdict.check(len(missing) == 0, "table %s: %d acknowledged rollouts are lost %v", table.Name(), len(missing),
		missing[:min(len(missing), 8)])
	if named > 0 {
		c.verdict.fact("table %s: %d rollouts were consumed by callers that died before they returned, and an error "+
			"named them to the successor", table.Name(), named)
	}
	unasked := o.count(func(r *outcome) bool { return !r.acknowledged })
	c.verdict.check(unasked == 0, "table %s: %d rollouts are there whose insertion was never acknowledged",
		table.Name(), unasked)
	stats, err := table.Statistics(ctx)
	if err != nil {
		return err
	}
	if err := checkBalance(stats); err != nil {
		c.verdict.violation("table %s: the counts do not balance: %v", table.Name(), err)
	}
	acknowledged := o.count(func(r *outcome) bool { return r.acknowledged })
	present := o.count(func(r *outcome) bool { return r.present })
	c.verdict.check(stats.Inserted == uint64(acknowledged), "table %s: inserted %d, acknowledged %d", table.Name(),
		stats.Inserted, acknowledged)
	c.verdict.check(stats.Present == present, "table %s: present %d, found %d", table.Name(), stats.Present, present)
	c.verdict.check(acknowledged > 0, "table %s: %d rollouts were acknowledged, %d delivered by the queue, %d "+
		"consumed for certain", table.Name(), acknowledged,
		o.count(func(r *outcome) bool { return r.deliveries > 0 }),
		o.count(func(r *outcome) bool { return r.consumed }))
	return nil
}
