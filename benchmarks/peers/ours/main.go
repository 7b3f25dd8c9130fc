// Command ours runs Reprise's prioritized table in the comparison with peers (benchmarks/peers/README.md). It fills a
// table from the files of a folder, prints a line of JSON, and then answers each command on standard input with another
// line:
//
//	run N     N cycles: sample a batch, update its priorities, advance the version; the seconds spent in each
//	follow N  the same, untimed; the bases as the updates left them
//	draw N    N batches without updates; how often each entry was drawn, and the first batch's entries and weights
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
)

func main() {
	var s settings
	flag.StringVar(&s.folder, "folder", "", "`folder` of bases.f64, versions.i32 and values.f64")
	flag.IntVar(&s.group, "group", 1, "entries inserted together")
	flag.IntVar(&s.version, "version", 0, "of the table when it is full")
	flag.Float64Var(&s.epsilon, "epsilon", 0, "added to every base")
	flag.Float64Var(&s.exponent, "exponent", 0, "of the priorities")
	flag.Float64Var(&s.ageDecay, "age-decay", 0, "in versions")
	flag.Float64Var(&s.beta, "beta", 0, "of the importance weights at version 0")
	flag.IntVar(&s.betaVersions, "beta-versions", 0, "over which beta rises to 1")
	flag.Parse()
	if err := serve(context.Background(), s, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
}

// serve fills a table and answers commands until there are no more.
func serve(ctx context.Context, s settings, commands io.Reader, answers io.Writer) error {
	t, err := fill(ctx, s)
	if err != nil {
		return err
	}
	out := json.NewEncoder(answers)
	if err := out.Encode(hello{Go: runtime.Version()}); err != nil {
		return err
	}
	for in := bufio.NewScanner(commands); in.Scan(); {
		var command string
		var n int
		if _, err := fmt.Sscan(in.Text(), &command, &n); err != nil {
			return fmt.Errorf("reading command %q: %w", in.Text(), err)
		}
		a, err := t.execute(ctx, command, n)
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

type hello struct {
	Go string `json:"go"`
}

// answer is the answer to a command.
type answer struct {
	Version int `json:"version"`

	// Of run, in seconds.
	Sample  float64 `json:"sample,omitempty"`
	Update  float64 `json:"update,omitempty"`
	Advance float64 `json:"advance,omitempty"`

	// Of follow, [N].
	Bases []float64 `json:"bases,omitempty"`

	// Of draw: counts [N]; ids and weights of one batch.
	Counts  []int     `json:"counts,omitempty"`
	IDs     []int     `json:"ids,omitempty"`
	Weights []float32 `json:"weights,omitempty"`
}

// execute runs one command.
func (t *trainer) execute(ctx context.Context, command string, n int) (answer, error) {
	var a answer
	var err error
	switch command {
	case "run":
		a, err = t.run(ctx, n)
	case "follow":
		a.Bases = t.bases
		err = t.follow(ctx, n)
	case "draw":
		a, err = t.draw(ctx, n)
	default:
		err = errors.New("no such command")
	}
	a.Version = int(t.version)
	return a, err
}
