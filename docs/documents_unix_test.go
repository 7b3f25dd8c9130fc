//go:build unix

package docs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	long   = flag.Bool("long", false, "run the documents in their long form, which trains in full")
	record = flag.String("record", "", "run README alone, in a terminal of 80 columns, and write what happened here")
	only   = flag.String("only", "", "run only documents whose path contains this")
)

// maxSkipped bounds how many blocks say skip. Those of TRL, verl, slime, AReaL, Ray, PyTorch, the engines and capture
// have tests of their own, and so has the Go example of scale.md; a cluster takes three machines, gpu.md a GPU, and
// eight-gpus.md eight.
const maxSkipped = 33

var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if scratch, err = os.MkdirTemp("", "documents"); err != nil {
		panic(err)
	}
	code := m.Run()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err == nil {
		fmt.Printf("processor time of the commands: %d s\n", used.Utime.Sec+used.Stime.Sec)
	}
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// output runs a command in a folder and returns what it printed.
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
var clone = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(scratch, "reprise")
	_, err = output("..", "set -e; git clone --quiet --shared . "+dir+"; "+
		"git diff --binary HEAD >"+dir+"/.git/changes; cd "+dir+"; [ ! -s .git/changes ] || git apply .git/changes")
	if err != nil {
		return "", err
	}
	if err := compileHere(); err != nil {
		return "", err
	}
	if _, err := output(dir, "PATH="+compiler()+":$PATH make build"); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, ".git", "shell.sh"), []byte(shell), 0o644)
})

// goInTheTree is a go that builds and runs the clone's programs from this working tree, which has the same files, and
// whose packages are compiled: a package in another folder is compiled anew. The overlay adds the block that runs.
const goInTheTree = `#!/bin/bash
set -e
folder=$PWD
case $1 in
build)
	args=("$@")
	for i in "${!args[@]}"; do
		[ "${args[i]}" != -o ] || args[i+1]=$(realpath "${args[i+1]}")
	done
	cd TREE
	exec GO "${args[@]}"
	;;
run)
	cd TREE
	GO build -overlay SCRATCH/overlay.json -o SCRATCH/program "$2"
	cd "$folder"
	shift 2
	exec SCRATCH/program "$@"
	;;
esac
exec GO "$@"
`

// compiler is the folder of that go. It is empty if the working tree has files that a clone lacks.
func compiler() string { return filepath.Join(scratch, "compiler") }

func compileHere() error {
	tree, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	untracked, err := output(tree, "git ls-files --others --exclude-standard")
	if err != nil || untracked != "" {
		return errors.Join(err, os.Mkdir(compiler(), 0o700))
	}
	real, err := exec.LookPath("go")
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(tree, "bin", "block", "main.go"): filepath.Join(scratch, "reprise", "bin", "block", "main.go"),
	}})
	if err != nil {
		return err
	}
	text := strings.NewReplacer("TREE", tree, "GO", real, "SCRATCH", scratch).Replace(goInTheTree)
	return errors.Join(os.Mkdir(compiler(), 0o700),
		os.WriteFile(filepath.Join(scratch, "overlay.json"), overlay, 0o600),
		os.WriteFile(filepath.Join(compiler(), "go"), []byte(text), 0o700))
}

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
	_, _ = os.Stat(filepath.Join("..", "bin", "reprise")) // so that go test forgets its result when the program changes
	dir, err := clone()
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{ctx: t.Context(), dir: dir, compiler: compiler(), long: *long, say: t.Logf,
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

// recordTo makes a runner type into a terminal of 80 columns and write what it shows to first-hour.txt in a folder. The
// function returned takes screenshots, 1280 pixels wide, of the pages that were made.
func recordTo(t *testing.T, r *runner, dir string) func() {
	t.Helper()
	if _, err := output("..", "command -v tmux && command -v chromium && mkdir -p "+dir); err != nil {
		t.Skipf("a recording needs tmux and chromium: %v", err)
	}
	log, err := os.Create(filepath.Join(dir, "first-hour.txt"))
	if err != nil {
		t.Fatal(err)
	}
	conf, socket, typed := filepath.Join(scratch, "tmux.conf"), "", 0
	tmux := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "tmux", append([]string{"-S", socket, "-f", conf}, args...)...)
	}
	if err := os.WriteFile(conf, []byte("set -g history-limit 100000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.terminal = func(c *exec.Cmd) ([]byte, error) {
		typed++
		socket = filepath.Join(scratch, fmt.Sprint("tmux", typed))
		session := tmux("new-session", "-d", "-x", "80", "-y", "40", "sh", "-c",
			`bash -c "$TYPED"; echo $? >`+socket+`.status; tmux -S `+socket+` wait-for -S ended; cat`)
		session.Dir, session.Env = c.Dir, append(c.Env, "TYPED="+c.Args[2])
		if out, err := session.CombinedOutput(); err != nil {
			return out, err
		}
		defer func() { _ = tmux("kill-server").Run() }()
		if err := tmux("wait-for", "ended").Run(); err != nil {
			return nil, err
		}
		shown, err := tmux("capture-pane", "-p", "-S", "-").Output()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "$ %s\n%s\n", r.documented(c.Args[2]), strings.TrimSpace(r.documented(string(shown))))
		status, err := os.ReadFile(socket + ".status")
		if code := strings.TrimSpace(string(status)); err == nil && code != "0" {
			err = fmt.Errorf("exit status %s", code)
		}
		joined, _ := tmux("capture-pane", "-p", "-J", "-S", "-").Output()
		return regexp.MustCompile(`(?m) +$`).ReplaceAll(joined, nil), err
	}
	r.say = func(format string, args ...any) {
		t.Logf(format, args...)
		fmt.Fprintf(log, "["+format+"]\n\n", args...)
	}
	return func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if out, err := output(r.dir, "for page in $(find *.html runs -name '*.html'); do "+
			"chromium --headless --no-sandbox --disable-gpu --hide-scrollbars "+
			"--user-data-dir="+scratch+"/chromium --window-size=1280,2400 "+
			"--screenshot="+dir+"/$(echo $page | tr / -).png file://$PWD/$page; done"); err != nil {
			t.Errorf("screenshots: %v\n%s", err, out)
		}
	}
}

func TestEveryBlockOfTheDocumentsRuns(t *testing.T) {
	r := newRunner(t)
	paths := documents(t)
	if *record != "" {
		paths = paths[:1]
	}
	asked := 0
	for _, path := range paths {
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
		if !regexp.MustCompile(*only).MatchString(doc) {
			continue
		}
		t.Run(doc, func(t *testing.T) {
			ctx, stop := t.Context(), func() {}
			if deadline, ok := t.Deadline(); ok { // leave time to end what runs
				ctx, stop = context.WithDeadline(ctx, deadline.Add(-20*time.Second))
			}
			defer stop()
			r.ctx, r.say = ctx, t.Logf
			if *record != "" {
				defer recordTo(t, r, *record)()
			}
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
	if asked > maxSkipped {
		t.Errorf("%d blocks are skipped: at most %d may be", asked, maxSkipped)
	}
}

// Each run is a program of its own in the same folder, as for a reader who tries the snippet again.
func TestTheSnippetOfREADMEPrintsTheSameTwice(t *testing.T) {
	r := newRunner(t)
	if r.python == "" {
		t.Skip("there is no Python with pyarrow and numpy")
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	install := "```sh\npip install ./python\n```\n\n"
	_, snippet, found := strings.Cut(string(text), "```python\n")
	snippet, _, ended := strings.Cut(snippet, "\n```\n\nThe dashboard")
	if !found || !ended {
		t.Fatal("README has no snippet of Python with its output before the dashboard")
	}
	for range 2 {
		r.ctx, r.say = t.Context(), t.Logf
		outcomes, err := r.run("README.md", install+"```python\n"+snippet+"\n```\n")
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			if o.problem != "" {
				t.Errorf("%s: %s", o.text, o.problem)
			}
		}
	}
}

func TestABrokenDocumentIsRed(t *testing.T) {
	r := newRunner(t)
	doc, err := os.ReadFile("design.md")
	if err != nil {
		t.Fatal(err)
	}
	const call = "```\n$ bin/reprise design --noise-scale 1900\n"
	_, design, shown := strings.Cut(string(doc), call)
	if !shown {
		t.Fatalf("docs/design.md has no block that begins with %q", call)
	}
	design, _, _ = strings.Cut(design, "```\n")
	design = call + design + "```\n"
	for _, c := range []struct {
		name, text, want string // of the problem; "" for none
	}{
		{"the real block", design, ""},
		{"a digit of its output is another", strings.Replace(design, "J = 1.311", "J = 1.312", 1), "shows"},
		{"its last line is missing", strings.Replace(design, "    forecast.\n", "", 1), "shows"},
		{"a flag that does not exist", "```sh\nbin/reprise design --fleet 8\n```\n", "exit status"},
		{"a verb that does not exist", "```sh\nbin/reprise dezign\n```\n", "exit status"},
		{"a key that does not exist",
			"<!-- run: long -->\n```sh\nbin/reprise train --set replay.size=64 --out x\n```\n", "replay.size"},
		{"a command that fails in a pair", "```sh\ntrue\nfalse\ntrue\n```\n", "exit status 1"},
		{"an error that no longer comes", "```\n$ echo reprise: no\nreprise: no\n```\n", "did not fail"},
		{"another error", "```\n$ bin/reprise design --gpus 0\nreprise: no\n```\n", "the document shows"},
		{"a shape that is another", "<!-- run: shape -->\n```\n$ echo 12 rollouts\n1 rollout\n```\n", "shows"},
		{"the output of sh", "```sh\necho 1\necho 2\n```\n\n```\n1\n3\n```\n", "shows"},
		{"an output of nothing", "```\n1\n```\n", "nothing executes it"},
		{"YAML for nobody", "```yaml\na: 1\n```\n", "nothing executes it"},
		{"YAML with an unknown key", "```yaml\n# red.yaml\nreplay: {size: 3}\n```\n\n" +
			"```sh\nbin/reprise train -c red.yaml --set budget.updates=1 --out x\n```\n", "replay.size"},
		{"Go that does not compile", "```go\ntable := replay.New(3)\n```\n", "exit status 1"},
		{"Go whose unused variable is in an inner scope", "```go\nif true {\n\tx := 1\n}\n```\n",
			"declared and not used: x"},
		{"a service that does not start", "```sh\nbin/reprise serve --table name=a,capasity=3 &\n```\n", "capasity"},
		{"a service that prints something else", "```\n$ bin/reprise serve &\nserved\n```\n", "the document shows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.ctx, r.say = t.Context(), t.Logf
			outcomes, err := r.run("red.md", c.text)
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, o := range outcomes {
				if o.problem != "" {
					problems = append(problems, o.problem)
				}
			}
			got := strings.Join(problems, "\n")
			if len(outcomes) == 0 || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("want %q, the problems are %q", c.want, got)
			}
		})
	}
	r.ctx = t.Context()
	if r.python != "" {
		outcomes, err := r.run("red.md", "```python\nprint(1)\n```\n\n```\n2\n```\n\n```python\nimport reprize\n```\n")
		if err != nil || len(outcomes) != 3 || outcomes[0].problem != "" || outcomes[1].problem == "" ||
			!strings.Contains(outcomes[2].problem, "reprize") {
			t.Errorf("Python of another output, and of a missing module: %+v, %v", outcomes, err)
		}
	}
}

func TestTheCurrentFolderIsNotOnThePath(t *testing.T) {
	t.Setenv("PATH", "/usr/bin")
	for _, python := range []string{"", "/python"} {
		r := &runner{ctx: t.Context(), dir: "/clone", python: python}
		want := strings.TrimPrefix(python+":/clone/bin:/usr/bin", ":")
		if env := r.command(block{}, "true").Env; !slices.Contains(env, "PATH="+want) {
			t.Errorf("with the folder %q of Python: %q, want PATH=%s", python, env, want)
		}
	}
}

func TestAServiceWhosePortsAreTakenStartsAtOthers(t *testing.T) {
	r := newRunner(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, verb := range []string{"serve", "board ."} {
		r.ports = [3]string{port, port, port}
		if err := r.serve(block{}, command{text: "bin/reprise " + verb + " &"}); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		if slices.Contains(r.ports[:], port) {
			t.Errorf("%s: the ports are %v: want others than %s", verb, r.ports, port)
		}
		if err := r.endService(""); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
}
