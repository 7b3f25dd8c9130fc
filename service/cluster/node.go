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
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reprise-rl/reprise/wire"
)

const (
	// beatTime is how often a node renews its lease.
	beatTime = 500 * time.Millisecond
	// askTime bounds a request to a stream: while it has no leader nobody answers.
	askTime = time.Second
	// resendTime is how long one try to create or drop a table may take. Slow disks need seconds.
	resendTime = 10 * time.Second
	// decideTime is how long all tries may take. A table that is created later might have a log that sweep deletes.
	decideTime = sweepTime / 2
	// waitTime is how often a node that cannot join says so.
	waitTime = 8 * time.Second

	pingSubject = "reprise.ping."
)

// Node is a member of a cluster. Make it with [New].
type Node struct {
	options   Options
	address   string
	log       *slog.Logger
	server    *server.Server
	conn      *nats.Conn
	token     string // lets this process into its server
	identity  *identity
	joined    atomic.Bool // as in the identity
	directory *directory
	lease     *lease
	peers     *peers
	tables    *tables
	resend    time.Duration // resendTime

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{}        // holds one; has the node look at the state at once
	seen    atomic.Pointer[look] // at this node's copies; never nil
	session uint64               // only for the goroutine that beats

	stopBeating func() // for good, and waits until it has; otherwise a node that leaves would come back
}

// New returns a node that is to join a cluster with [Node.Start].
func New(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	n := &Node{
		options: o, log: o.Logger, token: rand.Text(), wake: make(chan struct{}, 1),
		lease: &lease{began: time.Now()}, peers: newPeers(),
		directory: &directory{replicas: o.Replicas}, resend: resendTime,
	}
	n.seen.Store(new(look))
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.tables = &tables{
		node: o.Node, log: o.Logger, directory: n.directory, lookNow: n.lookNow, ctx: n.ctx, running: &n.running,
		owned: make(map[string]*ownership), handingOver: make(map[string]bool), pause: sweepTime,
	}
	return n, nil
}

// Start joins the cluster, which takes until enough nodes are up. Address is where clients reach this node's service.
func (n *Node) Start(ctx context.Context, address string, host Host) error {
	n.address, n.tables.host = cmp.Or(n.options.Advertise, address), host
	err := n.identify(ctx)
	if err == nil {
		err = n.connect()
	}
	if err == nil {
		if n.options.Replicas > 1 { // of an only copy there is no better one
			n.running.Go(n.lookLoop)
		}
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
	if err := n.takeOver(ctx); err != nil {
		n.Stop(ctx)
		return err
	}
	return nil
}

// connect starts the server and listens to the other nodes.
func (n *Node) connect() (err error) {
	so, err := serverOptions(n.options, n.token)
	if err != nil {
		return err
	}
	if n.server, err = startServer(n.options, so); err != nil {
		return err
	}
	if n.conn, err = dial(n.server, nodeUser, n.token); err != nil {
		return err
	}
	n.directory.js, err = jetstream.New(n.conn, jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return err
	}
	if _, err := n.conn.Subscribe(pingSubject+"*", func(m *nats.Msg) {
		n.peers.notePing(strings.TrimPrefix(m.Subject, pingSubject))
	}); err != nil {
		return err
	}
	if _, err := n.conn.Subscribe(nameSubject, n.answerName); err != nil {
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
		err := n.directory.find(attempt)
		if err == nil {
			err = n.join(attempt)
		}
		cancel()
		if err == nil || errors.Is(err, errOtherFolder) || errors.Is(err, errReplaced) {
			return err
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

// announceLoop tells the other nodes that this one is up, whether or not the state can be changed.
func (n *Node) announceLoop() {
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	for {
		if err := n.conn.Publish(pingSubject+n.options.Node, nil); err != nil {
			n.log.Debug("telling the other nodes that this one is up", "error", err)
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// join adds the node to the state under a new session.
func (n *Node) join(ctx context.Context) error {
	n.session = newNumber()
	started := time.Now()
	err := n.directory.change(ctx, func(s *state) error {
		m := member{Session: n.session, Address: n.address, Domain: n.options.Domain}
		return s.join(n.options.Node, claim{Folder: n.identity.Folder, Peer: n.server.Node()}, m)
	})
	if errors.Is(err, errOtherFolder) || errors.Is(err, errReplaced) {
		return n.identity.refuse(err)
	}
	if err != nil {
		return err
	}
	n.lease.extend(started)
	if n.joined.Swap(true) {
		return nil
	}
	n.identity.Joined = true
	return n.identity.write()
}

// Valid reports whether the node may answer for its tables now.
func (n *Node) Valid() bool { return n.lease.valid() }

// beatLoop renews the lease, evicts nodes that do not renew theirs, and opens and closes tables accordingly.
func (n *Node) beatLoop(stop context.Context) {
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	slow := slowLeader{js: n.directory.js, stream: stateStream, log: n.log}
	renewed := time.Now()
	for {
		if !n.server.JetStreamEnabled() {
			n.log.Error("this node's copies have ended, usually because its disk is full: make room and start it again",
				"data", n.options.Data)
			n.tables.closeAll(errLost)
			return // the other nodes evict it
		}
		started := time.Now()
		before, _ := n.directory.last()
		seen := n.seen.Load() // before the state is read, so First is not older than a trim that it shows
		ctx, cancel := context.WithTimeout(stop, askTime)
		err := n.directory.change(ctx, func(s *state) error { return n.edit(s, seen) })
		cancel()
		switch {
		case stop.Err() != nil:
			return
		case errors.Is(err, errEvicted):
			n.log.Warn("this node did not renew its lease in time, and comes back without tables", "node",
				n.options.Node)
			n.lease.end()
			n.tables.closeAll(errEvicted)
			n.peers.forget()
			if err := n.joinSoon(stop); err != nil {
				return
			}
			renewed = time.Now()
		case err != nil:
			n.log.Debug("renewing the lease", "error", err)
			// Twice in a row there was no answer, and no word that there is no leader.
			if since := time.Since(renewed); since > beatTime+2*askTime && timedOut(err) {
				slow.took(since, 0)
			}
		default:
			renewed = started
			n.lease.extend(started)
			s, _ := n.directory.last()
			n.logDamage(before, s, seen)
			n.giveWay(s, seen)
			n.tables.trim(s)
			n.tables.reconcile(s, n.session)
			n.tables.sweep(stop, s)
		}
		select {
		case <-tick.C:
		case <-n.wake:
		case <-stop.Done():
			return
		}
	}
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// edit is the change that a node makes with each beat.
func (n *Node) edit(s *state, seen *look) error {
	full := ""
	if err := n.tables.host.DiskFull(); err != nil {
		full = err.Error()
	}
	if err := s.beat(n.options.Node, n.session, full); err != nil {
		return err
	}
	_, looked := n.directory.last()
	for _, name := range n.peers.expired(s, n.options.Node, looked) {
		n.log.Warn("evicting a node that has not renewed its lease", "node", name)
		s.evict(name)
	}
	for table, p := range s.Tables {
		if p.Owner == n.options.Node {
			n.tables.note(table, &p)
		}
		if seen.lacks(p) {
			p.setDamaged(n.options.Node, true)
		}
		s.Tables[table] = p
	}
	return nil
}

// lookNow has the node look at the state at once.
func (n *Node) lookNow() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Create adds a table to the state, unless it has one of that name; the least loaded node opens it. Later owners read
// its definition from its log.
func (n *Node) Create(ctx context.Context, name string, definition []byte) error {
	defer n.lookNow()
	return n.decide(ctx, name, func(ctx context.Context) error { return n.create(ctx, name, definition) })
}

// create tries once. Each try makes another log: a table may have had that of a try without an answer, and be gone.
func (n *Node) create(ctx context.Context, name string, definition []byte) error {
	known := false
	err := n.directory.change(ctx, func(s *state) error { _, known = s.Tables[name]; return errSame })
	if err != nil || known {
		return err
	}
	p := placement{Log: fmt.Sprintf("%s%016x", tablePrefix, newNumber()), First: 1}
	if _, err := n.directory.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: p.Log, Subjects: []string{p.Log}, Replicas: n.options.Replicas, Storage: jetstream.FileStorage,
		DenyDelete: true, Metadata: map[string]string{definitionOf: string(definition)}, MaxMsgSize: maxPayload,
	}); err != nil {
		return fmt.Errorf("making the log of table %s: %w", name, err)
	}
	err = n.directory.change(ctx, func(s *state) error {
		if known = !s.create(name, p); known {
			return errSame
		}
		return nil
	})
	if known && err == nil { // after an error nobody knows whether this table is: sweep finds out
		n.deleteLog(ctx, p.Log)
	}
	return err
}

// Drop removes a table and its log. Where a try had no answer the table may be gone at the next, which then says that
// there is none, and another of its name is left alone.
func (n *Node) Drop(ctx context.Context, name string) error {
	var p placement // of the table, as first seen
	err := n.decide(ctx, name, func(ctx context.Context) error {
		return n.directory.change(ctx, func(s *state) error {
			now, known := s.Tables[name]
			if p.Log == "" {
				p = now
			}
			if !known || now.Log != p.Log {
				return wire.Errorf(wire.NotFound, "table %q: no node has one of that name", name)
			}
			delete(s.Tables, name)
			return nil
		})
	})
	if p.Log == "" || err != nil && !errors.Is(err, wire.ErrNotFound) {
		return err
	}
	if o := n.tables.find(name); o != nil && o.log == p.Log {
		n.tables.close([]*ownership{o}, errLost)
	}
	n.deleteLog(ctx, p.Log)
	return err
}

// decide tries what a client asks of the nodes together, and tries again while they do not answer: a connection between
// them may have been lost with the request, or they are choosing a leader.
func (n *Node) decide(ctx context.Context, table string, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	for {
		once, end := context.WithTimeout(limited, n.resend)
		err := try(once)
		end()
		if !unanswered(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(beatTime):
		case <-limited.Done():
			return wire.Errorf(wire.Interrupted, "table %q: too few nodes of the cluster answer: %s: whether the call was "+
				"carried out is not known: repeat it", table, err)
		}
	}
}

// unanswered reports whether an error says that there was no answer, or nobody who could give one yet.
func unanswered(err error) bool {
	var refused *jetstream.APIError
	return timedOut(err) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.As(err, &refused) && refused.ErrorCode == jetstream.ErrorCode(server.JSClusterNotAvailErr)
}

// deleteLog deletes a log that no table has. If the nodes that keep it do not answer, sweep does.
func (n *Node) deleteLog(ctx context.Context, log string) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := n.directory.js.DeleteStream(ctx, log); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		n.log.Info("a log that no table has is deleted later", "log", log, "error", err)
	}
}

// Locate returns where a table is, or the parts NAME.0, NAME.1 and so on of a table in parts, none if there is no such
// table. An address is "" while no node has the table. The answer is as of the last beat; where that knew no such
// table, or was too long ago, the others are asked.
func (n *Node) Locate(ctx context.Context, name string) ([]wire.Part, error) {
	s, _ := n.directory.last()
	if parts := n.partsOf(s, name); parts != nil && n.Valid() {
		return parts, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	s, err := n.directory.ask(ctx)
	if err != nil {
		return nil, wire.ElsewhereError("", "table %q: this node cannot ask the others where it is: %s: retry", name, err)
	}
	return n.partsOf(s, name), nil
}

// DiskFull returns an error with code wire.DiskFull while the disk of a node has no room for the copies of what would
// be inserted.
func (n *Node) DiskFull() error {
	s, _ := n.directory.last()
	node, why := s.full()
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
		if s.owned(at) && (at.Owner != n.options.Node || n.tables.serves(name, at.Log)) {
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

// Scrub reads every copy of the logs of this node's tables on the nodes that are up, at up to bytesPerSecond, and tells
// the others which are damaged.
func (n *Node) Scrub(ctx context.Context, table string, bytesPerSecond int64) ([]wire.ScrubbedCopy, error) {
	return n.tables.scrub(ctx, table, bytesPerSecond)
}

// View returns what the node knows of the others, as of its last beat.
func (n *Node) View() wire.ClusterView {
	s, _ := n.directory.last()
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
		for _, node := range p.avoided(n.options.Replicas) {
			v.Risks = append(v.Risks, fmt.Sprintf("node %s has a damaged copy of table %s, which is not read: if `reprise "+
				"table scrub` still says so, replace that node (cluster.replaces)", node, name))
		}
		if len(p.Damaged) >= n.options.Replicas {
			v.Risks = append(v.Risks, fmt.Sprintf("all copies of table %s are damaged: replace none of the nodes %s", name,
				strings.Join(p.Damaged, ", ")))
		}
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
	defer context.AfterFunc(ctx, func() { n.tables.closeAll(errLost) })()
	n.stopBeating()
	n.tables.closeAll(nil)
	n.lease.end()
	err := n.directory.change(ctx, func(s *state) error {
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
