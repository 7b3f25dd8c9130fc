package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	bench "github.com/reprise-rl/reprise/benchmarks/service"
)

// benchCommand measures.
type benchCommand struct {
	Service benchServiceCommand `cmd:"" help:"Measure the service beside raw sockets, the disk, and Redis where it is installed."`
	Floor   benchFloorCommand   `cmd:"" hidden:"" help:"Answer the requests of the raw-socket floor."`
}

// benchServiceCommand measures insertions and samples through `reprise serve`.
type benchServiceCommand struct {
	Tokens     []int   `default:"256,4096,32768" help:"Lengths of rollouts, prompt included."`
	Batch      int     `default:"64" help:"Rollouts in a batch."`
	Seconds    float64 `default:"2" help:"For each line of the tables."`
	Rounds     int     `default:"5" help:"In which the contenders take turns; figures are medians over them."`
	TCP        bool    `name:"tcp" negatable:"" default:"true" help:"Measure over loopback TCP."`
	Unix       bool    `negatable:"" default:"true" help:"Measure over a unix socket."`
	Durable    bool    `negatable:"" default:"true" help:"Measure a durable table too, and insertions by many clients beside the disk."`
	Redis      string  `default:"auto" help:"auto, off, the path of a redis-server, or 127.0.0.1:PORT of one that runs."`
	Python     string  `default:"auto" help:"auto, off, or an interpreter that has the package reprise."`
	Dir        string  `help:"Folder on the disk to measure; the system's for temporary files if it is not given."`
	JSON       file    `name:"json" help:"Write the figures there, too."`
	CPUProfile file    `name:"cpuprofile" help:"Write a processor profile of the server that is not durable."`
	OwnProfile file    `name:"client-cpuprofile" help:"Write a processor profile of the clients."`
}

// Run measures, and prints tables.
func (c *benchServiceCommand) Run(ctx context.Context) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	if c.OwnProfile != "" {
		stop, err := profile(string(c.OwnProfile))
		if err != nil {
			return fmt.Errorf("--client-cpuprofile: %w", err)
		}
		defer stop()
	}
	result, err := bench.Run(ctx, settings, func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	})
	if err != nil {
		return err
	}
	if c.JSON != "" {
		text, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(string(c.JSON), append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	return result.Write(os.Stdout)
}

func (c *benchServiceCommand) settings() (bench.Settings, error) {
	program, err := os.Executable()
	if err != nil {
		return bench.Settings{}, err
	}
	s := bench.Settings{
		Program: program, Tokens: c.Tokens, Batch: c.Batch, Seconds: c.Seconds, Rounds: c.Rounds, Durable: c.Durable,
		Redis: c.Redis, Python: c.Python, Dir: c.Dir, ServerProfile: string(c.CPUProfile),
	}
	if c.TCP {
		s.Over = append(s.Over, bench.TCP)
	}
	if c.Unix {
		s.Over = append(s.Over, bench.Unix)
	}
	if len(s.Over) == 0 {
		return s, fmt.Errorf("--no-tcp with --no-unix: leave one of them")
	}
	return s, nil
}

// benchFloorCommand is the server of the floor, in a process of its own.
type benchFloorCommand struct {
	Address string `arg:"" help:"Of loopback TCP, host:port."`
	Socket  string `arg:"" help:"Path of a unix socket."`
}

// Run answers until it is told to end.
func (c *benchFloorCommand) Run(ctx context.Context) error {
	tcp, err := net.Listen("tcp", c.Address)
	if err != nil {
		return err
	}
	unix, err := net.Listen("unix", c.Socket)
	if err != nil {
		tcp.Close()
		return err
	}
	ended := make(chan error, 2)
	for _, l := range []net.Listener{tcp, unix} {
		context.AfterFunc(ctx, func() { l.Close() })
		go func() { ended <- bench.ServeFloor(l) }()
	}
	return <-ended
}
