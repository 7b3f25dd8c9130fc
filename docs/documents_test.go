package docs

import (
	"context"
	"time"

	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var (
	long   = flag.Bool("long", false, "run the documents in their long form: up to 20 minutes")
	record = flag.String("record", "", "run the README alone, in a terminal of 80 columns, and write what happened here")
	only   = flag.String("only", "", "run only documents whose path contains this")
)

// mostSkipped bounds how many blocks say skip.
const mostSkipped = 12

var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if scratch, err = os.MkdirTemp("", "documents"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// shell runs a command in a folder and returns what it printed.
func output(dir, text string) (string, error) {
	cmd := exec.Command("bash", "-c", text)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", text, err, out)
	}
	return string(out), err
}

// clone makes a fresh clone of the repository, with the changes of this working tree to tracked files and with
// bin/reprise, once.
var clone = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "reprise")
	_, err := output("..", "set -e; git clone --quiet --shared . "+dir+"; git diff --binary HEAD >"+dir+"/.git/changes;"+
		"cd "+dir+"; [ ! -s .git/changes ] || git apply .git/changes; make build")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, ".git", "shell.sh"), []byte(shell), 0o644)
})

// environment makes a Python environment of the tests' packages for the clone, once, and returns its programs' folder.
var environment = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "python")
	_, err := output("..", "set -e; make --no-print-directory .venv-python/ready; python3 -m venv "+dir+"; "+
		"ls -d $PWD/.venv-python/lib/python3*/site-packages >$(echo "+dir+"/lib/python3*/site-packages)/tests.pth")
	return filepath.Join(dir, "bin"), err
})

// newRunner returns a runner in the clone.
func newRunner(t *testing.T) *runner {
	t.Helper()
	if testing.Short() {
		t.Skip("the documents are run without -short")
	}
	if _, err := output("..", "git rev-parse --verify HEAD && command -v make"); err != nil {
		t.Skipf("the documents are run in a clone: %v", err)
	}
	dir, err := clone()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{ctx: t.Context(), dir: dir, long: *long || *record != "", say: t.Logf,
		terminal: func(c *exec.Cmd) ([]byte, error) { return c.CombinedOutput() }}
	if r.python, err = environment(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Logf("SKIPPED: every block of Python: %v", err)
		r.python = ""
	}
	return r
}

// documents returns the paths of the documents, in the order in which they are run.
func documents(t *testing.T) []string {
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{filepath.Join("..", "README.md")}, paths...)
}

func TestEveryBlockOfTheDocumentsRuns(t *testing.T) {
	r := newRunner(t)
	asked := 0
	for _, path := range documents(t) {
		doc := strings.TrimPrefix(filepath.Join("docs", path), "docs/../")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := parse(doc, string(text))
		if err != nil {
			t.Error(err)
		}
		for _, b := range blocks {
			if _, ok := b.mode("skip"); ok {
				asked++
			}
		}
		if !strings.Contains(doc, *only) {
			continue
		}
		t.Run(doc, func(t *testing.T) {
			ctx, stop := t.Context(), func() {}
			if deadline, ok := t.Deadline(); ok { // leave time to end what runs
				ctx, stop = context.WithDeadline(ctx, deadline.Add(-20*time.Second))
			}
			defer stop()
			r.ctx, r.say = ctx, t.Logf
			outcomes, err := r.run(doc, string(text))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range outcomes {
				if o.skipped != "" {
					t.Logf("SKIPPED %s:%d: %s", o.doc, o.line, o.skipped)
				}
				if o.problem != "" {
					t.Errorf("%s:%d: %s: %s", o.doc, o.line, o.text, o.problem)
				}
			}
		})
	}
	if asked > mostSkipped {
		t.Errorf("%d blocks are skipped: at most %d may be", asked, mostSkipped)
	}
}
