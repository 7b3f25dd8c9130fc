package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/service/server"
)

// serveCommand serves tables on the network.
type serveCommand struct {
	Config      file          `short:"c" help:"YAML file; flags override it."`
	Listen      address       `help:"Address for Arrow Flight, or off (127.0.0.1:7447). An address that other machines can reach needs TLS and tokens."`
	Unix        file          `help:"Also serve Arrow Flight on this unix socket, which only its owner can open."`
	HTTP        address       `name:"http" help:"Address for the dashboard, /metrics and /healthz, or off (127.0.0.1:7448)."`
	Data        dir           `help:"Folder of journals and checkpoints. Without it tables are in memory only."`
	Sync        text          `help:"What an acknowledged insert survives: always, the default (power loss), interval (kill -9, and power loss but for the last second), off (kill -9)."`
	Interval    time.Duration `help:"Time between two syncs with --sync interval (1s)."`
	Table       []string      `sep:"none" help:"Create a table, with the keys of the configuration file: name=math,capacity=4096,sampler=prioritized; may be repeated."`
	Tokenizer   dir           `help:"Hugging Face folder, or a run of reprise train, whose tokenizer decodes rollouts that came without text, for people who look at them."`
	Tokens      file          `help:"YAML file of tokens and their rights. Without it everyone may do everything."`
	Certificate file          `name:"tls-certificate" help:"PEM file of the service's certificate and its chain."`
	Key         file          `name:"tls-key" help:"PEM file of the certificate's key."`
	ClientCA    file          `name:"tls-client-ca" help:"PEM file of the authority that signs client certificates."`
	Clients     text          `name:"tls-clients" help:"Whether clients must show a certificate: required, the default, or optional."`
	MaxMessage  byteSize      `help:"Largest message to accept (256MiB)."`
	Node        text          `help:"Name of this node of a cluster, which no other node has."`
	NodeListen  address       `name:"node-listen" help:"Address for the other nodes (127.0.0.1:6222). One that other machines can reach needs TLS with a client CA, and cluster.secret_file."`
	Peer        []string      `sep:"none" help:"HOST:PORT of each node of the cluster, this one included: a --peer for each."`
	Domain      text          `help:"What fails together with this node: a rack, a machine (the machine's name). Copies of a table are in different ones."`
	Replicas    int           `help:"Copies of each table: 1, 3 or 5 (3)."`
	Advertise   address       `help:"Address of this service as clients dial it and other nodes tell them, such as grpc+tls://a.example:7447 (where it listens)."`
	Replaces    text          `help:"A lost node whose copies this one, under another name, takes over."`
	AcceptRisk  bool          `help:"Serve although one failure may take all copies of a table; /healthz names the risk."`
	StopTimeout time.Duration `help:"Time that calls have to finish when the service stops (30s). A second signal kills it."`
	JSON        bool          `name:"json" help:"Log as JSON lines, and print nothing else."`
	ReadyFile   file          `help:"Write the addresses to this file, as JSON, once the service listens; -: to standard output, and nothing else there."`
	StopAtEOF   bool          `name:"stop-at-eof" help:"Stop when standard input ends: a pipe ends with the program that holds it, kill -9 included."`
	CPUProfile  file          `name:"cpuprofile" hidden:"" help:"Write a CPU profile to this file."`
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
	out := io.Writer(os.Stdout)
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.JSON {
		out, logger = io.Discard, slog.New(slog.NewJSONHandler(os.Stderr, nil))
	} else if c.ReadyFile == toStdout {
		out = os.Stderr
	}
	if c.StopAtEOF {
		ctx = untilEOF(ctx, os.Stdin)
	}
	s, err := server.Start(ctx, config, version(), logger)
	if err != nil {
		return err
	}
	if c.ReadyFile != "" {
		if err := writeReady(string(c.ReadyFile), s.Addresses); err != nil {
			_, stopped := s.Stop()
			return errors.Join(err, stopped)
		}
		if c.ReadyFile != toStdout {
			defer os.Remove(string(c.ReadyFile))
		}
	}
	s.Describe(out)
	failed := s.Wait(ctx)
	if failed == nil {
		fmt.Fprintf(out, "stopping: calls have %v to finish; a second signal kills\n", config.StopTimeout)
	}
	summary, err := s.Stop()
	fmt.Fprintln(out, summary)
	return errors.Join(failed, err)
}

// load reads the configuration file and lets the flags override it.
func (c *serveCommand) load() (server.Config, error) {
	config, err := server.Read(string(c.Config))
	var problems option.Problems
	for _, each := range option.Each(err) {
		problems.Add(fmt.Errorf("--config: %w", each))
	}
	config.Listen = cmp.Or(string(c.Listen), config.Listen)
	config.Unix = cmp.Or(string(c.Unix), config.Unix)
	config.HTTP = cmp.Or(string(c.HTTP), config.HTTP)
	config.Tokenizer = cmp.Or(string(c.Tokenizer), config.Tokenizer)
	config.Tokens = cmp.Or(string(c.Tokens), config.Tokens)
	config.Data = cmp.Or(string(c.Data), config.Data)
	config.Sync = cmp.Or(journal.Sync(c.Sync), config.Sync)
	config.Interval = cmp.Or(c.Interval, config.Interval)
	config.TLS.Certificate = cmp.Or(string(c.Certificate), config.TLS.Certificate)
	config.TLS.Key = cmp.Or(string(c.Key), config.TLS.Key)
	config.TLS.ClientCA = cmp.Or(string(c.ClientCA), config.TLS.ClientCA)
	config.TLS.Clients = cmp.Or(string(c.Clients), config.TLS.Clients)
	config.Cluster.Node = cmp.Or(string(c.Node), config.Cluster.Node)
	config.Cluster.Listen = cmp.Or(string(c.NodeListen), config.Cluster.Listen)
	config.Cluster.Domain = cmp.Or(string(c.Domain), config.Cluster.Domain)
	config.Cluster.Replicas = cmp.Or(c.Replicas, config.Cluster.Replicas)
	config.Cluster.Advertise = cmp.Or(string(c.Advertise), config.Cluster.Advertise)
	config.Cluster.Replaces = cmp.Or(string(c.Replaces), config.Cluster.Replaces)
	config.Cluster.AcceptRisk = c.AcceptRisk || config.Cluster.AcceptRisk
	if len(c.Peer) > 0 {
		config.Cluster.Peers = c.Peer
	}
	config.MaxMessageBytes = cmp.Or(int64(c.MaxMessage), config.MaxMessageBytes)
	config.StopTimeout = cmp.Or(c.StopTimeout, config.StopTimeout)
	given := make(map[string]bool)
	for _, text := range c.Table {
		t, err := server.ParseTable(text)
		if err == nil && given[t.Name] {
			err = fmt.Errorf("%s: another --table has that name: want one for each table", text)
		}
		if err != nil {
			problems.Add(fmt.Errorf("--table: %w", err))
			continue
		}
		given[t.Name] = true
		config.SetTable(t)
	}
	if config.Tokenizer != "" {
		if folder, err := dir(config.Tokenizer).description(); err != nil {
			problems.Add(fmt.Errorf("tokenizer: %w", err))
		} else {
			config.Decoder = folder.Tokenizer
		}
	}
	config = config.WithDefaults()
	config.Check(&problems)
	return config, problems.Err()
}

// toStdout is the ready file that stands for standard output.
const toStdout = "-"

// writeReady writes the addresses to standard output, or to a file that only its owner can read, whole or not at all.
func writeReady(path string, addresses server.Addresses) (err error) {
	write := func(w io.Writer) error { return json.NewEncoder(w).Encode(addresses) }
	if path == toStdout {
		err = write(os.Stdout)
	} else {
		err = disk.ReplacePrivateFile(path, write)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// untilEOF returns a context that is cancelled when the reader ends, too.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // an error ends the input, too
		cancel()
	}()
	return ctx
}

// profile writes a CPU profile until stop is called.
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

// version is the module's version, or the commit that the program was built from.
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

// byteSize is a number of bytes: 268435456, 256MiB or 250MB.
type byteSize int64

// UnmarshalText parses it.
func (b *byteSize) UnmarshalText(text []byte) error {
	number, factor := string(text), int64(1)
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/factor {
		return fmt.Errorf("%q: want a number of bytes, such as 268435456, 256MiB or 250MB", text)
	}
	*b = byteSize(n * factor)
	return nil
}
