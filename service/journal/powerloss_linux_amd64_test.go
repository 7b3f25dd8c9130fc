package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// After a loss of power at any moment, with any unsynced writes dropped or torn into sectors, everything acknowledged
// is there and the file is intact. With Off the same test must find losses.
func TestAcknowledgedDataSurvivesPowerLoss(t *testing.T) {
	for _, kind := range []string{"window", "queue"} {
		t.Run(kind, func(t *testing.T) {
			r := record(t, Always, kind)
			random := rollout.Stream(1, "power", 0)
			for i := range 120 {
				at := random.IntN(len(r.events) + 1)
				file, p := r.after(t, random, at)
				if problem := lossOf(file, kind, p); problem != "" {
					t.Fatalf("power lost after event %d of %d: %s", at, len(r.events), problem)
				}
				if i%20 == 0 {
					opens(t, file, kind)
				}
			}
			t.Logf("%s", r)
		})
	}
	t.Run("interval", func(t *testing.T) { // a table as of some moment
		r := record(t, Interval, "window")
		random := rollout.Stream(1, "power", 0)
		for range 50 {
			at := random.IntN(len(r.events) + 1)
			file, _ := r.after(t, random, at)
			if problem := lossOf(file, "window", newPromises()); problem != "" {
				t.Fatalf("power lost after event %d of %d: %s", at, len(r.events), problem)
			}
		}
		t.Logf("%s", r)
	})
	t.Run("off", func(t *testing.T) {
		r := record(t, Off, "window")
		random := rollout.Stream(1, "power", 0)
		lost := 0
		for range 40 {
			file, p := r.after(t, random, random.IntN(len(r.events)+1))
			if lossOf(file, "window", p) != "" {
				lost++
			}
		}
		t.Logf("%s; %d of 40 losses of power cost something", r, lost)
		if lost < 12 {
			t.Errorf("only %d of 40 losses of power cost something without fdatasync: the test sees nothing", lost)
		}
	})
}

// lossOf returns how a file breaks the promises, "" if it keeps them.
func lossOf(file []byte, kind string, p *promises) string {
	_, c, report := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	if !report.Whole() {
		return report.String()
	}
	held := make(map[rollout.ID]*rollout.Rollout)
	for _, k := range c.rollouts {
		held[k.ID] = k.Rollout
	}
	return p.broken(kind, held, c.table.LastID)
}

// opens opens a file as a journal.
func opens(t *testing.T, file []byte, kind string) {
	t.Helper()
	o := Options{Path: filepath.Join(t.TempDir(), "power"), Sync: Off}
	must(t, os.WriteFile(o.Path, file, 0o600))
	j, table, _ := reopen(t, o, childKind(kind))
	balanced(t, table)
	must(t, j.Close())
}

// recording is a process's operations on a file and its promises, in order.
type recording struct {
	base   []byte // of the file, when it began
	left   []byte // of the file, when it ended
	events []event
}

// event is a write, a finished sync, a change of size, or a promise; for a new file also the rename and the sync of its
// folder.
type event struct {
	kind string // write, sync, truncate, say, rename, folder
	at   int64  // of a write; the size of a truncation
	data []byte // of a write
	line string
}

func (r *recording) String() string {
	n := make(map[string]int)
	for _, e := range r.events {
		n[e.kind]++
	}
	return fmt.Sprintf("%d writes, %d syncs, %d changes of size, %d promises", n["write"], n["sync"],
		n["truncate"], n["say"])
}

const sector = 512

// after returns the file after the first n events and a loss of power, and the promises until then. Of the unsynced
// writes all, none, some, or some sectors are on the disk.
func (r *recording) after(t *testing.T, random *rand.Rand, n int) ([]byte, *promises) {
	p, file := newPromises(), slices.Clone(r.base)
	synced := 0
	for i, e := range r.events[:n] {
		switch e.kind {
		case "say":
			p.hear(t, e.line)
		case "sync":
			for _, w := range r.events[synced:i] {
				file = w.write(file, func(int) bool { return true })
			}
			synced = i
		}
	}
	how := random.IntN(4)
	for _, w := range r.events[synced:n] {
		whole := how == 1 || how == 2 && random.IntN(2) == 0
		file = w.write(file, func(int) bool { return whole || how == 3 && random.IntN(2) == 0 })
	}
	return file, p
}

// write applies the kept sectors of a write to a file.
func (e *event) write(file []byte, keep func(sector int) bool) []byte {
	if e.kind != "write" {
		return file // sizes only grow, and before anything is written there
	}
	for from := 0; from < len(e.data); from += sector {
		if !keep(from / sector) {
			continue
		}
		piece := e.data[from:min(from+sector, len(e.data))]
		if need := int(e.at) + from + len(piece); need > len(file) {
			file = append(file, make([]byte, need-len(file))...)
		}
		copy(file[int(e.at)+from:], piece)
	}
	return file
}

// record runs a child and records, by ptrace, every system call on its journal.
func record(t *testing.T, mode Sync, kind string) *recording {
	t.Helper()
	o := in(t)
	r := &recording{}
	if kind != "anew" {
		must(t, create(t, o, newTable(t, childKind(kind))).Close())
		r.base = fileOf(t, o.Path)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rounds, enough := 25, 250
	if mode == Interval { // nobody waits for the disk
		rounds, enough = 500, 10_000
	}
	cmd := childCommand(o.Path, mode, kind, "power", rounds)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("this machine does not permit ptrace: %v", err)
		}
		t.Fatal(err)
	}
	(&tracer{t: t, path: o.Path, pid: cmd.Process.Pid, recording: r, enough: enough,
		calls: make(map[int]*event)}).run(cmd)
	r.left = must2(os.ReadFile(o.Path))(t)
	if n := len(r.events); n < 30 {
		t.Fatalf("%d events were recorded", n)
	}
	return r
}

// tracer follows all threads of a process from system call to system call.
type tracer struct {
	t         *testing.T
	path      string
	pid       int
	recording *recording
	calls     map[int]*event // by thread: the call it is in, whose end is awaited; nil: of no interest
	inside    map[int]bool
	memory    *os.File
	said      int
	enough    int // promises, after which the process is killed: a queue's child goes on for ever
}

// Linux constants that package syscall lacks.
const (
	waitAllThreads = 0x40000000 // __WALL
	exitKill       = 0x100000   // PTRACE_O_EXITKILL
	renameat2      = 316
	afterCall      = syscall.SIGTRAP | 0x80
)

func (tr *tracer) run(cmd *exec.Cmd) {
	tr.inside = make(map[int]bool)
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
		if tr.said >= tr.enough {
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
	switch regs.Orig_rax {
	case syscall.SYS_PWRITE64:
		if tr.isJournal(regs.Rdi) { // may be on the disk as soon as it has begun
			tr.recording.events = append(tr.recording.events,
				event{kind: "write", at: int64(regs.R10), data: tr.read(regs.Rsi, regs.Rdx)})
		}
	case syscall.SYS_WRITE:
		switch {
		case regs.Rdi == 1:
			tr.said++
			tr.recording.events = append(tr.recording.events,
				event{kind: "say", line: strings.TrimSpace(string(tr.read(regs.Rsi, regs.Rdx)))})
		case tr.isJournal(regs.Rdi):
			tr.t.Errorf("the journal was written to by write")
		}
	case syscall.SYS_FDATASYNC, syscall.SYS_FSYNC:
		switch {
		case tr.isJournal(regs.Rdi):
			tr.calls[thread] = &event{kind: "sync"}
		case tr.is(regs.Rdi, filepath.Dir(tr.path)):
			tr.calls[thread] = &event{kind: "folder"}
		}
	case syscall.SYS_RENAME, syscall.SYS_RENAMEAT, renameat2:
		tr.calls[thread] = &event{kind: "rename"}
	case syscall.SYS_FTRUNCATE:
		if tr.isJournal(regs.Rdi) {
			tr.calls[thread] = &event{kind: "truncate", at: int64(regs.Rsi)}
		}
	case syscall.SYS_FALLOCATE, syscall.SYS_PWRITEV, syscall.SYS_WRITEV, syscall.SYS_MSYNC:
		if tr.isJournal(regs.Rdi) {
			tr.t.Errorf("the journal was changed by system call %d, which the test does not know", regs.Orig_rax)
		}
	}
}

func (tr *tracer) isJournal(fd uint64) bool { return tr.is(fd, tr.path) || tr.is(fd, tr.path+".new") }

func (tr *tracer) is(fd uint64, path string) bool {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tr.pid, fd))
	return err == nil && name == path
}

func (tr *tracer) read(at, n uint64) []byte {
	b := make([]byte, n)
	_, err := tr.memory.ReadAt(b, int64(at))
	must(tr.t, err)
	return b
}

// Replaying the whole recording must give the file that the process left.
func TestARecordingReproducesTheFile(t *testing.T) {
	r := record(t, Always, "window")
	file, p := r.after(t, rand.New(allKept{}), len(r.events))
	if len(file) > len(r.left) || !bytes.Equal(file, r.left[:len(file)]) || bytes.ContainsFunc(r.left[len(file):],
		func(r rune) bool { return r != 0 }) {
		t.Error("the recording ends in another file than the process")
	}
	_, c, report := examineBytes(bytes.NewReader(file), int64(len(file)), true)
	if !report.Whole() || len(p.acked) != 25*childClients || c.table.LastID != 25*childClients*childGroup {
		t.Errorf("%d batches were acknowledged: %s", len(p.acked), report)
	}
}

// allKept is a random source that keeps every write.
type allKept struct{}

func (allKept) Uint64() uint64 { return 1 << 62 }

// A new or rewritten journal is renamed into place after its content is on disk, and acknowledged after the rename is.
func TestANewJournalIsOnDiskBeforeItIsNamed(t *testing.T) {
	r := record(t, Always, "anew")
	unsynced, renamed, named := 0, 0, 0
	for _, e := range r.events {
		switch e.kind {
		case "write":
			unsynced++
		case "sync":
			unsynced = 0
		case "rename":
			renamed++
			if unsynced > 0 {
				t.Errorf("a file got its name with %d writes that were not synced", unsynced)
			}
		case "folder":
			named = renamed
		case "say":
			if named != renamed || unsynced > 0 {
				t.Errorf("%s was said before the file was on the disk", e.line)
			}
		}
	}
	if renamed != 5 {
		t.Errorf("%d files got their name: %s", renamed, r)
	}
}
