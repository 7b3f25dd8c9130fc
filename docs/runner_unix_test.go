//go:build unix

package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/cpu"
)

// shell is sourced by every command: it gives services their ports, and training its short form.
const shell = `
reprise() {
	if [ "$1" = serve ] && [ -n "$READY" ]; then
		[[ " $* " == *" --listen"[\ =]* ]] || set -- "$@" --listen "127.0.0.1:$GRPC"
		[[ " $* " == *" --http"[\ =]* ]] || set -- "$@" --http "127.0.0.1:$HTTP"
		exec "$PROGRAM" "$@" --ready-file "$READY"
	elif [ "$1" = board ] && [ -n "$READY" ]; then
		exec "$PROGRAM" "$@" --listen "127.0.0.1:$BOARD"
	elif [[ "$1" = train || "$1" = up ]] && [ -n "$SHORT" ] && [[ " $* " != *" --resume "* ]]; then
		set -- "$@" --set warmup.steps=0 --set warmup.seed=own --set evaluate.every=1 --set budget.updates=0 \
			--set budget.compute=1
	elif [ "$1" = study ] && [ -n "$SHORT" ] && [ $# -gt 1 ]; then
		set -- "$@" --quick --seeds 1
	fi
	"$PROGRAM" "$@"
}
bin/reprise() { reprise "$@"; }
go() {
	[ -n "$SHORT" ] && [ "$1" = run ] && set -- "$@" warmup.steps=0 evaluate.every=1 budget.compute=1
	command go "$@"
}
`

// interpreter runs a document's Python blocks, one JSON string a line, in one scope.
const interpreter = `
import contextlib, io, json, sys, traceback
scope = {}
for line in sys.stdin:
    out, failed = io.StringIO(), False
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(json.loads(line), "the block", "exec"), scope)
        except BaseException:
            print(traceback.format_exc())
            failed = True
    print(json.dumps({"out": out.getvalue(), "failed": failed}), flush=True)
`

// outcome is the result of a command or a block.
type outcome struct {
	doc     string
	line    int
	text    string
	seconds float64
	skipped string // the reason
	problem string
}

// runner executes documents in a folder. It is for one goroutine.
type runner struct {
	ctx      context.Context
	dir      string                          // a clone of the repository, with bin/reprise
	compiler string                          // the folder of another go; "": there is none
	long     bool                            // the long form
	python   string                          // the folder of the programs python and pip; without it Python is skipped
	terminal func(*exec.Cmd) ([]byte, error) // runs a command and returns what it showed
	say      func(format string, args ...any)
	packages map[string]string // import paths of Go packages, by name

	ports    [3]string
	service  *service
	outcomes []outcome
	installs map[string]bool // commands of an installation that have run
}

// service is a `reprise serve` or `reprise board` in the background.
type service struct {
	cmd   *exec.Cmd
	ended chan error
	log   string
	block block
	shown command
}

// run executes a document and returns what became of its commands.
func (r *runner) run(doc, text string) ([]outcome, error) {
	blocks, err := parse(doc, text)
	if err != nil {
		return nil, err
	}
	r.outcomes = nil
	if r.ports, err = freePorts(); err != nil {
		return nil, err
	}
	var eval func(string) (string, bool, error)
	printed, compared, cut := "", false, false // the output of the block before, and whether it is whole, or cut
	for _, b := range blocks {
		if reason := r.skips(b); reason != "" {
			r.outcomes = append(r.outcomes, outcome{doc: doc, line: b.line, skipped: reason})
			printed, compared, cut = "", false, true
			continue
		}
		full := r.full(b)
		name, isFile := named(b)
		output := b.language == "" && !strings.HasPrefix(b.text, "$ ") && !strings.HasPrefix(b.text, "^C\n")
		if !output {
			printed, compared, cut = "", false, !full
		}
		switch {
		case isFile:
			r.do(b, b.line, "write "+name, func() error {
				return writeFile(filepath.Join(r.dir, name), r.local(b.text))
			})
		case b.language != "" && r.isExcerpt(b.text):
			r.outcomes = append(r.outcomes, outcome{doc: doc, line: b.line, text: "an excerpt of a file of examples"})
		case b.language == "python":
			if eval == nil {
				var end func()
				if eval, end, err = r.interpreter(); err != nil {
					return nil, err
				}
				defer end()
			}
			r.do(b, b.line, "python", func() error {
				out, failed, err := eval(r.local(b.before + b.text))
				if failed {
					err = fmt.Errorf("it failed:\n%s", out)
				}
				printed, compared = out, true
				return err
			})
		case b.language == "go":
			r.do(b, b.line, "go", func() (err error) {
				printed, err = r.runGo(b)
				compared = true
				return err
			})
		case b.language == "sh":
			compared = full
			for _, c := range script(b) {
				printed += r.execute(b, c)
			}
		case b.language == "" && !output:
			for _, c := range session(b) {
				r.execute(b, c)
			}
		case output && compared:
			_, shape := b.mode("shape")
			r.do(b, b.line, "output", func() error { return r.compare(b.text, printed, shape) })
		case output && cut:
			r.outcomes = append(r.outcomes, outcome{doc: doc, line: b.line,
				skipped: "the output of what is skipped or shortened"})
		default:
			r.outcomes = append(r.outcomes, outcome{doc: doc, line: b.line,
				problem: "nothing executes it: it follows no command, or is YAML that names no file in its first line"})
		}
	}
	if s := r.service; s != nil {
		r.do(s.block, s.shown.line, "end of the service", func() error { return r.endService("") })
	}
	return r.outcomes, nil
}

// writeFile writes a file, and makes its folder if there is none.
func writeFile(path, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// isExcerpt reports whether a file of examples, which has tests of its own, contains a text.
func (r *runner) isExcerpt(text string) bool {
	files, _ := filepath.Glob(filepath.Join(r.dir, "examples", "*", "*"))
	return slices.ContainsFunc(files, func(file string) bool {
		content, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(content), text)
	})
}

// freePorts returns three ports of loopback that nobody uses now.
func freePorts() (ports [3]string, err error) {
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports, err
		}
		defer l.Close()
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	return ports, nil
}

// skips returns why a block is not executed, if it is not.
func (r *runner) skips(b block) string {
	if reason, ok := b.mode("skip"); ok {
		return reason
	}
	if _, ok := b.mode("hours"); ok && !r.long {
		return "hours: the long form runs it shortened"
	}
	if b.language == "python" && r.python == "" {
		return "there is no Python with pyarrow and numpy"
	}
	name, ok := b.mode("needs")
	if !ok {
		return ""
	}
	if _, err := exec.LookPath(name); err == nil {
		return ""
	}
	data, err := filepath.Abs(filepath.Join("..", "..", "shared", "data", name))
	if _, missing := os.Stat(data); err == nil && missing == nil {
		if err := os.Symlink(data, filepath.Join(r.dir, name)); err == nil || errors.Is(err, os.ErrExist) {
			return ""
		}
	}
	if r.python != "" {
		python := filepath.Join(r.python, "python")
		if exec.CommandContext(r.ctx, python, "-c", "import "+name).Run() == nil {
			return ""
		}
	}
	return "needs " + name
}

// full reports whether a block runs at its full size.
func (r *runner) full(b block) bool {
	_, long := b.mode("long")
	_, hours := b.mode("hours")
	return !hours && (r.long || !long)
}

// do records what a step does.
func (r *runner) do(b block, line int, text string, step func() error) {
	began := time.Now()
	o := outcome{doc: b.doc, line: line, text: text}
	if err := step(); err != nil {
		o.problem = err.Error()
	}
	o.seconds = time.Since(began).Seconds()
	r.outcomes = append(r.outcomes, o)
	r.say("%s:%d: %.1f s: %s", o.doc, o.line, o.seconds, strings.SplitN(text, "\n", 2)[0])
}

// roundsAlike reports whether the processor can round as that on which the documents were written: products of vectors
// of 256 bits. Elsewhere outputs are compared by shape.
var roundsAlike = cpu.X86.HasAVX2 && cpu.X86.HasFMA

func (r *runner) compare(shown, printed string, shape bool) error {
	if printed = r.documented(printed); !matches(shown, printed, shape || !roundsAlike) {
		return fmt.Errorf("it printed\n%s\nbut the document shows\n%s", printed, shown)
	}
	return nil
}

// local replaces the ports of a document by those of this run. documented does the opposite, and leaves out what only
// a slow machine prints.
func (r *runner) local(text string) string {
	return strings.NewReplacer(":7447", ":"+r.ports[0], ":7448", ":"+r.ports[1], ":6007", ":"+r.ports[2]).Replace(text)
}

func (r *runner) documented(text string) string {
	ports := strings.NewReplacer(":"+r.ports[0], ":7447", ":"+r.ports[1], ":7448", ":"+r.ports[2], ":6007")
	return laterProgress.ReplaceAllString(ports.Replace(text), "")
}

var (
	serves = regexp.MustCompile(`^(bin/)?reprise (serve|board)\b`)
	fails  = regexp.MustCompile(`(?m)^reprise: `)
	// installs are commands that leave the same whenever they run: documents say them again, and one runs.
	installs = regexp.MustCompile(`^(make build|pip install \S+)( *#.*)?$`)
)

// execute runs a command of a block and returns what it printed.
func (r *runner) execute(b block, c command) (printed string) {
	if c.text == "make test" {
		r.outcomes = append(r.outcomes, outcome{doc: b.doc, line: c.line, text: c.text, skipped: "it runs this test"})
		return ""
	}
	if installs.MatchString(c.text) {
		if r.installs[c.text] {
			r.outcomes = append(r.outcomes, outcome{doc: b.doc, line: c.line, text: c.text, skipped: "it has run before"})
			return ""
		}
		if r.installs == nil {
			r.installs = make(map[string]bool)
		}
		r.installs[c.text] = true
	}
	if c.text == "" { // ^C
		r.do(b, c.line, "^C", func() error {
			if r.service == nil {
				return errors.New("no service runs")
			}
			return r.endService(c.output)
		})
		return ""
	}
	r.do(b, c.line, c.text, func() (err error) {
		fail := fails.MatchString(c.output)
		if serves.MatchString(c.text) && !fail {
			return errors.Join(r.endService(""), r.serve(b, c))
		}
		if name, ok := strings.CutPrefix(c.text, "cat "); ok { // shows a file that the reader makes
			return os.WriteFile(filepath.Join(r.dir, name), []byte(c.output), 0o644)
		}
		out, err := r.terminal(r.command(b, c.text))
		printed = string(out)
		switch {
		case err != nil && !fail:
			return fmt.Errorf("%w:\n%s", err, printed)
		case err == nil && fail:
			return errors.New("it did not fail")
		case c.shown && r.full(b):
			_, shape := b.mode("shape")
			return r.compare(c.output, printed, shape)
		}
		return nil
	})
	return printed
}

// command returns the shell that runs a command.
func (r *runner) command(b block, text string) *exec.Cmd {
	if !r.full(b) && text == "make demo" {
		text = `eval "$(make -n demo | grep ^bin/reprise)"`
	}
	cmd := exec.CommandContext(r.ctx, "bash", "-c", r.local(text))
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	folders := []string{r.compiler, r.python, filepath.Join(r.dir, "bin"), os.Getenv("PATH")}
	folders = slices.DeleteFunc(folders, func(dir string) bool { return dir == "" }) // "" is the current folder
	cmd.Env = append(os.Environ(), "BASH_ENV="+filepath.Join(r.dir, ".git", "shell.sh"),
		"PROGRAM="+filepath.Join(r.dir, "bin", "reprise"), "GRPC="+r.ports[0], "HTTP="+r.ports[1], "BOARD="+r.ports[2],
		"PATH="+strings.Join(folders, string(os.PathListSeparator)), "PIP_DISABLE_PIP_VERSION_CHECK=1",
		"MAKELEVEL=0", "MAKEFLAGS=") // a reader's make runs in no other
	if !r.full(b) {
		cmd.Env = append(cmd.Env, "SHORT=1")
	}
	if roundsAlike {
		cmd.Env = append(cmd.Env, "GODEBUG=simd=+256", "GOMLX_GO_SIMD_AVX512=false")
	}
	return cmd
}

// maxStarts bounds how often a service is started whose ports another program took.
const maxStarts = 5

// serve starts a service and returns once it has bound its addresses. It tries new ports if others took them.
func (r *runner) serve(b block, c command) error {
	for starts := 1; ; starts++ {
		err := r.start(b, c)
		if err == nil || starts == maxStarts || !strings.Contains(err.Error(), "is in use: another program") {
			return err
		}
		if r.ports, err = freePorts(); err != nil {
			return err
		}
	}
}

// start starts a service once.
func (r *runner) start(b block, c command) error {
	ready := filepath.Join(r.dir, ".git", "ready")
	if err := os.RemoveAll(ready); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.dir, ".git", "service.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := r.command(b, strings.TrimRight(c.text, "& "))
	cmd.Env = append(cmd.Env, "READY="+ready)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	s := &service{cmd: cmd, log: out.Name(), shown: c, block: b, ended: make(chan error, 1)}
	go func() { s.ended <- cmd.Wait() }()
	for {
		_, err := os.Stat(ready)
		printed, _ := os.ReadFile(s.log)
		if err == nil || bytes.Contains(printed, []byte("Ctrl-C stops it\n")) {
			r.service = s
			return nil
		}
		select {
		case err := <-s.ended:
			text, _ := os.ReadFile(s.log)
			return fmt.Errorf("it ended: %w\n%s", err, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// endService interrupts the service, if one runs, and compares what it printed with what the document shows, at the
// end with last.
func (r *runner) endService(last string) error {
	s := r.service
	if s == nil {
		return nil
	}
	r.service = nil
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := <-s.ended; err != nil {
		return fmt.Errorf("the service: %w", err)
	}
	printed, err := os.ReadFile(s.log)
	if err != nil || !s.shown.shown {
		return err
	}
	_, shape := s.block.mode("shape")
	return r.compare(s.shown.output+"…\n"+last, string(printed), shape)
}

// interpreter starts Python, and returns what evaluates code in it, and what ends it.
func (r *runner) interpreter() (eval func(code string) (out string, failed bool, err error), end func(), err error) {
	cmd := r.command(block{}, "exec python -u -W ignore -c "+"'"+interpreter+"'")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	answers := json.NewDecoder(pipe)
	eval = func(code string) (string, bool, error) {
		if err := json.NewEncoder(in).Encode(code); err != nil {
			return "", false, err
		}
		var answer struct {
			Out    string
			Failed bool
		}
		if err := answers.Decode(&answer); err != nil {
			return "", false, fmt.Errorf("the interpreter: %w: %s", err, &stderr)
		}
		return answer.Out, answer.Failed, nil
	}
	return eval, func() { _, _ = in.Close(), cmd.Wait() }, nil
}

var (
	qualified = regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)
	unused    = regexp.MustCompile(`declared and not used: (\w+)`)
)

// runGo compiles a block as the body of main, with the imports that it needs, and runs it. Unlike the compiler it takes
// unused variables in the scope of the body.
func (r *runner) runGo(b block) (string, error) {
	if r.packages == nil {
		cmd := exec.CommandContext(r.ctx, "go", "list", "./...", "./lab/...", "std")
		cmd.Dir = r.dir
		out, err := cmd.Output()
		if err != nil {
			return "", err
		}
		r.packages = make(map[string]string)
		for p := range strings.FieldsSeq(string(out)) {
			if name := path.Base(p); r.packages[name] == "" {
				r.packages[name] = p
			}
		}
	}
	body := b.before + b.text
	used := make(map[string]bool) // by a line that this function added
	for {
		var imports []string
		for _, m := range qualified.FindAllStringSubmatch(body, -1) {
			if p := r.packages[m[1]]; p != "" && !slices.Contains(imports, fmt.Sprintf("%q", p)) {
				imports = append(imports, fmt.Sprintf("%q", p))
			}
		}
		source := "package main\n\nimport (\n" + strings.Join(imports, "\n") + "\n)\n\nfunc main() {\n" + body + "\n}\n"
		file := filepath.Join(r.dir, "bin", "block", "main.go")
		if err := writeFile(file, source); err != nil {
			return "", err
		}
		out, err := r.command(b, "go run ./bin/block").CombinedOutput()
		names := unused.FindAllStringSubmatch(string(out), -1)
		inner := func(m []string) bool { return used[m[1]] } // a line at the body's end does not use it
		switch {
		case err == nil:
			return string(out), nil
		case len(names) == 0 || slices.ContainsFunc(names, inner):
			return string(out), fmt.Errorf("%w:\n%s", err, out)
		}
		for _, m := range names {
			used[m[1]] = true
			body += "\n_ = " + m[1]
		}
	}
}
