package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/internal/limits"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/cluster"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/service/watch"
)

// minGarbage is how much garbage a small service may pile up.
const minGarbage = 16 << 20

// Server is a service with everything it listens on. Make it with [Start]; end it with [Server.Stop].
type Server struct {
	Addresses Addresses

	config       Config
	log          *slog.Logger
	policy       *access.Policy
	certificates *access.Certificates // nil: no TLS
	service      *service.Service
	pages        *watch.Watch
	node         *cluster.Node // nil: no cluster

	tcp, unix, http net.Listener // nil: not asked for
	flights         []*grpc.Server
	web             *http.Server

	ctx     context.Context // of the goroutines beside the listeners; ends after the service has stopped
	cancel  context.CancelFunc
	running sync.WaitGroup
	memory  int64      // the runtime's limit before Start
	failed  chan error // from a listener
}

// Addresses are where a server listens, as clients dial it. It is the content of the ready file.
type Addresses struct {
	GRPC string `json:"grpc,omitempty"`
	Unix string `json:"unix,omitempty"`
	HTTP string `json:"http,omitempty"`
	PID  int    `json:"pid"`
}

// Start binds all addresses, opens the journals and serves. The context bounds the start only. Version is the
// program's, shown on the dashboard.
func Start(ctx context.Context, config Config, version string, logger *slog.Logger) (*Server, error) {
	s := &Server{
		config: config.WithDefaults(), log: logger, failed: make(chan error, 3), Addresses: Addresses{PID: os.Getpid()},
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.open(ctx, version); err != nil {
		s.cancel()
		for _, l := range []net.Listener{s.tcp, s.unix, s.http} {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
		return nil, err
	}
	s.serve()
	return s, nil
}

// open prepares everything that can fail, in the order of what it costs to undo.
func (s *Server) open(ctx context.Context, version string) (err error) {
	if s.policy, err = access.NewPolicy(access.Options{Tokens: s.config.Tokens, Logger: s.log}); err != nil {
		return err
	}
	if s.config.TLS.On() {
		if s.certificates, err = access.NewCertificates(s.config.TLS, nil, s.log); err != nil {
			return err
		}
	}
	if err := s.bind(ctx); err != nil {
		return err
	}
	options := s.config.Options
	options.Logger = s.log
	options.Caller = func(ctx context.Context) string {
		caller, _ := access.From(ctx)
		return caller.Name
	}
	if s.policy.NeedsTokens() {
		options.Access = s.policy
	}
	if s.config.Cluster.On() {
		o := s.config.clusterOptions(nil)
		if o.Logger = s.log; s.certificates != nil {
			o.TLS = s.certificates.Mutual()
		}
		if s.node, err = cluster.New(o); err != nil {
			return err
		}
		options.Cluster = s.node
	}
	if s.service, err = service.New(options); err != nil {
		return err
	}
	// The collector works harder rather than let garbage take the process above its limit.
	if s.memory = debug.SetMemoryLimit(-1); s.memory == math.MaxInt64 { // no GOMEMLIMIT
		debug.SetMemoryLimit(s.service.Observe().MemoryBytes)
	}
	s.pages, err = watch.New(s.service.Observe, watch.Options{Policy: s.policy, Version: version, Logger: s.log,
		Rollouts: s.service.Rollouts})
	if err != nil || s.node == nil {
		return err
	}
	if s.tcp == nil {
		return fmt.Errorf("listen: %s: want an address with a cluster: other nodes send clients to it", s.config.Listen)
	}
	if err := s.node.Start(ctx, s.scheme()+s.tcp.Addr().String(), s.service); err != nil {
		_, stopped := s.service.Stop(ctx)
		return errors.Join(err, stopped)
	}
	s.running.Go(func() {
		if err := s.service.CreateInCluster(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Error("creating the tables of the configuration", "error", err)
		}
	})
	return nil
}

// scheme returns that of the service's TCP address.
func (s *Server) scheme() string {
	if s.certificates != nil {
		return "grpc+tls://"
	}
	return "grpc://"
}

// bind listens on every address of the configuration.
func (s *Server) bind(ctx context.Context) (err error) {
	for _, a := range []struct {
		key, address string
		to           *net.Listener
	}{{"listen", s.config.Listen, &s.tcp}, {"http", s.config.HTTP, &s.http}} {
		if a.address == Off {
			continue
		}
		if *a.to, err = access.Listen(ctx, a.address, s.certificates != nil, s.policy.NeedsTokens()); err != nil {
			return fmt.Errorf("%s: %w", a.key, err)
		}
	}
	if s.config.Unix != "" {
		s.unix, err = access.ListenUnix(s.config.Unix)
	}
	return err
}

// serve begins to serve on all listeners.
func (s *Server) serve() {
	httpScheme := "http://"
	if s.certificates != nil {
		httpScheme = "https://"
	}
	if s.tcp != nil {
		s.Addresses.GRPC = s.scheme() + s.tcp.Addr().String()
		s.serveFlight(s.tcp, s.certificates)
	}
	if s.unix != nil {
		path := s.unix.Addr().String()
		if absolute, err := filepath.Abs(path); err == nil { // for clients in another folder
			path = absolute
		}
		s.Addresses.Unix = "grpc+unix://" + path
		s.serveFlight(s.unix, nil)
	}
	s.running.Go(func() { s.pages.Run(s.ctx) })
	s.running.Go(func() { limits.BoundGarbage(s.ctx, minGarbage) })
	s.running.Go(s.reloadOnHangup)
	if s.http != nil {
		s.Addresses.HTTP = httpScheme + s.http.Addr().String()
		s.servePages()
	}
	s.log.Info("serving", "grpc", s.Addresses.GRPC, "unix", s.Addresses.Unix, "http", s.Addresses.HTTP,
		"data", s.config.Data, "tokens", s.policy.Tokens())
}

// serveFlight serves Flight on a listener, over TLS if there are certificates.
func (s *Server) serveFlight(l net.Listener, certificates *access.Certificates) {
	var creds credentials.TransportCredentials
	if certificates != nil {
		creds = credentials.NewTLS(certificates.Config("h2"))
	}
	options := append(s.service.GRPCOptions(creds, s.policy.Stream()),
		// Notice a client that vanished within a minute and a half, so that its leases go back.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 30 * time.Second}))
	server := grpc.NewServer(options...)
	s.service.Register(server)
	s.flights = append(s.flights, server)
	s.running.Go(func() {
		if err := server.Serve(s.service.Listener(l)); err != nil {
			s.failed <- fmt.Errorf("serving Flight on %s: %w", l.Addr(), err)
		}
	})
}

// maxPageConnections bounds what browsers and monitors can make the server hold.
const maxPageConnections = 256

// servePages serves the dashboard, metrics and health.
func (s *Server) servePages() {
	pages := netutil.LimitListener(s.http, maxPageConnections)
	s.web = &http.Server{
		Handler:           hosts.Only(s.pages, s.http.Addr(), s.pageHosts()),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(),
			slog.LevelDebug),
	}
	serve := func() error { return s.web.Serve(pages) }
	if s.certificates != nil {
		s.web.TLSConfig = s.certificates.Config("h2", "http/1.1")
		serve = func() error { return s.web.ServeTLS(pages, "", "") }
	}
	s.running.Go(func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serving pages on %s: %w", s.http.Addr(), err)
		}
	})
}

// pageHosts returns the names of the pages that the configuration gives: that at which they listen, and http_hosts.
func (s *Server) pageHosts() []string {
	host, _, _ := net.SplitHostPort(s.config.HTTP) // it was listened at
	return append([]string{host}, s.config.HTTPHosts...)
}

// reloadOnHangup reads tokens and certificates again at every SIGHUP.
func (s *Server) reloadOnHangup() {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-hangup:
		}
		err := s.policy.Reload()
		if s.certificates != nil {
			err = errors.Join(err, s.certificates.Reload())
		}
		if err != nil {
			s.log.Error("SIGHUP: keeping the old tokens and certificates", "error", err)
		} else {
			s.log.Info("SIGHUP: read tokens and certificates again", "tokens", s.policy.Tokens())
		}
	}
}

// Wait returns nil when the context ends, or the error of a listener that failed before.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// closeTimeout is how long clients have to read the last answers and close their idle streams once all calls have
// ended.
const closeTimeout = time.Second

// stopFlights closes the connections, and waits no longer than closeTimeout for calls that do not end.
func (s *Server) stopFlights() {
	var graceful sync.WaitGroup
	for _, f := range s.flights {
		graceful.Go(f.GracefulStop)
	}
	ended := make(chan struct{})
	go func() {
		graceful.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
		for _, f := range s.flights {
			f.Stop()
		}
	}
}

// Stop stops the server: it lets calls finish within the configured time, flushes the journals, closes the connections,
// and closes the pages last.
func (s *Server) Stop() (service.Summary, error) {
	bound, cancel := context.WithTimeout(s.ctx, s.config.StopTimeout)
	defer cancel()
	if s.node != nil { // the other nodes serve its tables while it stops
		s.node.Stop(bound)
	}
	summary, err := s.service.Stop(bound)
	s.stopFlights()
	if s.web != nil {
		if e := s.web.Shutdown(bound); e != nil {
			err = errors.Join(err, s.web.Close())
		}
	}
	s.cancel()
	s.running.Wait()
	debug.SetMemoryLimit(s.memory)
	return summary, err
}

// Describe writes where the server listens, who may connect, and what it keeps.
func (s *Server) Describe(w io.Writer) {
	at := s.Addresses.GRPC
	if s.Addresses.Unix != "" {
		at = strings.TrimPrefix(at+" and "+s.Addresses.Unix, " and ")
	}
	fmt.Fprintf(w, "serving %s\n", at)
	if s.Addresses.HTTP != "" {
		fmt.Fprintf(w, "dashboard %s/\n", s.Addresses.HTTP)
	}
	switch n := s.policy.Tokens(); {
	case n > 0:
		fmt.Fprintf(w, "%d tokens from %s\n", n, s.config.Tokens)
	case s.tcp != nil || s.http != nil:
		fmt.Fprintln(w, "no tokens: anyone who can log in to this machine can read and write")
	}
	if s.config.Data == "" {
		fmt.Fprintln(w, "in memory: everything is lost when this process ends; --data FOLDER keeps it")
	} else {
		fmt.Fprintf(w, "durable in %s, sync %s\n", s.config.Data, cmp.Or(s.config.Sync, journal.Always))
	}
	o := s.service.Observe()
	tables := o.Tables
	for _, part := range o.Memory {
		if part.Name == "tables" {
			fmt.Fprintf(w, "memory: at most %.1f GB, %.1f GB of it for tables\n", float64(o.MemoryBytes)/1e9,
				float64(part.Most)/1e9)
		}
	}
	if s.node != nil {
		fmt.Fprintf(w, "node %s of a cluster at %s; clients may ask any of its nodes\n", s.node.View().Node,
			strings.Join(s.config.Cluster.Peers, ", "))
		return
	}
	if len(tables) == 0 {
		fmt.Fprintln(w, "no tables yet: clients create them, or --table name=math,capacity=4096")
	}
	for _, t := range tables {
		fmt.Fprintf(w, "table %s: %d rollouts, %.1f MB, version %d, sampler %s\n",
			t.Name, t.Stats.Present, float64(t.Stats.PresentBytes)/1e6, t.Stats.Version, t.Definition.Sampler)
	}
}
