package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/internal/process"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/task"
)

// grace is how long a program may take to end by itself after its standard input was closed.
const grace = 2 * time.Second

// program is a running child. Its standard error is ours.
type program struct {
	stdin   io.WriteCloser
	timeout time.Duration
	most    float64 // the largest reward

	exited chan struct{} // closed when the child was waited for
	exit   error         // of the child, once exited is closed
	done   chan struct{} // closed when its answers were read

	writing sync.Mutex // one question at a time

	mu       sync.Mutex
	process  *os.Process // nil: waited for
	next     uint64
	waiting  map[uint64]*pending // by id
	err      error               // why there are no more answers
	lastSeen time.Time           // of the child, or when the first question began to wait
	watchdog *time.Timer
}

// pending is a question that waits for its answer.
type pending struct {
	question []byte
	verdict  chan answer // closed without one if the program failed
}

// start starts the program of settings.
func start(s Settings) (*program, error) {
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Stderr = os.Stderr
	process.Isolate(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, ours, err := os.Pipe() // not cmd's own, which Wait closes before all answers were read
	if err != nil {
		return nil, err
	}
	cmd.Stdout = ours
	p := &program{
		stdin: stdin, timeout: time.Duration(s.Timeout * float64(time.Second)), most: s.MaxReward,
		waiting: map[uint64]*pending{}, exited: make(chan struct{}), done: make(chan struct{}),
	}
	started := make(chan error)
	go p.wait(cmd, stdout, started)
	err = errors.Join(<-started, ours.Close())
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	p.mu.Lock()
	p.watchdog = time.AfterFunc(p.timeout, p.watch)
	p.mu.Unlock()
	go p.read(stdout)
	return p, nil
}

// wait starts the child and waits for it. It stays on one thread: on Linux the child is killed when this thread ends,
// which happens when the process is killed. Once the child has ended, its standard output is read for a grace period
// only: a descendant in a session of its own survives process.KillGroup and may hold the output open.
func (p *program) wait(cmd *exec.Cmd, stdout *os.File, started chan<- error) {
	runtime.LockOSThread()
	err := cmd.Start()
	p.process = cmd.Process
	started <- err
	if err != nil {
		return
	}
	p.exit = cmd.Wait()
	p.mu.Lock()
	process.KillGroup(p.process) // whatever it has started
	p.process = nil
	p.mu.Unlock()
	_ = stdout.SetReadDeadline(time.Now().Add(grace)) // an error means that it is closed
	close(p.exited)
}

// kill kills the child and its children.
func (p *program) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		process.KillGroup(p.process)
	}
}

// ask sends a question and waits for its answer.
func (p *program) ask(q question) (answer, error) {
	asked := &pending{verdict: make(chan answer, 1)}
	p.mu.Lock()
	q.ID = p.next
	p.next++
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	err := errors.Join(p.err, e.Encode(q))
	if err != nil {
		p.mu.Unlock()
		return answer{}, err
	}
	asked.question = line.Bytes()
	if len(p.waiting) == 0 {
		p.lastSeen = time.Now()
		p.watchdog.Reset(p.timeout)
	}
	p.waiting[q.ID] = asked
	p.mu.Unlock()

	p.writing.Lock()
	_, _ = p.stdin.Write(asked.question) // if it reads no more, it has ended or counts as hung
	p.writing.Unlock()
	if a, ok := <-asked.verdict; ok {
		return a, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return answer{}, p.err
}

// read reads answers until the child closes its standard output, the grace period after its end is over, or an answer
// is wrong.
func (p *program) read(stdout *os.File) {
	defer close(p.done)
	defer stdout.Close()
	err := task.EachLine(stdout, p.take)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		p.fail(fmt.Errorf("answered wrongly: %w", err))
	}
	p.stop() // it gives no more answers
	how := "its standard output was closed"
	if p.exit != nil {
		how = p.exit.Error()
	}
	p.fail(fmt.Errorf("ended (%s): its standard error tells why; it must answer until its standard input ends", how))
}

// take takes a line of the child.
func (p *program) take(_ int, line []byte) error {
	a, err := readAnswer(line, p.most)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, ok := p.waiting[*a.ID]
	if !ok {
		return fmt.Errorf("id %d: no question with this id waits: answer each question once, with its id", *a.ID)
	}
	asked.verdict <- a
	delete(p.waiting, *a.ID)
	p.lastSeen = time.Now()
	return nil
}

// watch fails the program if questions wait and the program said nothing for the timeout.
func (p *program) watch() {
	p.mu.Lock()
	silent := time.Since(p.lastSeen)
	hung := len(p.waiting) > 0 && silent >= p.timeout
	if len(p.waiting) > 0 && !hung {
		p.watchdog.Reset(p.timeout - silent)
	}
	p.mu.Unlock()
	if hung {
		p.fail(fmt.Errorf("gave no answer for %v: answer each line at once, and flush it, or set task.timeout",
			p.timeout))
	}
}

// fail records the first error, releases every waiting question and kills the program. The error names the question
// that waited longest.
func (p *program) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
		if len(p.waiting) > 0 {
			oldest := slices.Min(slices.Collect(maps.Keys(p.waiting)))
			p.err = fmt.Errorf("%w. %s; the first is\n%.300s", err,
				words.Plural(len(p.waiting), "question waits", "questions wait"),
				bytes.TrimSpace(p.waiting[oldest].question))
		}
		for _, asked := range p.waiting {
			close(asked.verdict)
		}
		clear(p.waiting)
	}
	p.mu.Unlock()
	p.kill()
}

// stop ends the child: by the end of its input, or by force.
func (p *program) stop() {
	p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(grace):
		p.kill()
		<-p.exited
	}
}

// end stops the program and waits until its output is read.
func (p *program) end() {
	p.stop()
	<-p.done
	p.watchdog.Stop()
}
