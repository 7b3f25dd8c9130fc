// Command regress compares the benchmarks of this checkout with those of another commit. It builds the test binaries of
// both, runs them alternately, and fails if a benchmark has become slower: if the median of the paired ratios is above
// the limit, and their 95% interval is above 1. Benchmarks that only one side has are listed. `make bench-regress
// BASE=COMMIT` runs it.
//
// metrics.sh, in the same folder, compares the metrics that two programs write.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

// command is the settings of a comparison.
type command struct {
	Base      string        `required:"" help:"Commit to compare with."`
	Bench     string        `default:"." help:"Benchmarks to run, as go test -bench takes them."`
	Benchtime time.Duration `default:"200ms" help:"Time for each benchmark in a round."`
	Rounds    int           `default:"10" help:"Rounds, in each of which both sides run."`
	Limit     float64       `default:"1.05" help:"Largest ratio of new to old time that passes."`
	Packages  []string      `arg:"" optional:"" help:"Packages; ./replay/... ./lab/policy ./lab/pipeline ./lab/sim by default."`
}

func main() {
	var c command
	verb := kong.Parse(&c, kong.Name("regress"), kong.Description("Compare benchmarks with another commit."),
		kong.ShortUsageOnError())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	verb.BindTo(ctx, (*context.Context)(nil))
	if err := verb.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "regress: %v\n", err)
		os.Exit(1)
	}
}

// Run compares and prints a table.
func (c *command) Run(ctx context.Context) (err error) {
	if c.Rounds < 5 {
		return fmt.Errorf("--rounds: %d: want 5 or more, for an interval", c.Rounds)
	}
	if len(c.Packages) == 0 {
		c.Packages = []string{"./replay/...", "./lab/policy", "./lab/pipeline", "./lab/sim"}
	}
	dir, err := os.MkdirTemp("", "reprise-regress")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if _, err := run(ctx, ".", "git", "worktree", "add", "--quiet", "--detach", tree, c.Base); err != nil {
		return err
	}
	defer func() {
		_, e := run(context.WithoutCancel(ctx), ".", "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, e)
	}()
	before, err := buildTests(ctx, tree, filepath.Join(dir, "old"), c.Packages)
	if err != nil {
		return fmt.Errorf("build the tests of %s: %w", c.Base, err)
	}
	after, err := buildTests(ctx, ".", filepath.Join(dir, "new"), c.Packages)
	if err != nil {
		return err
	}
	times := make(timings)
	for round := range c.Rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, c.Rounds)
		for i := range 2 {
			side := (round + i) % 2 // the sides take turns to be first
			for _, t := range [][]testBinary{before, after}[side] {
				out, err := run(ctx, t.dir, t.file, "-test.run", "^$", "-test.bench", c.Bench, "-test.benchtime",
					c.Benchtime.String())
				if err != nil {
					return err
				}
				times.add(side, t.pkg, out)
			}
		}
	}
	return report(os.Stdout, times.compare(c.Limit), c.Limit)
}

// run runs a program in a folder and returns its standard output.
func run(ctx context.Context, dir, program string, arguments ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, program, arguments...)
	var stdout, stderr bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &stdout, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(arguments, " "), err,
			stdout.String(), stderr.String())
	}
	return stdout.Bytes(), nil
}

// testBinary is the compiled tests of a package.
type testBinary struct{ pkg, dir, file string }

// buildTests compiles the tests of those packages of a tree that have tests and are there.
func buildTests(ctx context.Context, tree, to string, packages []string) ([]testBinary, error) {
	list, err := run(ctx, tree, "go", append([]string{"list", "-f", "{{if or .TestGoFiles " +
		".XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return nil, err
	}
	var binaries []testBinary
	for line := range strings.Lines(string(list)) {
		pkg, dir, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		t := testBinary{pkg, dir, filepath.Join(to, fmt.Sprint(len(binaries)))}
		if _, err := run(ctx, tree, "go", "test", "-c", "-o", t.file, pkg); err != nil {
			return nil, err
		}
		binaries = append(binaries, t)
	}
	return binaries, nil
}

// timings are the times of benchmarks by name: ns per operation of the old side and the new, one for each round.
type timings map[string]*[2][]float64

// add reads the output of the benchmarks of a package.
func (t timings) add(side int, pkg string, output []byte) {
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") || f[3] != "ns/op" {
			continue
		}
		ns, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			continue
		}
		name := strings.TrimPrefix(pkg, "github.com/reprise-rl/reprise/") + "." + strings.TrimPrefix(f[0], "Benchmark")
		if t[name] == nil {
			t[name] = &[2][]float64{}
		}
		t[name][side] = append(t[name][side], ns)
	}
}

// row compares one benchmark. Old or new is 0 if that side does not have it.
type row struct {
	name             string
	old, new         float64 // medians, ns per operation
	ratio, low, high float64 // of new to old in the same round: median, and its 95% interval
	slower           bool
}

// compare returns a row for each benchmark, in order of names.
func (t timings) compare(limit float64) []row {
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(t)) {
		r := row{name: name}
		before, after := t[name][0], t[name][1]
		if len(before) > 0 {
			r.old = results.Median(before)
		}
		if len(after) > 0 {
			r.new = results.Median(after)
		}
		var ratios []float64
		for i := range min(len(before), len(after)) {
			ratios = append(ratios, after[i]/before[i])
		}
		if len(ratios) > 0 {
			r.ratio = results.Median(ratios)
			r.low, r.high = results.Bootstrap(ratios, 0.95, 1)
			r.slower = r.ratio > limit && r.low > 1
		}
		rows = append(rows, r)
	}
	return rows
}

// report prints the rows. A benchmark that has become slower is an error.
func report(w io.Writer, rows []row, limit float64) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "benchmark\told ns/op\tnew ns/op\tratio\t95% interval\t\t")
	slower := 0
	for _, r := range rows {
		switch {
		case r.old == 0:
			fmt.Fprintf(table, "%s\t\t%.4g\t\t\tonly new\t\n", r.name, r.new)
			continue
		case r.new == 0:
			fmt.Fprintf(table, "%s\t%.4g\t\t\t\tonly old\t\n", r.name, r.old)
			continue
		}
		verdict := ""
		if r.slower {
			slower++
			verdict = "SLOWER"
		}
		fmt.Fprintf(table, "%s\t%.4g\t%.4g\t%.3f\t%.3f to %.3f\t%s\t\n", r.name, r.old, r.new, r.ratio, r.low, r.high,
			verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if slower > 0 {
		return fmt.Errorf("%s slower by more than %s", words.Plural(slower, "benchmark is", "benchmarks are"),
			words.Percent(limit-1, 0))
	}
	return nil
}
