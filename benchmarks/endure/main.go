package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands are the verbs.
type commands struct {
	Soak     SoakSettings     `cmd:"" help:"Work on a service for a while, with everything that goes wrong in networks, and check it."`
	Crash    CrashSettings    `cmd:"" help:"Kill a service under load again and again, and look for everything it acknowledged."`
	Recovery RecoverySettings `cmd:"" help:"Measure how long a service takes to serve again after kill -9."`
}

func main() {
	var c commands
	verb := kong.Parse(&c, kong.Name("endure"), kong.Description("Long and rough tests of reprise serve."), kong.UsageOnError())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	verb.BindTo(ctx, (*context.Context)(nil))
	if err := verb.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "endure: %v\n", err)
		os.Exit(1)
	}
}

// Run soaks and prints.
func (s *SoakSettings) Run(ctx context.Context) error { return report(soak(ctx, *s, os.Stdout)) }

// Run crashes and prints.
func (s *CrashSettings) Run(ctx context.Context) error { return report(crash(ctx, *s, os.Stdout)) }

// Run measures and prints.
func (s *RecoverySettings) Run(ctx context.Context) error {
	return report(recovery(ctx, *s, os.Stdout))
}

// report prints a verdict; promises that were not kept are an error.
func report(v *Verdict, err error) error {
	if err != nil {
		return err
	}
	fmt.Print(v)
	return v.Err()
}
