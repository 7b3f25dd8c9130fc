package service

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Everything that clients can make the service hold is charged to a part of Options.MemoryBytes before the memory is
// taken. What does not fit waits in order of arrival, or is refused with how much is free.
//
//	insertions   max_in_flight_bytes       messages, decompressed and decoded, until they are in a table
//	received     max_in_flight_bytes / 2   messages arriving, and complete ones that no call has read
//	waiting      max_in_flight_bytes / 2   messages that wait for insertions to leave
//	outgoing     max_outgoing_bytes        packed batches, prefetched ones included, until they are written
//	leases       1/32, at most 512 MiB     draws on lease
//	calls        1/32, at most 512 MiB     calls in progress, which may wait for long
//	connections  max_connections * 768 KiB
//	program      1/8
//	tables       the rest                  rollouts, with what a table and a shard take by themselves
const (
	inFlightShare   = 8
	outgoingShare   = 8
	connectionShare = 16
	smallShare      = 32 // leases, and calls
	maxSmall        = 512 << 20
	programShare    = 8
	minForTables    = 8 // in Validate
)

// What things take besides their payload, in bytes; measured, and rounded up.
const (
	drawOverhead       = 192      // a draw on lease: in its batch, and the slot that it keeps
	shardOverhead      = 8 << 10  // a shard of a table
	grantOverhead      = 128      // a gate's grant
	reportOverhead     = 128      // the request id of a report, besides its length
	callOverhead       = 64 << 10 // with maxHeaders bytes of headers, in whatever pieces
	connectionOverhead = 3 * socketBuffer
)

func (o Options) smallBytes() int64 { return min(o.MemoryBytes/smallShare, maxSmall) }

// tableBytes returns what the other parts leave for tables.
func (o Options) tableBytes() int64 {
	return o.MemoryBytes - o.MemoryBytes/programShare - 2*o.MaxInFlightBytes - o.MaxOutgoingBytes - 2*o.smallBytes() -
		int64(o.MaxConnections)*connectionOverhead
}

// DefaultTableBytes returns what a service on a machine with the given memory has for tables by default.
func DefaultTableBytes(machine int64) int64 {
	return Options{MemoryBytes: memoryShare(machine)}.withDefaults().tableBytes()
}

// memoryShare is the default of MemoryBytes.
func memoryShare(machine int64) int64 { return machine / 4 * 3 }

// budget bounds the bytes in use at once. Requests for more than is free wait in order of arrival, so that large ones
// get their turn.
type budget struct {
	most int64
	free *semaphore.Weighted
	used atomic.Int64
}

func newBudget(most int64) *budget { return &budget{most: most, free: semaphore.NewWeighted(most)} }

// acquire waits until the bytes are free and takes them; more than the whole budget counts as all of it. The caller
// releases what it returns.
func (b *budget) acquire(ctx context.Context, bytes int64) (taken int64, err error) {
	taken = min(bytes, b.most)
	if err := b.free.Acquire(ctx, taken); err != nil {
		return 0, err
	}
	b.used.Add(taken)
	return taken, nil
}

// keepHalf is the spare for work that can wait: it leaves half of the budget free.
const keepHalf = 2

// tryAcquire takes the bytes if they are free and, unless spare is 0, 1/spare of the budget stays free. It reports
// whether it did.
func (b *budget) tryAcquire(bytes, spare int64) bool {
	most := b.most
	if spare > 0 {
		most -= b.most / spare
	}
	if b.used.Load()+bytes > most || !b.free.TryAcquire(bytes) {
		return false
	}
	b.used.Add(bytes)
	return true
}

func (b *budget) left() int64 { return max(b.most-b.used.Load(), 0) }

func (b *budget) release(taken int64) {
	b.used.Add(-taken)
	b.free.Release(taken)
}

// shares divides a budget: no caller, or table, holds more than one share of it, so that one that stops reading does
// not block the others. A share exists while it is in use.
type shares struct {
	most int64 // of one share

	mu    sync.Mutex
	parts map[string]*share
}

type share struct {
	*budget
	users int
}

func newShares(most int64) *shares { return &shares{most: most, parts: make(map[string]*share)} }

// acquire waits until a name's share has the bytes free and takes them. The caller releases them once.
func (s *shares) acquire(ctx context.Context, name string, bytes int64) (release func(), err error) {
	part := s.enter(name)
	taken, err := part.acquire(ctx, bytes)
	if err != nil {
		s.leave(name, part)
		return nil, err
	}
	return func() {
		part.release(taken)
		s.leave(name, part)
	}, nil
}

// tryAcquire takes the bytes if they are free, and 1/spare of the share stays free. It returns nil otherwise.
func (s *shares) tryAcquire(name string, bytes, spare int64) (release func()) {
	part := s.enter(name)
	if !part.tryAcquire(bytes, spare) {
		s.leave(name, part)
		return nil
	}
	return func() {
		part.release(bytes)
		s.leave(name, part)
	}
}

func (s *shares) enter(name string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := s.parts[name]
	if part == nil {
		part = &share{budget: newBudget(s.most)}
		s.parts[name] = part
	}
	part.users++
	return part
}

func (s *shares) leave(name string, part *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if part.users--; part.users == 0 {
		delete(s.parts, name)
	}
}

// pool is a part of the memory with the shares of callers and tables in it.
type pool struct {
	all                        *budget
	byCaller, unnamed, byTable *shares
	refused                    atomic.Uint64 // requests
}

// newPool returns a pool. A table's share is a half and a named caller's a quarter, so that one caller leaves room to
// others on the same table; those without a name at one address have the table's share. A share holds at least one
// piece of the largest size.
func newPool(most, largest int64) *pool {
	share := func(of int64) *shares { return newShares(min(max(most/of, largest), most)) }
	return &pool{all: newBudget(most), byCaller: share(4), unnamed: share(2), byTable: share(2)}
}

// callers returns the shares among which an account's is, and its name there.
func (p *pool) callers(of account) (all *shares, name string) {
	if of.name == "" {
		return p.unnamed, of.network
	}
	return p.byCaller, of.name
}

// acquire waits until bytes are free for an account and a table, and takes them. The account's share comes first and
// the whole last, so that one who waits for itself holds nothing that others need.
func (p *pool) acquire(ctx context.Context, of account, table string, bytes int64) (release func(), err error) {
	callers, name := p.callers(of)
	ofCaller, err := callers.acquire(ctx, name, bytes)
	if err != nil {
		return nil, err
	}
	ofTable, err := p.byTable.acquire(ctx, table, bytes)
	if err != nil {
		ofCaller()
		return nil, err
	}
	taken, err := p.all.acquire(ctx, bytes)
	if err != nil {
		ofTable()
		ofCaller()
		return nil, err
	}
	return sync.OnceFunc(func() {
		p.all.release(taken)
		ofTable()
		ofCaller()
	}), nil
}

// tryAcquire takes bytes if they are free and a part of each share, 1/spare, stays free. It returns nil otherwise.
func (p *pool) tryAcquire(of account, table string, bytes, spare int64) (release func()) {
	ofTable := p.byTable.tryAcquire(table, bytes, spare)
	if ofTable == nil {
		return nil
	}
	callers, name := p.callers(of)
	ofCaller := callers.tryAcquire(name, bytes, spare)
	if ofCaller == nil {
		ofTable()
		return nil
	}
	if !p.all.tryAcquire(bytes, spare) {
		ofCaller()
		ofTable()
		return nil
	}
	return sync.OnceFunc(func() {
		p.all.release(bytes)
		ofCaller()
		ofTable()
	})
}

// admit waits until a message may be decoded, which takes the given bytes. Messages that wait are charged too, to a
// part of their own: beyond it they are refused.
func (s *Service) admit(ctx context.Context, table string, message, decoded int64) (release func(), err error) {
	caller := s.accountOf(ctx)
	if release = s.incoming.tryAcquire(caller, table, decoded, 0); release != nil {
		return release, nil
	}
	leave := s.waiting.tryAcquire(caller, table, message, 0)
	if leave == nil {
		s.waiting.refused.Add(1)
		return nil, fmt.Errorf("a message of %d bytes: %d of %d bytes are free for insertions (max_in_flight_bytes) "+
			"and %d of %d for messages that wait, at most a quarter for a caller and half for a table: send less at a "+
			"time: %w", message, s.incoming.all.left(), s.incoming.all.most, s.waiting.all.left(), s.waiting.all.most,
			rollout.ErrFull)
	}
	defer leave()
	return s.incoming.acquire(ctx, caller, table, decoded)
}

// admitCall charges a call: most wait, for rollouts or for messages.
func (s *Service) admitCall(
	server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	ctx := stream.Context()
	release, err := s.chargeCall(ctx, callOverhead)
	if err == nil {
		if err = s.connections.admit(connOf(ctx), s.accountOf(ctx)); err != nil {
			release()
		}
	}
	if err != nil {
		s.counts.failed(err)
		return wire.ToGRPC(err)
	}
	defer release()
	return next(server, stream)
}

// chargeCall charges what a call holds as long as it is in progress.
func (s *Service) chargeCall(ctx context.Context, bytes int64) (release func(), err error) {
	connection := ""
	if c := connOf(ctx); c != nil {
		connection = c.peer
	}
	if release = s.calls.tryAcquire(s.accountOf(ctx), connection, bytes, 0); release != nil {
		return release, nil
	}
	s.calls.refused.Add(1)
	return nil, fmt.Errorf("calls: this one asks for %d bytes for itself, its schema or a dictionary, %d of %d are "+
		"free for calls in progress, at most a quarter for a caller and half for a connection: end some, send text "+
		"instead of dictionaries, or raise memory_bytes: %w", bytes, s.calls.all.left(), s.calls.all.most,
		rollout.ErrFull)
}

// reserveLease charges the draws of a batch that is about to be drawn, and the counts of the prompts that it is for. It
// never waits: leases may be held for long.
func (t *table) reserveLease(ctx context.Context, draws, prompts int) (release func(), err error) {
	bytes := int64(draws)*drawOverhead + 8*int64(prompts)
	leased := t.service.leased
	if release = leased.tryAcquire(t.service.accountOf(ctx), t.Name, bytes, 0); release != nil {
		return release, nil
	}
	leased.refused.Add(1)
	return nil, wire.Errorf(wire.TooLarge, "size: %d: a lease of that many draws takes %d bytes, %d of %d are free "+
		"for leases, at most a quarter for a caller and half for a table: settle batches on lease, ask for fewer, or "+
		"raise memory_bytes", draws, bytes, leased.all.left(), leased.all.most)
}

// memory returns the parts in their order of an insertion's way.
func (s *Service) memory() []MemoryPart {
	parts := []MemoryPart{{"received", s.connections.received.Load(), 2 * s.connections.limit, 0}}
	for _, p := range []struct {
		name string
		pool *pool
	}{{"waiting", s.waiting}, {"insertions", s.incoming}, {"leases", s.leased}, {"outgoing", s.outgoing},
		{"calls", s.calls}} {
		parts = append(parts, MemoryPart{p.name, p.pool.all.used.Load(), p.pool.all.most, p.pool.refused.Load()})
	}
	m := &s.tableMemory
	return append(parts, MemoryPart{"tables", m.held.Load(), m.most, m.refused.Load()})
}

// minMemory is the least that a service can work with.
const minMemory = 64 << 20

// defaultTables is how many tables of the default capacity_bytes there is memory for, with what they hold besides.
const defaultTables = 4

// holdings counts the bytes that tables hold, against their share of the memory.
type holdings struct {
	most    int64
	held    atomic.Int64
	refused atomic.Uint64 // requests
	short   atomic.Bool   // one was refused since memory came free
	freed   func()        // tells those who wait that memory came free
}

// add changes what is held without a bound.
func (h *holdings) add(bytes int64) {
	h.held.Add(bytes)
	if bytes < 0 && h.short.Swap(false) {
		h.freed()
	}
}

// tryGrow charges bytes that a table is about to hold, if they are free. It returns how many are.
func (h *holdings) tryGrow(bytes int64) (free int64, ok bool) {
	held := h.held.Add(bytes)
	if held <= h.most || bytes == 0 {
		return h.most - held + bytes, true
	}
	h.held.Add(-bytes)
	h.refused.Add(1)
	h.short.Store(true)
	return max(h.most-held+bytes, 0), false
}

// grow is tryGrow with the error that says how much is free.
func (h *holdings) grow(bytes int64) error {
	if free, ok := h.tryGrow(bytes); !ok {
		return wire.Errorf(wire.TooLarge, "it takes %d bytes, %d of %d are free for tables: drop a table, lower "+
			"capacity_bytes, shards or history, or raise memory_bytes", bytes, free, h.most)
	}
	return nil
}

// charge is tryGrow with an error that wraps rollout.ErrFull: memory may come free.
func (h *holdings) charge(bytes int64, what string, args ...any) error {
	if free, ok := h.tryGrow(bytes); !ok {
		return fmt.Errorf("%s takes %d bytes, %d of %d are free for tables: drop a table, lower its capacity_bytes, "+
			"or raise memory_bytes: %w", fmt.Sprintf(what, args...), bytes, free, h.most, rollout.ErrFull)
	}
	return nil
}

// fixedBytes returns what a table takes from its creation on: its shards, and all that its history may come to hold.
func (d *definition) fixedBytes() int64 { return int64(d.Shards)*shardOverhead + d.HistoryBytes() }

// tableBytes returns what a table takes: its shards and its history; its rollouts with their overhead, those too that
// left and are on lease or in remembered batches; and the ids, grants and prompts that it remembers.
func (t *table) tableBytes() int64 {
	f := t.rollouts.ServiceView().Flow()
	bytes := t.fixedBytes() + f.Bytes + f.Pinned + int64(f.Present)*replay.RolloutOverhead
	bytes += f.IDs + t.reports.bytes.Load() + t.gate.Load().Bytes()
	if t.prompts != nil {
		bytes += t.prompts.Bytes()
	}
	return bytes
}

// recount brings the table's part of what all tables hold up to date. Call it within [table.unlessDropped]: nobody
// counts a dropped table.
func (t *table) recount() {
	t.counting.Lock()
	defer t.counting.Unlock()
	now := t.tableBytes()
	t.service.tableMemory.add(now - t.heldBytes)
	t.heldBytes = now
}
