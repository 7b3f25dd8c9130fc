package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	dashboard "github.com/reprise-rl/reprise/service/watch"
)

// serving is a service with all that it listens on.
type serving struct {
	config       serveConfig
	log          *slog.Logger
	policy       *access.Policy
	certificates *access.Certificates // nil: no TLS
	service      *service.Service
	watch        *dashboard.Watch

	listeners []net.Listener // everything that is bound, until somebody serves it
	flights   []*grpc.Server
	web       *http.Server

	ctx     context.Context // of what runs beside; ends after the service has stopped
	cancel  context.CancelFunc
	running sync.WaitGroup
	failed  chan error // of a listener

	ready   ready
	stopped string // what the service did at the end, in words
}

// ready is what --ready-file gets: where the service listens.
type ready struct {
	GRPC string `json:"grpc,omitempty"` // as clients dial it
	Unix string `json:"unix,omitempty"` // as clients dial it
	HTTP string `json:"http,omitempty"`
	PID  int    `json:"pid"`
}

// newServing binds all addresses before it opens the journals: whoever may not listen changes nothing.
func newServing(ctx context.Context, config serveConfig, logger *slog.Logger) (*serving, error) {
	v := &serving{config: config, log: logger, failed: make(chan error, 3), ready: ready{PID: os.Getpid()}}
	v.ctx, v.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := v.prepare(ctx); err != nil {
		v.cancel()
		return nil, errors.Join(err, v.unbind())
	}
	return v, nil
}

func (v *serving) prepare(ctx context.Context) (err error) {
	if v.policy, err = access.NewPolicy(access.Options{Tokens: v.config.Tokens, Logger: v.log}); err != nil {
		return err
	}
	if v.config.TLS.On() {
		if v.certificates, err = access.NewCertificates(v.config.TLS, nil, v.log); err != nil {
			return err
		}
	}
	if err := v.bind(ctx); err != nil {
		return err
	}
	options := v.config.Options
	options.Access, options.Caller, options.Logger = accessOf(v.policy), callerName, v.log
	if v.service, err = service.New(options); err != nil {
		return err
	}
	v.watch, err = dashboard.New(v.service.Observe, dashboard.Options{Policy: v.policy, Version: version(), Logger: v.log})
	return err
}

// bind listens on everything that was asked for.
func (v *serving) bind(ctx context.Context) error {
	for _, at := range []struct{ key, address string }{{"listen", v.config.Listen}, {"http", v.config.HTTP}} {
		if at.address == listenNowhere {
			v.listeners = append(v.listeners, nil)
			continue
		}
		l, err := access.Listen(ctx, at.address, v.certificates != nil, v.policy.Asks())
		if err != nil {
			return fmt.Errorf("%s: %w", at.key, err)
		}
		v.listeners = append(v.listeners, l)
	}
	if v.config.Unix == "" {
		v.listeners = append(v.listeners, nil)
		return nil
	}
	l, err := access.ListenUnix(v.config.Unix)
	if err != nil {
		return err
	}
	v.listeners = append(v.listeners, l)
	return nil
}

// unbind closes what nobody serves.
func (v *serving) unbind() error {
	var problems []error
	for _, l := range v.listeners {
		if l != nil {
			problems = append(problems, l.Close())
		}
	}
	v.listeners = nil
	return errors.Join(problems...)
}

// begin serves on all listeners.
func (v *serving) begin() {
	flightAt, webAt, unixAt := v.listeners[0], v.listeners[1], v.listeners[2]
	v.listeners = nil
	scheme, pages := "grpc://", "http://"
	if v.certificates != nil {
		scheme, pages = "grpc+tls://", "https://"
	}
	if flightAt != nil {
		v.ready.GRPC = scheme + flightAt.Addr().String()
		v.serveFlight(flightAt, v.certificates)
	}
	if unixAt != nil {
		v.ready.Unix = "grpc+unix://" + absolute(unixAt.Addr().String())
		v.serveFlight(unixAt, nil)
	}
	v.running.Go(func() { v.watch.Run(v.ctx) })
	v.running.Go(v.reload)
	if webAt != nil {
		v.ready.HTTP = pages + webAt.Addr().String()
		v.serveWeb(webAt)
	}
}

// absolute is a path as a client in another folder needs it.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// serveFlight serves Flight on a listener, over TLS if there are certificates.
func (v *serving) serveFlight(l net.Listener, certificates *access.Certificates) {
	options := append(v.service.GRPCOptions(),
		grpc.ChainUnaryInterceptor(v.policy.Unary()), grpc.ChainStreamInterceptor(v.policy.Stream()),
		// A peer that vanished without a word is noticed within a minute and a half, and its leases go back.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 30 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))
	if certificates != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(certificates.Config("h2"))))
	}
	server := grpc.NewServer(options...)
	v.service.Register(server)
	v.flights = append(v.flights, server)
	v.running.Go(func() {
		if err := server.Serve(v.service.Listener(l)); err != nil {
			v.failed <- fmt.Errorf("serving Flight on %s: %w", l.Addr(), err)
		}
	})
}

// serveWeb serves the dashboard, metrics and health.
func (v *serving) serveWeb(l net.Listener) {
	v.web = &http.Server{
		Handler: v.watch, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(v.log.Handler(), slog.LevelDebug),
	}
	serve := v.web.Serve
	if v.certificates != nil {
		v.web.TLSConfig = v.certificates.Config("h2", "http/1.1")
		serve = func(l net.Listener) error { return v.web.ServeTLS(l, "", "") }
	}
	v.running.Go(func() {
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			v.failed <- fmt.Errorf("serving pages on %s: %w", l.Addr(), err)
		}
	})
}

// reload reads tokens and certificates anew at every SIGHUP.
func (v *serving) reload() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-asked:
		}
		err := v.policy.Reload()
		if v.certificates != nil {
			err = errors.Join(err, v.certificates.Reload())
		}
		if err != nil {
			v.log.Error("SIGHUP: going on with the tokens and certificates of before", "error", err)
		} else {
			v.log.Info("SIGHUP: tokens and certificates were read anew", "tokens", v.policy.Tokens())
		}
	}
}

// wait returns when the context ends, or with an error when a listener does.
func (v *serving) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-v.failed:
		return err
	}
}

// end stops the service: calls under way have the time of the configuration, journals are flushed, and only then do the pages go.
func (v *serving) end() error {
	bound, cancel := context.WithTimeout(v.ctx, v.config.StopTimeout)
	defer cancel()
	summary, err := v.service.Stop(bound)
	v.stopped = summary.String()
	v.hangUp()
	if v.web != nil {
		if e := v.web.Shutdown(bound); e != nil {
			err = errors.Join(err, v.web.Close())
		}
	}
	v.cancel()
	v.running.Wait()
	return errors.Join(err, v.unbind())
}

// farewell is how long clients have, once all requests are answered, to take the answers and close their idle streams.
const farewell = time.Second

// hangUp ends the connections.
func (v *serving) hangUp() {
	late := time.AfterFunc(farewell, func() {
		for _, s := range v.flights {
			s.Stop()
		}
	})
	defer late.Stop()
	for _, s := range v.flights {
		s.GracefulStop()
	}
}

// describe says where the service listens, who may come, and what it keeps.
func (v *serving) describe(w io.Writer) {
	var at []string
	for _, a := range []string{v.ready.GRPC, v.ready.Unix} {
		if a != "" {
			at = append(at, a)
		}
	}
	fmt.Fprintf(w, "serving %s\n", strings.Join(at, " and "))
	if v.ready.HTTP != "" {
		fmt.Fprintf(w, "dashboard %s/\n", v.ready.HTTP)
	}
	switch n := v.policy.Tokens(); {
	case n > 0:
		fmt.Fprintf(w, "%d tokens from %s\n", n, v.config.Tokens)
	case v.config.Listen != listenNowhere || v.ready.HTTP != "":
		fmt.Fprintln(w, "no tokens: whoever can log in to this machine can read and write")
	}
	if v.config.Data == "" {
		fmt.Fprintln(w, "in memory: nothing survives the end of this process; --data FOLDER keeps it")
	} else {
		fmt.Fprintf(w, "durable in %s, sync %s\n", v.config.Data, orAlways(string(v.config.Sync)))
	}
	v.describeTables(w)
	v.log.Info("serving", "grpc", v.ready.GRPC, "unix", v.ready.Unix, "http", v.ready.HTTP, "data", v.config.Data, "tokens", v.policy.Tokens())
}

func orAlways(sync string) string {
	if sync == "" {
		return "always"
	}
	return sync
}

func (v *serving) describeTables(w io.Writer) {
	tables := v.service.Observe().Tables
	if len(tables) == 0 {
		fmt.Fprintln(w, "no tables yet: clients make them, or --table name=math,capacity=4096")
	}
	for _, t := range tables {
		fmt.Fprintf(w, "table %s: %d rollouts, %.1f MB, version %d, sampler %s\n", t.Name, t.Stats.Present, float64(t.Stats.PresentBytes)/1e6, t.Stats.Version, t.Definition.Sampler)
	}
}

// writeReady writes the addresses, whole or not at all.
func (v *serving) writeReady(path string) error {
	text, err := json.Marshal(v.ready)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return os.Rename(path+".new", path)
}
