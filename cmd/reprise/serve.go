package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
)

// serveCommand puts tables on the network.
type serveCommand struct {
	Config      file          `short:"c" help:"YAML file; flags override it."`
	Listen      address       `help:"Where Arrow Flight is served, or off (127.0.0.1:7447); beyond loopback it takes TLS and tokens."`
	Unix        file          `help:"Serve Arrow Flight on this unix socket too, open to its owner alone."`
	HTTP        address       `name:"http" help:"Where the dashboard, /metrics and /healthz are served, or off (127.0.0.1:7448)."`
	Data        dir           `help:"Folder of journals and checkpoints; without it tables are in memory alone."`
	Sync        text          `help:"What an acknowledged insert survives: always, the default (power loss), interval (all but the last second), off (kill -9)."`
	Interval    time.Duration `help:"Between two transactions with --sync interval (1s)."`
	Table       []string      `sep:"none" help:"A table to begin with, by the keys of the configuration file: name=math,capacity=4096,sampler=prioritized; may be repeated."`
	Tokens      file          `help:"YAML file of tokens and their rights; everyone may do everything without it."`
	Certificate file          `name:"tls-certificate" help:"PEM file of the service's certificate and its chain."`
	Key         file          `name:"tls-key" help:"PEM file of the certificate's key."`
	ClientCA    file          `name:"tls-client-ca" help:"PEM file of who signs the clients' certificates."`
	Clients     text          `name:"tls-clients" help:"Whether clients must show a certificate: required, the default, or optional."`
	MaxMessage  byteSize      `help:"The largest message that is accepted (256MiB)."`
	StopTimeout time.Duration `help:"How long what is under way may take when the service is to stop (30s); a second signal kills it."`
	JSON        bool          `name:"json" help:"Log as JSON lines, and print nothing else."`
	ReadyFile   file          `help:"Write the addresses that are listened on into this file, as JSON, once they are."`
	CPUProfile  file          `name:"cpuprofile" hidden:"" help:"Write a profile of the service's work here."`
}

// Run serves until the context ends.
func (c *serveCommand) Run(ctx context.Context) error {
	config, err := c.load()
	if err != nil {
		return fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	if c.CPUProfile != "" {
		stop, err := profile(string(c.CPUProfile))
		if err != nil {
			return err
		}
		defer stop()
	}
	say := io.Writer(os.Stdout)
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.JSON {
		say, logger = io.Discard, slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	v, err := newServing(ctx, config, logger)
	if err != nil {
		return err
	}
	v.begin()
	if c.ReadyFile != "" {
		if err := v.writeReady(string(c.ReadyFile)); err != nil {
			return errors.Join(err, v.end())
		}
		defer os.Remove(string(c.ReadyFile))
	}
	v.describe(say)
	failed := v.wait(ctx)
	if failed == nil {
		fmt.Fprintf(say, "stopping: what is under way has %v; a second signal kills\n", config.StopTimeout)
	}
	err = errors.Join(failed, v.end())
	fmt.Fprintln(say, v.stopped)
	return err
}

// load reads the configuration file, and lets the flags override it.
func (c *serveCommand) load() (serveConfig, error) {
	config, err := readServeConfig(string(c.Config))
	if err != nil {
		return config, err
	}
	override(&config.Listen, string(c.Listen))
	override(&config.Unix, string(c.Unix))
	override(&config.HTTP, string(c.HTTP))
	override(&config.Tokens, string(c.Tokens))
	override(&config.Data, string(c.Data))
	override(&config.Sync, journal.Sync(c.Sync))
	override(&config.Interval, c.Interval)
	override(&config.TLS.Certificate, string(c.Certificate))
	override(&config.TLS.Key, string(c.Key))
	override(&config.TLS.ClientCA, string(c.ClientCA))
	override(&config.TLS.Clients, string(c.Clients))
	override(&config.MaxMessageBytes, int64(c.MaxMessage))
	override(&config.StopTimeout, c.StopTimeout)
	var problems []error
	given := make(map[string]bool)
	for _, text := range c.Table {
		t, err := parseTable(text)
		if err == nil && given[t.Name] {
			err = fmt.Errorf("--table: %s: another --table has that name: want one for each table", text)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		given[t.Name] = true
		config.put(t)
	}
	config.fill()
	problems = append(problems, config.validate())
	return config, errors.Join(problems...)
}

// override sets what a flag was given for.
func override[T comparable](to *T, flag T) {
	var unset T
	if flag != unset {
		*to = flag
	}
}

// profile measures where the processor's time goes, until it is told to stop.
func profile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--cpuprofile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("--cpuprofile: %w", err), f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "--cpuprofile:", err)
		}
	}, nil
}

// version is that of the module, or of the commit that the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "unreleased"
}

// callerName names who makes a call.
func callerName(ctx context.Context) string {
	who, _ := access.From(ctx)
	return who.Name
}

// accessOf is a policy as the service asks it: nil where nothing is asked.
func accessOf(p *access.Policy) service.Access {
	if !p.Asks() {
		return nil
	}
	return p
}
