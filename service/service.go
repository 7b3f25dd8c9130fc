package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Service is tables on the network. Make it with [New].
//
// Lock order: admin, then mu or a table's.
type Service struct {
	flight.BaseFlightServer
	options Options
	log     *slog.Logger
	started time.Time

	admin  sync.Mutex // held while tables are made, dropped, saved or replaced, which takes its time
	mu     sync.RWMutex
	tables map[string]*table

	incoming, outgoing *budget
	pool               *wire.Pool
	gatherer           wire.Gatherer
	connections        *connections
	slowReaders        atomic.Uint64
	tally              tally

	closing chan struct{} // closed when Stop begins
	work    work
	stop    sync.Once
	summary Summary
	stopErr error
}

// New returns a service with the tables of Options.Data and Options.Tables, or every problem of the options at once. What
// recovery found is logged.
func New(o Options) (*Service, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Service{
		options: o, log: o.Logger, started: o.Clock(), tables: make(map[string]*table), pool: new(wire.Pool),
		incoming: newBudget(o.MaxInFlightBytes), outgoing: newBudget(o.MaxOutgoingBytes), connections: newConnections(o.Clock),
		closing: make(chan struct{}),
	}
	err := s.recover()
	if err == nil {
		err = s.createAll()
	}
	if err != nil {
		return nil, errors.Join(err, s.closeJournals())
	}
	return s, nil
}

// recover opens every journal of the data folder.
func (s *Service) recover() error {
	if s.options.Data == "" {
		return nil
	}
	if err := os.MkdirAll(s.tablesFolder(), 0o700); err != nil {
		return fmt.Errorf("data: %s: %w: want a folder that may be written to", s.options.Data, err)
	}
	files, err := os.ReadDir(s.tablesFolder())
	if err != nil {
		return fmt.Errorf("looking for journals: %w", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), journalSuffix) {
			continue
		}
		path := filepath.Join(s.tablesFolder(), f.Name())
		t, err := s.reopen(path)
		if err != nil {
			return fmt.Errorf("table %s: %w", strings.TrimSuffix(f.Name(), journalSuffix), err)
		}
		s.tables[t.Name] = t
	}
	return nil
}

// createAll makes the tables that were asked for and are not there yet.
func (s *Service) createAll() error {
	for _, w := range s.options.Tables {
		if _, err := s.create(w); err != nil {
			return fmt.Errorf("making table %q: %w", w.Name, err)
		}
	}
	return nil
}

// Register puts the service on a grpc server, which was made with [Service.GRPCOptions].
func (s *Service) Register(g *grpc.Server) { flight.RegisterFlightServiceServer(g, s) }

// Sizes that let one connection move gigabytes per second over loopback, and stay bounded for each that does not.
const (
	streamWindow = 32 << 20
	connWindow   = 64 << 20
	socketBuffer = 256 << 10
	maxHeaders   = 64 << 10
)

// GRPCOptions are what the grpc server must be made with, beside interceptors and credentials.
func (s *Service) GRPCOptions() []grpc.ServerOption {
	limit := int(s.options.MaxMessageBytes)
	return []grpc.ServerOption{
		flightdata.ServerOption(),
		grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(limit + maxHeaders), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(s.options.MaxStreams),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(socketBuffer), grpc.WriteBufferSize(socketBuffer),
	}
}

// Listener watches the connections of a listener: they are listed by [Service.Observe], and closed when their reader takes
// nothing for Options.SendTimeout. Without it slow readers hold what was packed for them until they leave.
func (s *Service) Listener(l net.Listener) net.Listener { return &listener{l, s.connections} }

// table returns a table by name.
func (s *Service) table(name string) (*table, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tables[name]; t != nil {
		return t, nil
	}
	return nil, notFound(name)
}

// list returns all tables in order of names.
func (s *Service) list() []*table {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.tables), func(a, b *table) int { return strings.Compare(a.Name, b.Name) })
}

// allowed returns a table that the caller may read, or write to.
func (s *Service) allowed(ctx context.Context, name string, write bool) (*table, error) {
	if name == "" {
		return nil, wire.Errorf(wire.Invalid, "table: empty: want the name of a table")
	}
	if err := s.authorize(ctx, name, write); err != nil {
		return nil, err
	}
	return s.table(name)
}

func (s *Service) authorize(ctx context.Context, name string, write bool) error {
	if s.options.Access == nil {
		return nil
	}
	return s.options.Access.Authorize(ctx, name, write)
}

func (s *Service) tablesFolder() string { return filepath.Join(s.options.Data, "tables") }

const journalSuffix = ".journal"

func (s *Service) journalPath(table string) string {
	return filepath.Join(s.tablesFolder(), table+journalSuffix)
}

func (s *Service) closeJournals() error {
	var problems []error
	for _, t := range s.list() {
		if t.journal != nil {
			problems = append(problems, t.journal.Close())
		}
	}
	return errors.Join(problems...)
}
