package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk/disktest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
)

// The system calls of a process are what its promises rest on: they are recorded, and repeated on a disk in memory that
// loses power after any of them. With Off the same test must find losses.
func TestSystemCallsKeepThePromises(t *testing.T) {
	tests.Long(t)
	for _, c := range []struct {
		mode Sync
		kind string
	}{{Always, "window"}, {Always, "queue"}, {Off, "window"}} {
		t.Run(string(c.mode)+"/"+c.kind, func(t *testing.T) {
			r := record(t, c.mode, c.kind)
			over := func(e event) bool { return e.kind == "rename" && filepath.Base(e.path) == "spare" }
			for tries := 0; c.mode == Always && c.kind == "window" && !slices.ContainsFunc(r.events, over); tries++ {
				if tries == 10 {
					t.Fatalf("no segment was written over another: %s", r)
				}
				r = record(t, c.mode, c.kind) // the goroutine that trims had no time
			}
			random := rollout.Stream(1, "power", 0)
			lost := 0
			for range 60 {
				n := random.IntN(len(r.events) + 1)
				d, p := r.repeat(t, n)
				d.Restore(random)
				o := Options{Path: r.path, Sync: c.mode, Disk: d}
				_, table, recovery := reopenAndClose(t, o, childKind(c.kind))
				balanced(t, table)
				held := make(map[rollout.ID]*rollout.Rollout)
				for _, h := range table.Inspect().Held() {
					held[h.ID] = h.Rollout
				}
				for id, b := range p.given {
					if next := table.ServiceView().LastID() + 1; id+childGroup > next {
						t.Fatalf("power lost after event %d of %d: ids go on from %d, and batch %s has those from %d on",
							n, len(r.events), next, b.batch, id)
					}
				}
				if problem := p.broken(c.kind, held); problem != "" {
					if lost++; c.mode == Always {
						t.Fatalf("power lost after event %d of %d: %s\n%s", n, len(r.events), problem, recovery)
					}
				}
			}
			t.Logf("%s; %d of 60 losses of power cost something", r, lost)
			if c.mode == Off && lost < 12 {
				t.Errorf("only %d of 60 losses of power cost something without fdatasync: the test sees nothing", lost)
			}
		})
	}
}

// recording is a process's operations on a journal and its promises, in order.
type recording struct {
	path   string // of the journal
	files  map[string][]byte
	events []event
}

// event is a system call on a file or folder, or a promise.
type event struct {
	kind string // create, write, sync, truncate, rename, remove, say
	path string
	to   string // of a rename
	at   int64  // of a write; the size of a truncation
	data []byte // of a write
	line string
}

func (r *recording) String() string {
	n := make(map[string]int)
	for _, e := range r.events {
		n[e.kind]++
	}
	return fmt.Sprint(n)
}

// repeat repeats the first n events on a disk, and returns the promises until then.
func (r *recording) repeat(t *testing.T, n int) (*disktest.Simulated, *promises) {
	d, p := new(disktest.Simulated), newPromises()
	must(t, d.MakeFolder(r.path))
	for path, content := range r.files {
		d.SetContent(path, content)
	}
	for _, e := range r.events[:n] {
		switch e.kind {
		case "say":
			p.hear(t, e.line)
		case "remove":
			must(t, d.Remove(e.path))
		case "rename":
			must(t, d.Rename(e.path, e.to))
		case "sync":
			if e.path == r.path {
				must(t, d.SyncFolder(e.path))
				continue
			}
			must(t, must2(d.Open(e.path, os.O_RDWR))(t).Sync())
		default:
			f := must2(d.Open(e.path, os.O_RDWR|os.O_CREATE))(t)
			switch e.kind {
			case "write":
				_, err := f.WriteAt(e.data, e.at)
				must(t, err)
			case "truncate":
				must(t, f.Truncate(e.at))
			}
		}
	}
	return d, p
}

// record runs a child and records, by ptrace, every system call on its journal.
func record(t *testing.T, mode Sync, kind string) *recording {
	t.Helper()
	o := onDisk(t)
	must(t, create(t, o, newTable(t, childKind(kind))).Close())
	r := &recording{path: o.Path, files: make(map[string][]byte)}
	for _, path := range segmentsIn(t, o) {
		r.files[path] = must2(os.ReadFile(path))(t)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := childCommand(o.Path, mode, kind, "power", 25)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("this machine does not permit ptrace: %v", err)
		}
		t.Fatal(err)
	}
	(&tracer{t: t, pid: cmd.Process.Pid, recording: r, calls: make(map[int]*event), inside: make(map[int]bool)}).run(cmd)
	if n := len(r.events); n < 30 {
		t.Fatalf("%d events were recorded", n)
	}
	// It must give the files that the process left, but for the write that may have begun when it was killed.
	last := len(r.events) - 1
	for r.events[last].kind != "write" {
		last--
	}
	d, _ := r.repeat(t, len(r.events))
	before, _ := r.repeat(t, last)
	names := must2(d.List(r.path))(t)
	for _, path := range segmentsIn(t, o) {
		if !slices.Contains(names, filepath.Base(path)) {
			continue // it got its name while the process was killed
		}
		left := must2(os.ReadFile(path))(t)
		if !bytes.Equal(left, d.Content(path)) && !bytes.Equal(left, before.Content(path)) {
			t.Fatalf("the recording ends in another file %s than the process", path)
		}
	}
	return r
}

// tracer follows all threads of a process from system call to system call.
type tracer struct {
	t         *testing.T
	pid       int
	recording *recording
	calls     map[int]*event // by thread: the call it is in, whose end is awaited; nil: of no interest
	inside    map[int]bool
	memory    *os.File
	said      int
}

// Linux constants that package syscall lacks, and the number of promises after which the process is killed: a queue's
// child goes on for ever.
const (
	waitAllThreads = 0x40000000 // __WALL
	exitKill       = 0x100000   // PTRACE_O_EXITKILL
	afterCall      = syscall.SIGTRAP | 0x80
	enough         = 250
)

func (tr *tracer) run(cmd *exec.Cmd) {
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(tr.pid, &ws, waitAllThreads, nil)
	must(tr.t, err)
	tr.memory = must2(os.Open(fmt.Sprintf("/proc/%d/mem", tr.pid)))(tr.t)
	defer tr.memory.Close()
	must(tr.t, syscall.PtraceSetOptions(tr.pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|exitKill))
	must(tr.t, syscall.PtraceSyscall(tr.pid, 0))
	for {
		thread, err := syscall.Wait4(-1, &ws, waitAllThreads, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		must(tr.t, err)
		if ws.Exited() || ws.Signaled() {
			if thread == tr.pid {
				cmd.Process.Release() //nolint:errcheck // it is waited for already
				return
			}
			continue
		}
		signal := 0
		switch stop := ws.StopSignal(); {
		case stop == afterCall:
			tr.call(thread)
		case stop == syscall.SIGTRAP || stop == syscall.SIGSTOP: // a new thread, or where it began
		default:
			signal = int(stop)
		}
		if err := syscall.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			tr.t.Fatal(err)
		}
		if tr.said >= enough {
			must(tr.t, syscall.Kill(tr.pid, syscall.SIGKILL))
			tr.said = -1 << 30
		}
	}
}

// call handles the beginning or the end of a system call.
func (tr *tracer) call(thread int) {
	tr.inside[thread] = !tr.inside[thread]
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(thread, &regs); err != nil {
		return // it was killed
	}
	if !tr.inside[thread] {
		if e := tr.calls[thread]; e != nil && int64(regs.Rax) >= 0 {
			tr.recording.events = append(tr.recording.events, *e)
		}
		tr.calls[thread] = nil
		return
	}
	path, ours := tr.file(regs.Rdi)
	switch regs.Orig_rax {
	case syscall.SYS_WRITE:
		if regs.Rdi == 1 {
			tr.said++
			tr.recording.events = append(tr.recording.events,
				event{kind: "say", line: strings.TrimSpace(string(tr.read(regs.Rsi, regs.Rdx)))})
		}
	case syscall.SYS_OPENAT:
		name := tr.text(regs.Rsi)
		if filepath.Dir(name) == tr.recording.path && regs.Rdx&syscall.O_CREAT != 0 {
			tr.calls[thread] = &event{kind: "create", path: name}
		}
	case syscall.SYS_UNLINKAT:
		if name := tr.text(regs.Rsi); filepath.Dir(name) == tr.recording.path {
			tr.calls[thread] = &event{kind: "remove", path: name}
		}
	case syscall.SYS_RENAMEAT:
		if name := tr.text(regs.Rsi); filepath.Dir(name) == tr.recording.path {
			tr.calls[thread] = &event{kind: "rename", path: name, to: tr.text(regs.R10)}
		}
	case syscall.SYS_PWRITE64: // may be on the disk as soon as it has begun
		if ours {
			tr.recording.events = append(tr.recording.events,
				event{kind: "write", path: path, at: int64(regs.R10), data: tr.read(regs.Rsi, regs.Rdx)})
		}
	case syscall.SYS_FDATASYNC, syscall.SYS_FSYNC:
		if ours {
			tr.calls[thread] = &event{kind: "sync", path: path}
		}
	case syscall.SYS_FTRUNCATE:
		if ours {
			tr.calls[thread] = &event{kind: "truncate", path: path, at: int64(regs.Rsi)}
		}
	case syscall.SYS_FALLOCATE, syscall.SYS_PWRITEV, syscall.SYS_WRITEV, syscall.SYS_MSYNC:
		if ours {
			tr.t.Errorf("the journal was changed by system call %d, which the test does not know", regs.Orig_rax)
		}
	}
}

// file returns the path of an open file, and whether it is the journal's folder or in it.
func (tr *tracer) file(fd uint64) (string, bool) {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tr.pid, fd))
	return name, err == nil && (name == tr.recording.path || filepath.Dir(name) == tr.recording.path)
}

func (tr *tracer) read(at, n uint64) []byte {
	b := make([]byte, n)
	_, err := tr.memory.ReadAt(b, int64(at))
	must(tr.t, err)
	return b
}

// text reads a path that ends with a zero.
func (tr *tracer) text(at uint64) string {
	var b []byte
	for one := make([]byte, 1); len(b) < 4096; at++ {
		if _, err := tr.memory.ReadAt(one, int64(at)); err != nil || one[0] == 0 {
			break
		}
		b = append(b, one[0])
	}
	return string(b)
}
