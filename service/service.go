// Package service puts tables of rollouts on the network: Arrow Flight in front, replay.Table behind, a journal under
// each.
//
// A [Service] holds many tables by name. [Service.Register] and [Service.GRPCOptions] put it on a grpc server, and
// [Service.Listener] watches the connections. Programs insert with DoPut, sample with DoGet or DoExchange, do
// everything else with DoAction (package wire has the requests and answers), and look around with ListFlights,
// GetFlightInfo, GetSchema and ListActions.
//
// # Waiting
//
// An insertion waits for room in a queue and for the table's limiter; a sample waits for rollouts, for MinSize and for
// the limiter; a start waits for the gate. Each waits at most as long as its request or the call's deadline says, and
// leaves when the caller leaves. They are served in order of arrival: insertions, starts, and the samples of each shard
// have a line each, and a change wakes the first of a line (type lines has the rules). Nothing polls.
//
// # Leases
//
// The service leases each batch to the stream or DoGet that it goes to. The stream's next request acknowledges it, and
// so does a DoGet once it has written its data: then its draws count as uses. Otherwise the batch goes back: when the
// caller disconnects, when a reader takes nothing for Options.SendTimeout, or after the table's lease timeout
// (invariant 3).
//
// # Durability
//
// With Options.Data every table has a journal there. An insertion is answered once the journal has committed it
// (invariant 6), and what a queue gave out is on disk before the next batch goes out. Checkpoints are files of their
// own.
//
// What it leaves to others: package access decides who may do what, package watch shows an [Observation] over HTTP, and
// the command `reprise serve` ties them together.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/limits"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/service/journal/segments"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Defaults of Options where the memory has room for them.
const (
	defaultMaxMessageBytes  = 256 << 20
	defaultMaxInFlightBytes = 1 << 30
	defaultMaxOutgoingBytes = 1 << 30
	defaultMaxConnections   = 1024
)

// Options configure a service. The zero value is a service without tables that keeps nothing.
type Options struct {
	// folder of journals and checkpoints [none: nothing is durable]
	Data string `yaml:"data" json:"data"`
	// what an acknowledged insertion survives
	Sync journal.Sync `yaml:"sync" json:"sync" default:"always"`
	// between syncs with sync interval [1s]
	Interval time.Duration `yaml:"interval" json:"interval" range:"[0, inf)"`

	// Bounds of memory, in bytes. What does not fit waits or is refused; a caller or a table gets a part only.

	// bytes that the service may hold for its clients, tables included
	// [3/4 of the memory that the process may use]
	MemoryBytes int64 `yaml:"memory_bytes" json:"memory_bytes"`
	// bytes of one message, also after decompression [256 MiB, at most 1/4 of max_in_flight_bytes]
	MaxMessageBytes int64 `yaml:"max_message_bytes" json:"max_message_bytes" range:"[1024, 2147483647]"`
	// bytes of insertions in memory; more wait [1 GiB, at most 1/8 of memory_bytes]
	MaxInFlightBytes int64 `yaml:"max_in_flight_bytes" json:"max_in_flight_bytes"`
	// bytes of packed batches not yet written out; more wait [1 GiB, at most 1/8 of memory_bytes]
	MaxOutgoingBytes int64 `yaml:"max_outgoing_bytes" json:"max_outgoing_bytes" range:"[1048576, inf)"`

	// disconnect a reader that takes nothing for this long
	SendTimeout time.Duration `yaml:"send_timeout" json:"send_timeout" default:"1m" range:"(0, inf)"`
	// calls at once on one connection
	MaxStreams uint32 `yaml:"max_streams" json:"max_streams" default:"1024"`
	// connections at once; unused and idle ones make room [1024, at most 1/16 of memory_bytes at 768 KiB each]
	MaxConnections int `yaml:"max_connections" json:"max_connections" range:"[1, inf)"`
	// requests that may wait for a table
	MaxWaiting int `yaml:"max_waiting" json:"max_waiting" default:"16384" range:"[1, inf)"`
	// tables that clients may create
	MaxTables int          `yaml:"max_tables" json:"max_tables" default:"1000" range:"[1, inf)"`
	Tables    []wire.Table `yaml:"tables" json:"tables"` // created at the start unless they exist [none]

	// Quotas of one table's checkpoints.

	// checkpoints of one table
	MaxCheckpoints int `yaml:"max_checkpoints" json:"max_checkpoints" default:"8" range:"[1, inf)"`
	// bytes of one table's checkpoints
	MaxCheckpointBytes int64 `yaml:"max_checkpoint_bytes" json:"max_checkpoint_bytes" default:"no limit" range:"[0, inf)"`

	// bytes of the disk kept for acknowledgements and draws while it is full
	DiskReserveBytes int64 `yaml:"disk_reserve_bytes" json:"disk_reserve_bytes" default:"67108864" range:"[1, inf)"`

	// between two readings of each journal that check all of it, in the background at 64 MiB/s
	ScrubInterval time.Duration `yaml:"scrub_interval" json:"scrub_interval" default:"24h" range:"(0, inf)"`

	Access  Access  `yaml:"-" json:"-"` // nil: everybody may do everything
	Cluster Cluster `yaml:"-" json:"-"` // nil: this service has all its tables, and knows no other
	// name of a call's caller, to whom leases belong; nil: "" for all
	Caller func(ctx context.Context) string `yaml:"-" json:"-"`
	// makes the texts of rollouts that came without one, for people who look at them; nil: none
	Decoder browse.Decoder   `yaml:"-" json:"-"`
	Logger  *slog.Logger     `yaml:"-" json:"-"` // nil: slog.Default()
	Clock   func() time.Time `yaml:"-" json:"-"` // of leases and grants; nil: time.Now
	Disk    disk.Files       `yaml:"-" json:"-"` // of journals; nil: the operating system's
}

// Access decides who may do what. It may be called concurrently.
type Access interface {
	// Authorize returns an error with code wire.Unauthenticated or wire.Denied unless the caller of a context may read
	// a table, or write to it. Reading is sampling with its settlement, export, listing and statistics; writing is
	// everything else.
	Authorize(ctx context.Context, table string, right wire.Right) error
}

func (o Options) withDefaults() Options {
	option.Fill(&o)
	if o.MemoryBytes == 0 {
		o.MemoryBytes = memoryShare(limits.Memory())
	}
	o.MaxInFlightBytes = cmp.Or(o.MaxInFlightBytes, max(min(defaultMaxInFlightBytes, o.MemoryBytes/inFlightShare),
		o.MaxMessageBytes))
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, min(defaultMaxMessageBytes, o.MaxInFlightBytes/4))
	o.MaxOutgoingBytes = cmp.Or(o.MaxOutgoingBytes, min(defaultMaxOutgoingBytes, o.MemoryBytes/outgoingShare))
	o.MaxConnections = cmp.Or(o.MaxConnections,
		int(min(defaultMaxConnections, max(o.MemoryBytes/connectionShare/connectionOverhead, 4))))
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Disk == nil {
		o.Disk = disk.Machine()
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

// Validate returns every problem at once, joined; nil if there is none.
func (o Options) Validate() error {
	var p option.Problems
	o.Check(&p)
	return p.Err()
}

// Check adds the problems of the options to those of reading them, from which some may follow.
func (o Options) Check(p *option.Problems) {
	o = o.withDefaults()
	p.CheckFields(o, nil)
	p.Check(o.MemoryBytes >= minMemory, "memory_bytes", o.MemoryBytes, "%d or more", minMemory)
	p.CheckWith("max_in_flight_bytes max_outgoing_bytes max_connections", o.tableBytes() >= o.MemoryBytes/minForTables,
		"memory_bytes", o.MemoryBytes, "%d more, since less than 1/%d is left for tables; or lower "+
			"max_in_flight_bytes (%d, which counts twice), max_outgoing_bytes (%d) or max_connections (%d, of %d "+
			"bytes each)",
		o.MemoryBytes/minForTables-o.tableBytes(), minForTables, o.MaxInFlightBytes, o.MaxOutgoingBytes,
		o.MaxConnections, connectionOverhead)
	p.CheckWith("max_message_bytes", o.MaxInFlightBytes >= o.MaxMessageBytes, "max_in_flight_bytes", o.MaxInFlightBytes,
		"max_message_bytes (%d) or more", o.MaxMessageBytes)
	names := make(map[string]bool)
	for i, d := range o.Tables {
		at := fmt.Sprintf("tables[%d]", i)
		p.Check(d.Name == "" || !names[d.Name], at+".name", d.Name, "a name that no other table has")
		names[d.Name] = true
		p.In(at, func(p *option.Problems) { checkNew(p, d) })
	}
}

// Service is tables on the network. Make it with [New].
//
// Lock order: admin, then mu or a table's.
type Service struct {
	flight.BaseFlightServer
	options Options
	log     *slog.Logger
	started time.Time

	lock   *os.File   // of the data folder; nil: none
	space  *space     // of the data folder; nil: none
	admin  sync.Mutex // held while tables are created, dropped, saved or restored, which takes time
	mu     sync.RWMutex
	tables map[string]*table

	incoming, waiting, outgoing, leased, calls *pool // parts of the memory

	tableMemory         holdings
	pool                *wire.Pool
	gatherer            wire.Gatherer
	connections         *connections
	slowReaders, panics atomic.Uint64
	counts              callCounts

	closing   chan struct{}   // closed when Stop begins
	cut       context.Context // ends when the time of Stop is up, and with it the context of every call
	cutOff    context.CancelFunc
	requests  requests
	scrubbing sync.WaitGroup
	scrubs    chan struct{} // holds one while a journal is read because somebody asked
	stop      sync.Once
	summary   Summary
	stopErr   error
}

// New returns a service with the tables of Options.Data and Options.Tables, or every problem of the options at once. It
// logs what recovery found.
func New(o Options) (*Service, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Service{
		options: o, log: o.Logger, started: o.Clock(), tables: make(map[string]*table), pool: new(wire.Pool),
		incoming: newPool(o.MaxInFlightBytes, o.MaxMessageBytes),
		outgoing: newPool(o.MaxOutgoingBytes, o.MaxMessageBytes),
		waiting:  newPool(o.MaxInFlightBytes/2, o.MaxMessageBytes), leased: newPool(o.smallBytes(), 0),
		calls: newPool(o.smallBytes(), 0), tableMemory: holdings{most: o.tableBytes()}, connections: newConnections(o),
		closing: make(chan struct{}),
		scrubs:  make(chan struct{}, 1),
	}
	s.tableMemory.freed = s.wakeInsertions
	s.cut, s.cutOff = context.WithCancel(context.Background())
	err := s.openJournals()
	if err == nil {
		err = s.createTables()
	}
	if err != nil {
		return nil, errors.Join(err, s.closeJournals())
	}
	if o.Data != "" {
		s.scrubbing.Go(func() { s.scrubJournals(o.Cluster != nil) })
	}
	return s, nil
}

const journalSuffix = ".journal"

func (s *Service) tablesFolder() string { return filepath.Join(s.options.Data, "tables") }

func (s *Service) journalPath(table string) string {
	return filepath.Join(s.tablesFolder(), table+journalSuffix)
}

// openJournals reopens the tables of the data folder.
func (s *Service) openJournals() error {
	if s.options.Data == "" {
		return nil
	}
	err := disk.Machine().MakeFolder(s.options.Data)
	if err == nil {
		err = s.options.Disk.MakeFolder(s.tablesFolder())
	}
	if err != nil {
		return fmt.Errorf("data: %s: %w: want a folder that may be written to", s.options.Data, err)
	}
	// A service that is being replaced has as long to end as its journals.
	if s.lock, err = disk.LockFile(filepath.Join(s.options.Data, "lock"), journal.DefaultLockTimeout); err != nil {
		return fmt.Errorf("data: %s: %w: stop that service, or give this one another folder", s.options.Data, err)
	}
	low := int64(0)
	if s.options.Cluster != nil {
		low = 2 * (s.options.DiskReserveBytes + s.options.MaxMessageBytes) // for what is under way
	}
	if s.space, err = openSpace(s.options.Data, s.options.DiskReserveBytes, low, s.log); err != nil {
		return fmt.Errorf("data: %s: taking disk_reserve_bytes, %d: %w", s.options.Data, s.options.DiskReserveBytes,
			err)
	}
	files, err := s.options.Disk.List(s.tablesFolder())
	if err != nil {
		return fmt.Errorf("looking for journals: %w", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, journalSuffix+segments.Unfinished) {
			if err := disk.RemoveAll(s.options.Disk, filepath.Join(s.tablesFolder(), f)); err != nil {
				return err
			}
		}
		name, found := strings.CutSuffix(f, journalSuffix)
		if !found {
			continue
		}
		if s.options.Cluster != nil {
			return fmt.Errorf("data: %s: holds table %s of a service without a cluster: want a folder without tables; "+
				"reprise export and import bring them over", s.options.Data, name)
		}
		t, err := s.reopen(name)
		if err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
		s.tables[name] = t
	}
	return nil
}

// createTables creates the tables of the options that do not exist yet.
func (s *Service) createTables() error {
	if s.options.Cluster != nil {
		return nil
	}
	for _, w := range s.options.Tables {
		if _, err := s.create(w, math.MaxInt); err != nil {
			return fmt.Errorf("creating table %q: %w", w.Name, err)
		}
	}
	return nil
}

// closeJournals closes the journals, and then lets go of the data folder.
func (s *Service) closeJournals() error {
	var problems []error
	for _, t := range s.list() {
		if t.journal != nil {
			problems = append(problems, t.journal.Close())
		}
	}
	if s.lock != nil {
		problems = append(problems, s.lock.Close())
	}
	return errors.Join(problems...)
}

// Register puts the service on a grpc server that was made with [Service.GRPCOptions].
func (s *Service) Register(g *grpc.Server) { g.RegisterService(flightService(), s) }

// Sizes that let one connection move gigabytes per second over loopback, while the memory of each stays bounded.
const (
	streamWindow = 32 << 20
	connWindow   = 64 << 20
	socketBuffer = 256 << 10
	maxHeaders   = 16 << 10 // of a call
)

// GRPCOptions returns what the grpc server must be made with. Credentials are nil without TLS. Authenticate runs before
// the message of any call is read.
func (s *Service) GRPCOptions(
	creds credentials.TransportCredentials, authenticate ...grpc.StreamServerInterceptor,
) []grpc.ServerOption {
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	limit := int(s.options.MaxMessageBytes)
	return []grpc.ServerOption{
		flightdata.ServerOption(), grpc.Creds(handshake{creds}),
		grpc.ChainStreamInterceptor(s.guard, s.countCall), grpc.ChainStreamInterceptor(authenticate...),
		grpc.ChainStreamInterceptor(s.admitCall), grpc.UnknownServiceHandler(unknownMethod),
		grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(limit + 64<<10), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(s.options.MaxStreams),
		// The Python client pings every 3 s while it waits for an answer.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(socketBuffer), grpc.WriteBufferSize(socketBuffer),
	}
}

// Listener watches the connections of a listener: [Service.Observe] lists them, and one whose reader takes nothing for
// Options.SendTimeout is closed. Without it slow readers hold the memory packed for them until they leave.
func (s *Service) Listener(l net.Listener) net.Listener { return &listener{l, s.connections} }

// table returns a table by name.
func (s *Service) table(name string) (*table, error) {
	if t := s.served(name); t != nil {
		return t, s.checkLease()
	}
	return nil, s.elsewhere(name)
}

// list returns all tables in order of names.
func (s *Service) list() []*table {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.tables), func(a, b *table) int { return strings.Compare(a.Name, b.Name) })
}

// allowed returns a table that the caller may read, or write to.
func (s *Service) allowed(ctx context.Context, name string, right wire.Right) (*table, error) {
	if name == "" {
		return nil, wire.Errorf(wire.Invalid, "table: empty: want the name of a table")
	}
	if err := s.authorize(ctx, name, right); err != nil {
		return nil, err
	}
	return s.table(name)
}

func (s *Service) authorize(ctx context.Context, name string, right wire.Right) error {
	if s.options.Access == nil {
		return nil
	}
	return s.options.Access.Authorize(ctx, name, right)
}

// Summary is the outcome of a stop.
type Summary struct {
	Tables   int
	Durable  int // tables with a journal, which was flushed and closed
	Rollouts int // in all tables
	Bytes    int64
	Drained  int // requests in flight that finished
	Left     int // requests still in flight when time was up
	Released int // leased batches that went back
	Took     time.Duration
}

// String returns the summary as a sentence.
func (s Summary) String() string {
	text := fmt.Sprintf("stopped in %v: %s finished", s.Took.Round(time.Millisecond),
		words.Plural(s.Drained, "request"))
	if s.Left > 0 {
		text += fmt.Sprintf(", %d cut off when time was up", s.Left)
	}
	text += fmt.Sprintf("; %s released", words.Plural(s.Released, "leased batch", "leased batches"))
	if s.Tables == 0 {
		return text + "; there were no tables"
	}
	text += fmt.Sprintf("; %s with %d rollouts of %.1f MB", words.Plural(s.Tables, "table"), s.Rollouts,
		float64(s.Bytes)/1e6)
	switch s.Durable {
	case s.Tables:
		return text + " saved to disk"
	case 0:
		return text + " were in memory only and are gone"
	}
	return text + fmt.Sprintf(": %d saved to disk, %d in memory only and gone", s.Durable, s.Tables-s.Durable)
}

// Stop ends the service. Waiting requests get an error, those in flight may finish until the context ends, when theirs
// end too, leased batches go back, and the journals are flushed and closed. Streams that stay open get errors with code
// wire.Closing; the caller stops the grpc server after this. Later calls return the same.
func (s *Service) Stop(ctx context.Context) (Summary, error) {
	s.stop.Do(func() { s.summary, s.stopErr = s.shutDown(ctx) })
	return s.summary, s.stopErr
}

// cutTime is how long requests whose time is up have to notice: what they hold is released and saved after them.
const cutTime = time.Second

func (s *Service) shutDown(ctx context.Context) (sum Summary, err error) {
	began := time.Now()
	inFlight, idle := s.requests.close() // counts the waiting requests too, before they get their error
	close(s.closing)
	select {
	case <-idle:
	case <-ctx.Done():
		sum.Left = s.requests.inFlight()
		err = fmt.Errorf("%s did not finish: %w", words.Plural(sum.Left, "request"), ctx.Err())
		s.cutOff()
		select {
		case <-idle:
		case <-time.After(cutTime):
		}
	}
	s.cutOff()
	sum.Drained = inFlight - sum.Left
	for _, t := range s.list() {
		for _, id := range t.leases.endAll() {
			if t.rollouts.Release(context.Background(), id) == nil { // the others had expired
				sum.Released++
			}
		}
		f := t.rollouts.ServiceView().Flow()
		sum.Tables++
		sum.Rollouts += f.Present
		sum.Bytes += f.Bytes
		if t.journal != nil {
			sum.Durable++
		}
	}
	s.scrubbing.Wait()
	err = errors.Join(err, s.closeJournals())
	sum.Took = time.Since(began)
	s.log.Info(sum.String())
	return sum, err
}

func (s *Service) stopping() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

func errClosing() error {
	return wire.Errorf(wire.Closing, "the service is stopping: connect again once it is back")
}

func errInterrupted() error {
	return wire.Errorf(wire.Interrupted, "the service stopped during the call: repeat it once the service is back, "+
		"under its batch_id or request_id if it has one")
}

// requests counts the requests in flight, which a stop waits for. A stream that waits for its caller has none.
type requests struct {
	mu     sync.Mutex
	closed bool
	n      int
	idle   chan struct{} // closed when no request is left and none may begin
}

// begin counts a request, unless the service is stopping.
func (r *requests) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosing()
	}
	r.n++
	return nil
}

func (r *requests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n--
	if r.closed && r.n == 0 {
		close(r.idle)
	}
}

// close lets no more requests begin. It returns how many are in flight and a channel that closes once none is.
func (r *requests) close() (inFlight int, idle <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.idle = make(chan struct{})
	if r.n == 0 {
		close(r.idle)
	}
	return r.n, r.idle
}

func (r *requests) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}
