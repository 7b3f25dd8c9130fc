package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

const (
	// handOverTime is how long a node keeps its tables, although it has more than others, after it opened one or handed
	// one over: each hand-over interrupts a table while it is opened.
	handOverTime = 20 * time.Second
	// sweepTime is how often logs are looked for that no table has, and how long they must have had none. To create a
	// table takes less.
	sweepTime = time.Minute

	tablePrefix  = "TABLE-"
	definitionOf = "definition" // metadata of a table's stream
)

// Host serves the tables that a node owns. Open and Close of one table do not overlap; everything else may.
type Host interface {
	// Open begins to serve a table, recovered from its log.
	Open(name string, definition []byte, log journal.Log) error
	// Close stops serving a table that the node hands over, or has lost: then its log takes nothing more.
	Close(name string)
	// Counts returns what the other nodes are told of a table.
	Counts(name string) wire.Counts
	// DiskFull returns an error while the node's disk, and so its copies, should take no insertions.
	DiskFull() error
}

// tables opens and closes the tables of a node as the state says.
type tables struct {
	node      string
	host      Host
	log       *slog.Logger
	directory *directory
	lookNow   func()          // has the node look at the state at once
	ctx       context.Context // of the node
	running   *sync.WaitGroup // the node's

	mu          sync.Mutex
	owned       map[string]*ownership
	handingOver map[string]bool // to another node just now

	// Only for the goroutine that beats.
	settled time.Time // when a table was last opened or handed over
	swept   time.Time // when sweep last looked
	strays  map[string]bool
	pause   time.Duration // sweepTime, but in tests
}

// ownership is a table that this node serves, or opens or closes.
type ownership struct {
	log    string // name of the stream
	ctx    context.Context
	cancel context.CancelCauseFunc // nothing gets into the log any more
	stop   func()                  // closes the table, whose last changes still get into the log
	ask    chan struct{}           // closed by stop
	done   chan struct{}           // closed when the table is closed
	open   atomic.Bool
	taken  atomic.Pointer[tableLog] // the log, once the table is open
}

// served returns the log of a table that this node has open, nil if it has not.
func (t *tables) served(table, log string) *tableLog {
	o := t.find(table)
	if o == nil || o.log != log || !o.open.Load() {
		return nil
	}
	return o.taken.Load()
}

// serves reports whether this node has a table open.
func (t *tables) serves(table, log string) bool { return t.served(table, log) != nil }

func (t *tables) find(table string) *ownership {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owned[table]
}

// reconcile opens the tables that a state gives this node in its session, and closes those that it does not.
func (t *tables) reconcile(s state, session uint64) {
	mine := func(p placement) bool { return p.Owner == t.node && p.Session == session }
	var gone []*ownership
	t.mu.Lock()
	for table, o := range t.owned {
		if p := s.Tables[table]; !mine(p) || p.Log != o.log {
			gone = append(gone, o)
		}
	}
	t.mu.Unlock()
	t.close(gone, errLost)
	t.mu.Lock()
	for table, p := range s.Tables {
		if mine(p) && t.owned[table] == nil && !t.handingOver[table] {
			t.own(table, p.Log)
			t.settled = time.Now()
		}
	}
	t.mu.Unlock()
	if time.Since(t.settled) > handOverTime {
		if table := s.surplus(t.node); table != "" && t.serves(table, s.Tables[table].Log) {
			t.settled = time.Now()
			t.pass(table, s.Tables[table].Log, nil)
		}
	}
}

// own begins to open a table. The caller must hold mu.
func (t *tables) own(table, log string) {
	o := &ownership{log: log, ask: make(chan struct{}), done: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancelCause(t.ctx)
	o.stop = sync.OnceFunc(func() { close(o.ask) })
	t.owned[table] = o
	t.running.Go(func() {
		t.serve(table, o)
		o.cancel(errLost)
		t.mu.Lock()
		delete(t.owned, table)
		t.mu.Unlock()
		close(o.done)
	})
}

// serve opens a table, and closes it when it is asked to or its log is lost.
func (t *tables) serve(table string, o *ownership) {
	began := time.Now()
	for {
		err := t.open(table, o)
		if err == nil {
			break
		}
		if o.ctx.Err() != nil {
			return
		}
		t.log.Debug("opening a table; it is tried again", "table", table, "error", err)
		if time.Since(began) > appendTimeout {
			t.pass(table, o.log, err)
			return
		}
		select {
		case <-time.After(beatTime / 2):
		case <-o.ask:
			return
		case <-o.ctx.Done():
			return
		}
	}
	t.log.Info("serving a table", "table", table, "opened_in", time.Since(began).Round(time.Millisecond))
	o.open.Store(true)
	select {
	case <-o.ask:
	case <-o.ctx.Done():
	}
	o.open.Store(false)
	t.host.Close(table)
}

func (t *tables) open(table string, o *ownership) error {
	l := &tableLog{js: t.directory.js, name: o.log, writer: strconv.FormatUint(newNumber(), 16), ctx: o.ctx, log: t.log,
		first: new(atomic.Uint64),
		lost: func(err error) {
			o.cancel(err)
			t.pass(table, o.log, err)
		}}
	attempt, cancel := context.WithTimeout(o.ctx, askTime)
	defer cancel()
	s, _ := t.directory.last()
	p := s.Tables[table]
	l.avoid = p.avoided(t.directory.replicas)
	l.first.Store(p.First)
	l.trimTo.Store(p.First)
	err := takeLog(attempt, l, p.Reached)
	if err == nil {
		err = t.host.Open(table, []byte(l.stream.CachedInfo().Config.Metadata[definitionOf]), l)
	}
	if l.broken && errors.Is(err, journal.ErrDamaged) {
		return errors.Join(err, t.tellDamage(o.ctx, table, l, err))
	}
	if err == nil {
		o.taken.Store(l)
	}
	return err
}

// tellDamage tells the other nodes that one has a damaged copy of a table's log, so that it is not read. An only copy is
// still read: there is no other.
func (t *tables) tellDamage(ctx context.Context, table string, l *tableLog, why error) error {
	if t.directory.replicas == 1 {
		t.log.Error("the only copy of a table's log is damaged", "table", table, "node", l.source, "error", why)
		return nil
	}
	t.log.Warn("a copy of a table's log is damaged: others are read from now on", "table", table, "node", l.source,
		"error", why)
	return t.changePlacement(ctx, table, l.name, func(p *placement) bool { return p.setDamaged(l.source, true) })
}

// changePlacement changes what the state says of a table that this node owns. Edit reports whether there is a change.
func (t *tables) changePlacement(ctx context.Context, table, log string, edit func(p *placement) bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return t.directory.change(ctx, func(s *state) error {
		p := s.Tables[table]
		if p.Log != log || p.Owner != t.node || !edit(&p) {
			return errSame
		}
		s.Tables[table] = p
		return nil
	})
}

// note writes what is known of a log to the placement of a table that is served here.
func (t *tables) note(table string, p *placement) {
	if l := t.served(table, p.Log); l != nil {
		p.Counts = t.host.Counts(table)
		p.Reached = max(p.Reached, l.reached.Load())
		p.First = max(p.First, l.trimTo.Load())
	}
}

// trim removes from the logs of tables that are served here what is before their beginning by a state. What an owner
// before may have left is removed with the first beat.
func (t *tables) trim(s state) {
	for table, p := range s.Tables {
		l := t.served(table, p.Log)
		if l == nil {
			continue
		}
		if l.first.Store(p.First); p.First > l.trimmed.Load() && !l.trimming.Swap(true) {
			t.running.Go(func() {
				l.trim(p.First)
				l.trimming.Store(false)
			})
		}
	}
}

// pass closes a table and gives it to another node: because that has fewer, or because this one cannot write its log.
func (t *tables) pass(table, log string, why error) {
	t.log.Info("giving a table to another node", "table", table, "because", why)
	t.running.Go(func() {
		t.mu.Lock()
		o := t.owned[table]
		t.handingOver[table] = true
		t.mu.Unlock()
		defer func() {
			t.mu.Lock()
			delete(t.handingOver, table)
			t.mu.Unlock()
			t.lookNow()
		}()
		if o != nil && o.log == log {
			t.close([]*ownership{o}, nil)
		}
		err := t.directory.change(t.ctx, func(s *state) error {
			if s.Tables[table].Log != log || !s.handOver(table, t.node) {
				return errSame
			}
			return nil
		})
		if err != nil && t.ctx.Err() == nil {
			t.log.Warn("giving a table to another node", "table", table, "error", err)
		}
	})
}

// close closes tables, and waits until they are closed. Without an error their last changes are written before.
func (t *tables) close(list []*ownership, why error) {
	for _, o := range list {
		if o.stop(); why != nil {
			o.cancel(why)
		}
	}
	for _, o := range list {
		<-o.done
	}
}

func (t *tables) closeAll(why error) {
	t.mu.Lock()
	all := slices.Collect(maps.Values(t.owned))
	t.mu.Unlock()
	t.close(all, why)
}

// sweep deletes the logs that no table of a state has had since the last time, which interrupted creations and drops
// have left. The first of the nodes does it.
func (t *tables) sweep(ctx context.Context, s state) {
	if time.Since(t.swept) < t.pause || slices.Min(slices.Collect(maps.Keys(s.Nodes))) != t.node {
		return
	}
	t.swept = time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	js := t.directory.js
	strays := make(map[string]bool)
	for name := range js.StreamNames(ctx).Name() {
		strays[name] = strings.HasPrefix(name, tablePrefix)
	}
	for _, p := range s.Tables {
		strays[p.Log] = false
	}
	for name, stray := range strays {
		if stray && t.strays[name] {
			t.log.Info("deleting a log that no table has", "log", name, "error", js.DeleteStream(ctx, name))
		}
	}
	t.strays = strays
}
