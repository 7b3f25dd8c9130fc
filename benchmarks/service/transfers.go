package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Names of the tables of a server.
const (
	sampledTable = "bench-sampled"
	filledTable  = "bench-filled"
)

// batches is how many batches a table holds: enough that draws differ, few enough for memory.
const batches = 4

// transfers compares contenders for rollouts of one length.
type transfers struct {
	*lab
	settings *runCommand
	tokens   int
	groups   []rollout.Group // one batch
	bytes    int64
}

// measureTransfers compares all contenders for rollouts of one length, over each network.
func measureTransfers(ctx context.Context, l *lab, s *runCommand, tokens int) (list []Transfer, err error) {
	t := &transfers{lab: l, settings: s, tokens: tokens, groups: newGroups(s.Batch, tokens, 0)}
	t.bytes = payload(t.groups)
	if err := t.makeTables(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.dropTables(ctx)) }()
	for _, network := range s.networks() {
		for _, what := range []string{sample, insert} {
			announce("%s of %d x %d tokens over %s", what, s.Batch, tokens, network)
			measured, err := t.compare(ctx, what, network)
			if err != nil {
				return nil, fmt.Errorf("%s of %d x %d tokens over %s: %w", what, s.Batch, tokens, network, err)
			}
			list = append(list, measured...)
		}
	}
	return list, nil
}

func (t *transfers) servers() []*server {
	if t.durable == nil {
		return []*server{t.plain}
	}
	return []*server{t.plain, t.durable}
}

// makeTables makes the tables and fills those that are sampled.
func (t *transfers) makeTables(ctx context.Context) error {
	for _, s := range t.servers() {
		for _, name := range []string{sampledTable, filledTable} {
			if err := s.create(ctx, name, batches*t.settings.Batch); err != nil {
				return err
			}
		}
		for i := range batches {
			if _, err := s.table(tcp, sampledTable).Insert(ctx,
				newGroups(t.settings.Batch, t.tokens, i)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *transfers) dropTables(ctx context.Context) error {
	var errs []error
	for _, s := range t.servers() {
		errs = append(errs, s.drop(ctx, sampledTable), s.drop(ctx, filledTable))
	}
	return errors.Join(errs...)
}

// compare lets the contenders of one kind take turns. The first is the floor.
func (t *transfers) compare(ctx context.Context, what, network string) ([]Transfer, error) {
	floor, err := dialFloor(network, t.floorAt.address(network), t.bytes)
	if err != nil {
		return nil, err
	}
	defer floor.close()
	contenders := []contender{repeated(rawSocket, func(context.Context) error { return floor.fetch() })}
	if what == insert {
		contenders[0] = repeated(rawSocket, func(context.Context) error { return floor.store() })
	}
	own, end, err := t.service(ctx, what, network)
	defer end()
	if err != nil {
		return nil, err
	}
	contenders = append(contenders, own...)
	if t.python != nil {
		contenders = append(contenders, t.byPython(what, network)...)
	}
	peers, end, err := t.byRedis(what, network)
	defer end()
	if err != nil {
		return nil, err
	}
	contenders = append(contenders, peers...)
	all, err := takeTurns(ctx, contenders, t.settings.Rounds, t.settings.turn())
	if err != nil {
		return nil, err
	}
	var list []Transfer
	for i, s := range all {
		list = append(list, t.figures(contenders[i].name, what, network, s, all[0]))
	}
	return list, nil
}

func (t *transfers) figures(who, what, network string, s, floor series) Transfer {
	rate := s.rate()
	return Transfer{
		What: what, Who: who, Over: network, Tokens: t.tokens, Batch: t.settings.Batch, Bytes: t.bytes,
		GBs: rate * float64(t.bytes) / 1e9, Rollouts: rate * float64(t.settings.Batch),
		P50: s.latency(0.5), P99: s.latency(0.99), OfFloor: s.over(floor, turn.rate), P50Ratio: s.over(floor, turn.p50),
	}
}

// service returns the contenders of the Go client, and a function that ends their streams.
func (t *transfers) service(ctx context.Context, what, network string) (list []contender, end func(), err error) {
	var streams []*client.Stream
	end = func() {
		for _, s := range streams {
			s.Close()
		}
	}
	if what == insert {
		for _, s := range t.servers() {
			table := s.table(network, filledTable)
			list = append(list, repeated(t.named(s, goClient), func(ctx context.Context) error {
				_, err := table.Insert(ctx, t.groups...)
				return err
			}))
		}
		return list, end, nil
	}
	for _, s := range t.servers() {
		for _, window := range []int{1, 0} {
			if s == t.durable && window == 0 {
				continue // the same as a table in memory
			}
			stream, err := s.table(network, sampledTable).Stream(ctx,
				wire.SampleRequest{Size: t.settings.Batch, Prefetch: &window})
			if err != nil {
				return nil, end, err
			}
			stream.ReuseMemory()
			if window > 0 {
				stream.ReadAhead()
			}
			streams = append(streams, stream)
			name := t.named(s, goClient)
			if window == 0 {
				name = noPrefetch
			}
			list = append(list, repeated(name, func(ctx context.Context) error { return t.next(ctx, stream) }))
		}
	}
	return list, end, nil
}

func (t *transfers) named(s *server, name string) string {
	if s == t.durable {
		return durable
	}
	return name
}

// next takes a batch from a stream.
func (t *transfers) next(ctx context.Context, stream *client.Stream) error {
	b, err := stream.Next(ctx)
	if err == nil && len(b.Draws) != t.settings.Batch {
		err = fmt.Errorf("a batch of %d rollouts: want %d", len(b.Draws), t.settings.Batch)
	}
	return err
}

// byRedis returns Redis's contenders, none if it is not installed.
func (t *transfers) byRedis(what, network string) (list []contender, end func(), err error) {
	if t.redis == nil || t.redis.at.address(network) == "" {
		return nil, func() {}, nil
	}
	connection, err := dialRedis(network, t.redis.at.address(network))
	if err != nil {
		return nil, func() {}, err
	}
	store, fetch, forget, err := redisContenders(connection, t.bytes, t.settings.Batch)
	end = func() {
		if forget != nil {
			_ = forget() // our own server ends anyway
		}
		connection.close()
	}
	if what == insert {
		return store, end, err
	}
	return fetch, end, err
}

// byPython returns the contenders of the Python client: samples as flat arrays, and as padded ones.
func (t *transfers) byPython(what, network string) []contender {
	task := pythonTask{
		What: what, Address: t.plain.at.url(network), Table: sampledTable, Tokens: t.tokens, Batch: t.settings.Batch,
	}
	if what == insert {
		task.Table = filledTable
		return []contender{t.python.contender(python, task)}
	}
	flat := t.python.contender(python, task)
	task.What = "padded"
	return []contender{flat, t.python.contender(pythonPadded, task)}
}
