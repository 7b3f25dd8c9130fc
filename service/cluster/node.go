// Package cluster joins services on several machines: each table has an owner among them and a log that several hold.
//
// A [Node] runs a NATS server inside the service's process. The servers of all nodes form one cluster, which keeps two
// kinds of JetStream streams. One holds the state, a document that says which nodes are up and who owns which table; it
// is changed by compare-and-set. The others hold a table's log each, the journal of its owner (journal.OpenIn).
//
// # Ownership
//
// A node renews its lease by a change of the state. It may answer for its tables ([Node.Valid]) for leaseTime after the
// beginning of the last renewal that succeeded, by its own clock. Another node that has seen no renewal for longer than
// that evicts it, by a change of the state too, and gives its tables to others. So a node that was cut off, or stopped
// and continued, answers nothing in the name of a table that another may have; and what it still tries to write does
// not get into the log, in which the new owner has written since (takeLog).
//
// No clocks are compared, and nothing depends on when a message arrives: the state and the logs refuse changes that do
// not follow the latest.
//
// # Promises
//
// What a journal in a log has acknowledged is on the disks of most of its copies. With three copies it survives the
// loss of any one node, process or machine, and the table is served again once the lease has ended, after 4 s, and
// JetStream has elected leaders where the lost node led, after 2 to 4 s, or twice that where an election fails. It does
// not survive the loss of most copies at the same time.
package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

const (
	// beatTime is how often a node renews its lease.
	beatTime = 500 * time.Millisecond
	// askTime bounds a request to a stream: while it has no leader nobody answers.
	askTime = time.Second
	// leaseTime is how long a node may answer for its tables after a renewal.
	leaseTime = 3 * time.Second
	// evictTime is how long a node must be seen not to renew before another evicts it.
	evictTime = leaseTime + time.Second
	// hearTime is how long a node that cannot change the state is thought to be up while it is heard.
	hearTime = 2 * time.Second
	// waitTime is how often a node that cannot join says so.
	waitTime = 8 * time.Second
	// handOverTime is how long a node keeps its tables, although it has more than others, after it opened one or handed
	// one over: each hand-over interrupts a table while it is opened.
	handOverTime = 20 * time.Second
	// sweepTime is how often logs are looked for that no table has, and how long they must have had none. To create a
	// table takes less.
	sweepTime = time.Minute
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

// Node is a member of a cluster. Make it with [New].
type Node struct {
	options Options
	address string
	host    Host
	log     *slog.Logger
	server  *server.Server
	conn    *nats.Conn
	js      jetstream.JetStream

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	began   time.Time
	until   atomic.Int64  // end of the lease, in nanoseconds since began
	date    atomic.Int64  // and by the calendar, as the other clock stands still while a virtual machine is suspended
	wake    chan struct{} // holds one; has the node look at the state at once

	stopBeating func() // for good, and waits until it has; otherwise a node that leaves would come back

	mu          sync.Mutex
	states      jetstream.Stream // nil: not found yet
	state       state            // as of the last look; never changed in place
	sequence    uint64           // of the state
	looked      time.Time        // when the state was last read
	heard       map[string]time.Time
	owned       map[string]*ownership
	handingOver map[string]bool // tables that are given to another node just now

	// Only for the goroutine that beats.
	session uint64
	seen    map[string]sighting
	settled time.Time // when a table was last opened or handed over
	swept   time.Time // when sweep last looked
	strays  map[string]bool
	pause   time.Duration // sweepTime, but in tests
}

// sighting is when a node's lease was first seen as it is.
type sighting struct {
	member member
	since  time.Time
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
}

// The stream of the state.
const (
	stateStream  = "REPRISE"
	stateSubject = "reprise.state"
	heardSubject = "reprise.heard."
	tablePrefix  = "TABLE-"
	definitionOf = "definition" // metadata of a table's stream
)

// New returns a node that is to join a cluster with [Node.Start].
func New(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	n := &Node{
		options: o, log: o.Logger, began: time.Now(), wake: make(chan struct{}, 1),
		heard: make(map[string]time.Time), owned: make(map[string]*ownership), seen: make(map[string]sighting),
		handingOver: make(map[string]bool), pause: sweepTime,
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

// Start joins the cluster, which takes until enough nodes are up. Address is where clients reach this node's service.
func (n *Node) Start(ctx context.Context, address string, host Host) error {
	n.address, n.host = cmp.Or(n.options.Advertise, address), host
	err := n.connect()
	if err == nil {
		err = n.joinSoon(ctx)
	}
	if err != nil {
		n.leave()
		return err
	}
	beating, stop := context.WithCancel(n.ctx)
	ended := make(chan struct{})
	n.running.Go(func() {
		defer close(ended)
		n.beatLoop(beating)
	})
	n.stopBeating = func() {
		stop()
		<-ended
	}
	return nil
}

// connect starts the server and listens to the other nodes.
func (n *Node) connect() (err error) {
	token := rand.Text()
	if n.server, err = startServer(n.options, token); err != nil {
		return err
	}
	if !n.server.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("cluster.listen: %s: the node does not listen there: want an address of this machine that "+
			"nobody else uses", n.options.Listen)
	}
	if n.conn, err = dial(n.server, token); err != nil {
		return err
	}
	if n.js, err = jetstream.New(n.conn, jetstream.WithPublishAsyncTimeout(ackTimeout)); err != nil {
		return err
	}
	if _, err := n.conn.Subscribe(heardSubject+"*", func(m *nats.Msg) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.heard[strings.TrimPrefix(m.Subject, heardSubject)] = time.Now()
	}); err != nil {
		return err
	}
	n.running.Go(n.announceLoop)
	return nil
}

// joinSoon makes the stream of the state if it is missing, and adds the node to the state. It tries until it succeeds
// or the context ends.
func (n *Node) joinSoon(ctx context.Context) error {
	for told := time.Now(); ; {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := n.findState(attempt)
		if err == nil {
			err = n.join(attempt)
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(told) > waitTime {
			told = time.Now()
			n.log.Warn("waiting for the other nodes: want as many failure domains (cluster.domain) as replicas, or "+
				"cluster.accept_risk", "domain", n.options.Domain, "replicas", n.options.Replicas, "peers",
				strings.Join(n.options.Peers, ", "), "error", err)
		}
		select {
		case <-time.After(beatTime / 2):
		case <-ctx.Done():
			return fmt.Errorf("joining the cluster as node %s: %w: want %d nodes up at %s, in as many failure domains "+
				"(cluster.domain) or with cluster.accept_risk: %w", n.options.Node, context.Cause(ctx),
				n.options.Replicas/2+1, strings.Join(n.options.Peers, ", "), err)
		}
	}
}

// findState finds the stream of the state, or makes it.
func (n *Node) findState(ctx context.Context) error {
	n.mu.Lock()
	known := n.states != nil
	n.mu.Unlock()
	if known {
		return nil
	}
	states, err := n.js.CreateStream(ctx, jetstream.StreamConfig{Name: stateStream, Subjects: []string{stateSubject},
		Replicas: n.options.Replicas, MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		states, err = n.js.Stream(ctx, stateStream)
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.states = states
	return nil
}

// announceLoop tells the other nodes that this one is up, whether or not the state can be changed.
func (n *Node) announceLoop() {
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	for {
		if err := n.conn.Publish(heardSubject+n.options.Node, nil); err != nil {
			n.log.Debug("telling the other nodes that this one is up", "error", err)
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// read returns the state and its sequence number, as the stream's leader has them.
func (n *Node) read(ctx context.Context) (state, uint64, error) {
	s := state{Nodes: make(map[string]member), Tables: make(map[string]placement)}
	n.mu.Lock()
	states := n.states
	n.mu.Unlock()
	if states == nil {
		return s, 0, errors.New("this node has not joined the cluster yet")
	}
	m, err := states.GetLastMsgForSubject(ctx, stateSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, err
	}
	return s, m.Sequence, json.Unmarshal(m.Data, &s)
}

// errSame is what a change returns that has nothing to change.
var errSame = errors.New("nothing to change")

// change changes the state, as often as it takes for nobody else to have changed it meanwhile.
func (n *Node) change(ctx context.Context, edit func(*state) error) error {
	for {
		s, sequence, err := n.read(ctx)
		looked := time.Now()
		if err == nil {
			err = edit(&s)
		}
		if err != nil && !errors.Is(err, errSame) {
			return err
		}
		if err == nil {
			text, err := json.Marshal(&s)
			if err != nil {
				return err
			}
			ack, err := n.js.Publish(ctx, stateSubject, text, jetstream.WithExpectLastSequencePerSubject(sequence),
				jetstream.WithRetryAttempts(0))
			if isWrongSequence(err) {
				continue
			}
			if err != nil {
				return err
			}
			sequence = ack.Sequence
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if sequence >= n.sequence {
			n.state, n.sequence, n.looked = s, sequence, looked
		}
		return nil
	}
}

// join adds the node to the state under a new session.
func (n *Node) join(ctx context.Context) error {
	n.session = newNumber()
	started := time.Now()
	err := n.change(ctx, func(s *state) error {
		s.join(n.options.Node, member{Session: n.session, Address: n.address, Domain: n.options.Domain})
		return nil
	})
	if err == nil {
		n.extend(started)
	}
	return err
}

func (n *Node) extend(started time.Time) {
	end := started.Add(leaseTime)
	n.date.Store(end.UnixNano())
	n.until.Store(int64(end.Sub(n.began)))
}

// Valid reports whether the node may answer for its tables now.
func (n *Node) Valid() bool {
	now := time.Now()
	return int64(now.Sub(n.began)) < n.until.Load() && now.UnixNano() < n.date.Load()
}

// beatLoop renews the lease, evicts nodes that do not renew theirs, and opens and closes tables accordingly.
func (n *Node) beatLoop(stop context.Context) {
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	for {
		if !n.server.JetStreamEnabled() {
			n.log.Error("this node's copies have ended, usually because its disk is full: make room and start it again",
				"data", n.options.Data)
			n.closeTables(errLost)
			return // the other nodes evict it
		}
		started := time.Now()
		ctx, cancel := context.WithTimeout(stop, askTime)
		err := n.change(ctx, n.edit)
		cancel()
		switch {
		case stop.Err() != nil:
			return
		case errors.Is(err, errEvicted):
			n.log.Warn("this node did not renew its lease in time, and comes back without tables", "node",
				n.options.Node)
			n.until.Store(0)
			n.closeTables(errEvicted)
			n.seen = make(map[string]sighting)
			if err := n.joinSoon(stop); err != nil {
				return
			}
		case err != nil:
			n.log.Debug("renewing the lease", "error", err)
		default:
			n.extend(started)
			n.reconcile()
			n.sweep(stop)
		}
		select {
		case <-tick.C:
		case <-n.wake:
		case <-stop.Done():
			return
		}
	}
}

// edit is the change that a node makes with each beat.
func (n *Node) edit(s *state) error {
	full := ""
	if err := n.host.DiskFull(); err != nil {
		full = err.Error()
	}
	if err := s.beat(n.options.Node, n.session, full); err != nil {
		return err
	}
	for _, name := range n.expired(s) {
		n.log.Warn("evicting a node that has not renewed its lease", "node", name)
		s.evict(name)
	}
	for table, p := range s.Tables {
		if p.Owner == n.options.Node && n.serves(table, p.Log) {
			p.Counts = n.host.Counts(table)
			s.Tables[table] = p
		}
	}
	return nil
}

// expired returns the other nodes that have not renewed their lease for evictTime. Those that are heard are given that
// time again after a pause in which nobody could renew, because the stream of the state had no leader.
func (n *Node) expired(s *state) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	paused := now.Sub(n.looked) > leaseTime
	for name, m := range s.Nodes {
		seen, known := n.seen[name]
		if !known || seen.member != m || paused && now.Sub(n.heard[name]) < hearTime {
			seen = sighting{m, now}
			n.seen[name] = seen
		}
		if name != n.options.Node && now.Sub(seen.since) > evictTime {
			names = append(names, name)
		}
	}
	maps.DeleteFunc(n.seen, func(name string, _ sighting) bool { _, up := s.Nodes[name]; return !up })
	return names
}

// sweep deletes the logs that no table has had since the last time, which interrupted creations and drops have left. The
// first of the nodes does it.
func (n *Node) sweep(ctx context.Context) {
	n.mu.Lock()
	s := n.state
	n.mu.Unlock()
	if time.Since(n.swept) < n.pause || slices.Min(slices.Collect(maps.Keys(s.Nodes))) != n.options.Node {
		return
	}
	n.swept = time.Now()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	strays := make(map[string]bool)
	list := n.js.StreamNames(ctx)
	for name := range list.Name() {
		strays[name] = strings.HasPrefix(name, tablePrefix)
	}
	for _, p := range s.Tables {
		strays[p.Log] = false
	}
	for name, stray := range strays {
		if stray && n.strays[name] {
			n.log.Info("deleting a log that no table has", "log", name, "error", n.js.DeleteStream(ctx, name))
		}
	}
	n.strays = strays
}

// serves reports whether this node has a table open.
func (n *Node) serves(table, log string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.owned[table]
	return o != nil && o.log == log && o.open.Load()
}

// reconcile opens the tables that the state gives this node, and closes those that it does not.
func (n *Node) reconcile() {
	n.mu.Lock()
	s := n.state
	mine := func(p placement) bool { return p.Owner == n.options.Node && p.Session == n.session }
	var gone []*ownership
	for table, o := range n.owned {
		if p := s.Tables[table]; !mine(p) || p.Log != o.log {
			gone = append(gone, o)
		}
	}
	n.mu.Unlock()
	n.close(gone, errLost)
	n.mu.Lock()
	for table, p := range s.Tables {
		if mine(p) && n.owned[table] == nil && !n.handingOver[table] {
			n.own(table, p.Log)
			n.settled = time.Now()
		}
	}
	n.mu.Unlock()
	if time.Since(n.settled) > handOverTime {
		if table := s.surplus(n.options.Node); table != "" && n.serves(table, s.Tables[table].Log) {
			n.settled = time.Now()
			n.pass(table, s.Tables[table].Log, nil)
		}
	}
}

// own begins to open a table. It holds mu.
func (n *Node) own(table, log string) {
	o := &ownership{log: log, ask: make(chan struct{}), done: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancelCause(n.ctx)
	o.stop = sync.OnceFunc(func() { close(o.ask) })
	n.owned[table] = o
	n.running.Go(func() {
		n.serve(table, o)
		o.cancel(errLost)
		n.mu.Lock()
		delete(n.owned, table)
		n.mu.Unlock()
		close(o.done)
	})
}

// serve opens a table, and closes it when it is asked to or its log is lost.
func (n *Node) serve(table string, o *ownership) {
	began := time.Now()
	for {
		err := n.open(table, o)
		if err == nil {
			break
		}
		if o.ctx.Err() != nil {
			return
		}
		n.log.Debug("opening a table; it is tried again", "table", table, "error", err)
		if time.Since(began) > appendPatience {
			n.pass(table, o.log, err)
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
	n.log.Info("serving a table", "table", table, "opened_in", time.Since(began).Round(time.Millisecond))
	o.open.Store(true)
	select {
	case <-o.ask:
	case <-o.ctx.Done():
	}
	o.open.Store(false)
	n.host.Close(table)
}

func (n *Node) open(table string, o *ownership) error {
	l := &tableLog{js: n.js, name: o.log, writer: strconv.FormatUint(newNumber(), 16), ctx: o.ctx, log: n.log,
		lost: func(err error) {
			o.cancel(err)
			n.pass(table, o.log, err)
		}}
	attempt, cancel := context.WithTimeout(o.ctx, askTime)
	defer cancel()
	if err := takeLog(attempt, l); err != nil {
		return err
	}
	return n.host.Open(table, []byte(l.stream.CachedInfo().Config.Metadata[definitionOf]), l)
}

// pass closes a table and gives it to another node: because that has fewer, or because this one cannot write its log.
func (n *Node) pass(table, log string, why error) {
	n.log.Info("giving a table to another node", "table", table, "because", why)
	n.running.Go(func() {
		n.mu.Lock()
		o := n.owned[table]
		n.handingOver[table] = true
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			delete(n.handingOver, table)
			n.mu.Unlock()
			n.lookNow()
		}()
		if o != nil && o.log == log {
			n.close([]*ownership{o}, nil)
		}
		err := n.change(n.ctx, func(s *state) error {
			if s.Tables[table].Log != log || !s.handOver(table, n.options.Node) {
				return errSame
			}
			return nil
		})
		if err != nil && n.ctx.Err() == nil {
			n.log.Warn("giving a table to another node", "table", table, "error", err)
		}
	})
}

// close closes tables, and waits until they are closed. Without an error their last changes are written before.
func (n *Node) close(list []*ownership, why error) {
	for _, o := range list {
		if o.stop(); why != nil {
			o.cancel(why)
		}
	}
	for _, o := range list {
		<-o.done
	}
}

func (n *Node) closeTables(why error) {
	n.mu.Lock()
	all := slices.Collect(maps.Values(n.owned))
	n.mu.Unlock()
	n.close(all, why)
}

// lookNow has the node look at the state at once.
func (n *Node) lookNow() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Create adds a table to the state; the least loaded node opens it. Later owners read its definition from its log. It
// reports whether the table is new.
func (n *Node) Create(ctx context.Context, name string, definition []byte) (created bool, err error) {
	p := placement{Log: fmt.Sprintf("%s%016x", tablePrefix, newNumber())}
	known := false
	if err := n.change(ctx, func(s *state) error { _, known = s.Tables[name]; return errSame }); err != nil || known {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime/2)
	defer cancel()
	if _, err := n.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: p.Log, Subjects: []string{p.Log}, Replicas: n.options.Replicas, Storage: jetstream.FileStorage,
		DenyDelete: true, Metadata: map[string]string{definitionOf: string(definition)}, MaxMsgSize: maxPayload,
	}); err != nil {
		return false, fmt.Errorf("making the log of table %s: %w", name, err)
	}
	err = n.change(ctx, func(s *state) error {
		if created = s.create(name, p); !created {
			return errSame
		}
		return nil
	})
	if !created && err == nil { // after an error nobody knows whether it is: sweep finds out
		err = n.js.DeleteStream(ctx, p.Log)
	}
	n.lookNow()
	return created, err
}

// Drop removes a table and its log.
func (n *Node) Drop(ctx context.Context, name string) error {
	var p placement
	err := n.change(ctx, func(s *state) error {
		var known bool
		if p, known = s.Tables[name]; !known {
			return wire.Errorf(wire.NotFound, "table %q: no node has one of that name", name)
		}
		delete(s.Tables, name)
		return nil
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	o := n.owned[name]
	n.mu.Unlock()
	if o != nil && o.log == p.Log {
		n.close([]*ownership{o}, errLost)
	}
	return n.js.DeleteStream(ctx, p.Log)
}

// Locate returns where a table is, or the parts NAME.0, NAME.1 and so on of a table in parts, none if there is no such
// table. An address is "" while no node has the table. The answer is as of the last beat; where that knew no such table,
// or was too long ago, the others are asked.
func (n *Node) Locate(ctx context.Context, name string) ([]wire.Part, error) {
	n.mu.Lock()
	s := n.state
	n.mu.Unlock()
	if parts := n.partsOf(s, name); parts != nil && n.Valid() {
		return parts, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	err := n.change(ctx, func(now *state) error {
		s = *now
		return errSame
	})
	if err != nil {
		return nil, wire.ElsewhereError("", "table %q: this node cannot ask the others where it is: %s: retry", name, err)
	}
	return n.partsOf(s, name), nil
}

// DiskFull returns an error with code wire.DiskFull while the disk of a node has no room for the copies of what would be
// inserted.
func (n *Node) DiskFull() error {
	n.mu.Lock()
	node, why := n.state.full()
	n.mu.Unlock()
	if node == "" {
		return nil
	}
	return wire.Errorf(wire.DiskFull, "node %s: %s", node, why)
}

func (n *Node) partsOf(s state, name string) (parts []wire.Part) {
	add := func(name string) bool {
		at, known := s.Tables[name]
		if !known {
			return false
		}
		p := wire.Part{Part: len(parts), Table: name}
		if s.owned(at) && (at.Owner != n.options.Node || n.serves(name, at.Log)) {
			p.Address = s.Nodes[at.Owner].Address
		}
		parts = append(parts, p)
		return true
	}
	if add(name) {
		return parts
	}
	for add(fmt.Sprintf("%s.%d", name, len(parts))) {
	}
	return parts
}

// View returns what the node knows of the others, as of its last beat.
func (n *Node) View() wire.ClusterView {
	n.mu.Lock()
	s := n.state
	n.mu.Unlock()
	v, loads := wire.ClusterView{Node: n.options.Node}, s.loads()
	domains := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		m := s.Nodes[name]
		domains[m.Domain] = true
		v.Nodes = append(v.Nodes, wire.NodeView{Name: name, Address: m.Address, Domain: m.Domain, Tables: loads[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tables)) {
		p := s.Tables[name]
		if !s.owned(p) {
			p.Owner = ""
		}
		v.Tables = append(v.Tables, wire.PlacedTable{Name: name, Owner: p.Owner, Counts: p.Counts})
	}
	most := n.options.Replicas/2 + 1
	if node, why := s.full(); node != "" {
		v.Risks = append(v.Risks, fmt.Sprintf("insertions are refused: node %s: %s", node, why))
	}
	switch {
	case n.options.Replicas == 1:
		v.Risks = append(v.Risks, "one copy of each table: the loss of a node's disk loses its tables")
	case len(s.Nodes) < n.options.Replicas:
		v.Risks = append(v.Risks, fmt.Sprintf("%d of at least %d nodes are up: with fewer than %d nothing is acknowledged",
			len(s.Nodes), n.options.Replicas, most))
	case len(domains) < n.options.Replicas:
		v.Risks = append(v.Risks, fmt.Sprintf("%d nodes are in %d failure domains: the loss of one domain may lose %d of "+
			"%d copies", len(s.Nodes), len(domains), most, n.options.Replicas))
	}
	return v
}

// Stop hands the node's tables over to the others and leaves, within about leaseTime if they are not up. Its copies
// stay, and are brought up to date when it comes back.
func (n *Node) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { n.closeTables(errLost) })()
	n.stopBeating()
	n.closeTables(nil)
	n.until.Store(0)
	err := n.change(ctx, func(s *state) error {
		if s.Nodes[n.options.Node].Session != n.session {
			return errSame
		}
		s.evict(n.options.Node)
		return nil
	})
	n.leave()
	if err != nil { // they notice
		n.log.Warn("leaving without telling the other nodes, which evict this one when its lease ends", "error", err)
	}
}

func (n *Node) leave() {
	n.cancel()
	if n.conn != nil {
		n.conn.Close()
	}
	n.running.Wait()
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
}

// newNumber returns a number that no other process has had.
func newNumber() uint64 {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return binary.LittleEndian.Uint64(b[:])
}
