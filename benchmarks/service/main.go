// Command service measures `reprise serve` next to what bounds it: a raw socket that moves the same bytes, the disk,
// and a Redis server that stores and fetches them. It starts the servers, each in a process of its own, lets the
// contenders take turns, and prints the results with the targets that the service is held to. `make bench-service` runs
// it.
//
// # What is measured
//
// The clients live in this process: one connection and one goroutine each, except for the durable insertions, which
// many clients make at once. A figure is the median over rounds. Within a round every contender has the same time, one
// after the other, and ratios are medians of ratios within a round, so whatever disturbs the machine for a while
// disturbs all of them. Latencies are of all operations of all rounds.
//
// Bytes are those of the payload, [github.com/reprise-rl/reprise/rollout.Rollout.Bytes]. The raw socket, the floor,
// moves just as many in a protocol without any structure: a request of 16 bytes, and the block, or the block and an
// answer of one byte. Its server cycles through as much memory as the service's table takes; its client uses one
// buffer, and nobody reads what is in it. An insertion by the client begins with rollouts in memory and ends when the
// service has answered with their ids. A sample ends with rollouts in memory.
//
// Batches by prompt and by sources are drawn by single requests from a table that holds many rollouts, in turns with
// plain ones of the same client.
//
// The disk's own bandwidth is that of writing files from front to end with fdatasync after each block, with the best of
// several block sizes: of new files, as a log writes its segments, which the target is about, and of a file whose
// blocks are allocated already.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Off, as a setting, leaves a peer out; auto takes it if it is installed.
const (
	off  = "off"
	auto = "auto"
)

// commands are the verbs.
type commands struct {
	Run   runCommand   `cmd:"" default:"withargs" help:"Measure the service next to raw sockets, the disk, and Redis where it is installed."`
	Floor floorCommand `cmd:"" hidden:"" help:"Answer the requests of the raw-socket floor."`
}

// runCommand is the settings of a measurement.
type runCommand struct {
	Program string  `default:"bin/reprise" help:"Program to measure."`
	Tokens  []int   `default:"256,4096,32768" help:"Lengths of rollouts, with the prompt."`
	Batch   int     `default:"64" help:"Rollouts in a batch."`
	Seconds float64 `default:"2" help:"Time for each line of the tables, over all rounds."`
	Rounds  int     `default:"5" help:"Rounds in which the contenders take turns. Figures are medians over them."`
	TCP     bool    `name:"tcp" negatable:"" default:"true" help:"Measure over loopback TCP."`
	Unix    bool    `negatable:"" default:"true" help:"Measure over a unix socket."`
	Durable bool    `negatable:"" default:"true" help:"Also measure a durable table, and insertions by many clients next to the disk."`
	Redis   string  `default:"auto" help:"auto, off, the path of a redis-server, or 127.0.0.1:PORT of a running one."`
	Python  string  `default:"auto" help:"auto, off, or an interpreter that has the package reprise."`
	Draws   []int   `default:"50000,1000000" help:"Rollouts in tables whose draws by prompt and by sources are measured."`
	Dir     string  `help:"Folder on the disk to measure; the system's folder for temporary files by default."`
	JSON    string  `name:"json" help:"Also write the figures to this file."`

	ServerProfile string `name:"cpuprofile" help:"Write a CPU profile of the server that is not durable."`
	ClientProfile string `name:"client-cpuprofile" help:"Write a CPU profile of the clients."`

	DrawTokens int `name:"draw-tokens" default:"64" help:"Length of the rollouts of these draws, with the prompt."`

	// Tests make these smaller.
	diskBytes     int   // size of the files that measure the disk; 0: defaultDiskBytes
	durableTokens []int // lengths of durable insertions; nil: durableShort, durableLong
}

func main() {
	var c commands
	verb := kong.Parse(&c, kong.Name("bench-service"), kong.Description("Measure reprise serve."),
		kong.ShortUsageOnError())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	verb.BindTo(ctx, (*context.Context)(nil))
	if err := verb.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "bench-service: %v\n", err)
		os.Exit(1)
	}
}

// Run measures and prints tables.
func (c *runCommand) Run(ctx context.Context) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	if c.ClientProfile != "" {
		f, err := os.Create(c.ClientProfile)
		if err != nil {
			return fmt.Errorf("--client-cpuprofile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	result, err := c.measure(ctx)
	if err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(result, "", "  ")
		if err == nil {
			err = os.WriteFile(c.JSON, append(text, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	return result.print(os.Stdout)
}

// validate reports every setting out of its range.
func (c *runCommand) validate() error {
	var problems option.Problems
	for _, n := range c.Tokens {
		problems.Check(n >= 8 && n <= 1<<20, "--tokens", n, "lengths from 8 to 1048576")
	}
	for _, n := range c.Draws {
		problems.Check(n >= 2*c.drawBatch() && n <= 1e8, "--draws", n, "%d, two batches, to 100 million rollouts",
			2*c.drawBatch())
	}
	problems.Check(c.DrawTokens >= 8 && c.DrawTokens <= 1<<20, "--draw-tokens", c.DrawTokens, "8 to 1048576")
	problems.Check(c.Batch >= 1 && c.Batch <= 1<<16, "--batch", c.Batch, "1 to 65536 rollouts")
	problems.Check(c.Seconds > 0 && c.Seconds <= 3600, "--seconds", c.Seconds, "more than 0, at most 3600")
	problems.Check(c.Rounds >= 1 && c.Rounds <= 1000, "--rounds", c.Rounds, "1 to 1000")
	problems.Check(c.TCP || c.Unix, "--no-tcp", "with --no-unix", "one of the two")
	return problems.Err()
}

// networks are the transports to measure.
func (c *runCommand) networks() []string {
	var list []string
	if c.TCP {
		list = append(list, tcp)
	}
	if c.Unix {
		list = append(list, unix)
	}
	return list
}

// turn is how long a contender goes on in one round.
func (c *runCommand) turn() time.Duration {
	return time.Duration(c.Seconds / float64(c.Rounds) * float64(time.Second))
}

// measure measures everything that the settings ask for.
func (c *runCommand) measure(ctx context.Context) (result *Result, err error) {
	l, err := newLab(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r := &Result{When: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Rounds: c.Rounds,
		Seconds: c.Seconds, LeftOut: l.missing}
	for _, tokens := range c.Tokens {
		list, err := measureTransfers(ctx, l, c, tokens)
		if err != nil {
			return nil, err
		}
		r.Transfers = append(r.Transfers, list...)
	}
	for _, held := range c.Draws {
		list, err := measureDraws(ctx, l, c, held)
		if err != nil {
			return nil, fmt.Errorf("draws from %d rollouts: %w", held, err)
		}
		r.Draws = append(r.Draws, list...)
	}
	if l.durable != nil {
		if r.Durable, r.Disk, err = measureDurable(ctx, l, c); err != nil {
			return nil, err
		}
	}
	if l.redis != nil {
		r.Redis = l.redis.version
	}
	for _, o := range []struct {
		left bool
		name string
	}{{c.Redis == off, "redis: --redis off"}, {c.Python == off, "the Python client: --python off"}, {!c.Durable,
		"durable tables: --no-durable"}} {
		if o.left {
			r.LeftOut = append(r.LeftOut, o.name)
		}
	}
	r.judge()
	return r, nil
}

// announce tells the user what is measured next.
func announce(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// floorCommand is the server of the floor, in a process of its own.
type floorCommand struct {
	Address string `arg:"" help:"Loopback address, host:port."`
	Socket  string `arg:"" help:"Path of a unix socket."`
}

// Run answers until the context ends.
func (c *floorCommand) Run(ctx context.Context) error {
	ended := make(chan error, 2)
	for network, address := range map[string]string{tcp: c.Address, unix: c.Socket} {
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { l.Close() })
		go func() { ended <- serveFloor(l) }()
	}
	return <-ended
}
