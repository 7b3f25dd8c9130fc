// Command stress puts `reprise serve` under load for a long time, or kills it again and again, and checks that it keeps
// its promises. Its exit code is 1 if the service broke one.
//
// stress soak runs producers and trainers on several durable tables, through a proxy that cuts and throttles
// connections, while hostile clients send what no client would. In the end memory must be flat, every goroutine that
// served a client gone, and the counts of each table must balance (invariant 11), also against the answers that the
// producers got.
//
// stress crash kills the serving process with kill -9 at random moments while clients insert, consume and sample, some
// of which die too, restarts it on the same port, and in the end looks for every acknowledged rollout (invariant 6):
// none may be missing, none may be there twice, and a queue may deliver none twice without naming it.
//
// stress attack starts a service under a limit of memory and lets attackers, one kind after another and then all
// together, make it hold more than it has, beside honest clients: it must go on, and the counts must add up.
//
// stress cluster starts three nodes, kills one under load, and looks for every acknowledged rollout.
//
// stress recovery measures how long a service takes to serve again after kill -9.
//
// Every choice comes from a stream of the seed. What the scheduler of the machine adds is not repeatable.
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
	Attack   AttackSettings   `cmd:"" help:"Attack a service that has little memory beside honest clients."`
	Hostile  HostileSettings  `cmd:"" hidden:"" help:"Attack a service: the attackers of attack."`
	Cluster  ClusterSettings  `cmd:"" help:"Show a cluster of three nodes that loses one under load."`
	Recovery RecoverySettings `cmd:"" help:"Measure how long a service takes to serve again after kill -9."`
}

func main() {
	var c commands
	verb := kong.Parse(&c, kong.Name("stress"), kong.Description("Long and rough tests of reprise serve."),
		kong.ShortUsageOnError())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	verb.BindTo(ctx, (*context.Context)(nil))
	if err := verb.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "stress: %v\n", err)
		os.Exit(1)
	}
}

// Run soaks and prints the verdict.
func (s *SoakSettings) Run(ctx context.Context) error { return report(soak(ctx, *s, os.Stdout)) }

// Run crashes and prints the verdict.
func (s *CrashSettings) Run(ctx context.Context) error { return report(crash(ctx, *s, os.Stdout)) }

// Run attacks and prints the verdict.
func (s *AttackSettings) Run(ctx context.Context) error {
	return report(underAttack(ctx, *s, os.Stdout))
}

// Run measures and prints the verdict.
func (s *RecoverySettings) Run(ctx context.Context) error {
	return report(recovery(ctx, *s, os.Stdout))
}

// report prints a verdict. A broken promise is an error.
func report(v *Verdict, err error) error {
	if err != nil {
		return err
	}
	fmt.Print(v)
	return v.Err()
}
