package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reprise-rl/reprise/internal/words"
)

// typist types at a terminal in which the program runs, and reads what the terminal shows.
type typist struct {
	t       *testing.T
	command *exec.Cmd
	keys    *os.File
	shown   *bufio.Reader
	seen    strings.Builder
}

// inTerminal starts the program in a terminal of its own, with 80 columns.
func inTerminal(t *testing.T, args ...string) *typist {
	t.Helper()
	return startInTerminal(t, exec.Command(binary, args...))
}

func startInTerminal(t *testing.T, c *exec.Cmd) *typist {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: words.Columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return &typist{t: t, command: c, keys: keys, shown: bufio.NewReader(keys)}
}

// until reads what the terminal shows up to a text.
func (y *typist) until(text string) {
	y.t.Helper()
	for !strings.HasSuffix(y.seen.String(), text) {
		b, err := y.shown.ReadByte()
		if err != nil {
			y.t.Fatalf("%v before %q in:\n%s", err, text, y.seen.String())
		}
		y.seen.WriteByte(b)
	}
}

func (y *typist) keystrokes(text string) {
	y.t.Helper()
	if _, err := io.WriteString(y.keys, text); err != nil {
		y.t.Fatal(err)
	}
}

// end waits for the program, and returns all that the terminal showed and the exit code.
func (y *typist) end() (string, int) {
	y.t.Helper()
	rest, _ := io.ReadAll(y.shown) // EIO when the last process has gone
	y.seen.Write(rest)
	return strings.ReplaceAll(y.seen.String(), "\r\n", "\n"), exitOf(y.t, y.command.Wait())
}

func TestDroppingATableAsksInATerminal(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=math,capacity=4096", "name=code,capacity=16")
	at := s.at.GRPC
	for _, answer := range []string{"\n", "n\n", "\x04"} {
		y := inTerminal(t, "table", "drop", at+"/math")
		y.until("drop " + at + "/math with 0 rollouts, and its journal? [y/N] ")
		y.keystrokes(answer)
		if shown, code := y.end(); code != 1 || !strings.Contains(shown, "reprise: nothing was dropped: answer y, or give --yes") {
			t.Errorf("after %q: exit code %d\n%s", answer, code, shown)
		}
	}
	y := inTerminal(t, "table", "drop", at+"/math")
	y.until("[y/N] ")
	y.keystrokes("\x03")
	if shown, code := y.end(); code != 130 || !strings.HasSuffix(shown, "[y/N] ^C\nreprise: interrupted\n") {
		t.Errorf("after Ctrl-C: exit code %d\n%q", code, shown)
	}
	if list := succeeds(t, "", "table", "list", at); !strings.Contains(list, "math") {
		t.Fatalf("the table is gone:\n%s", list)
	}
	y = inTerminal(t, "table", "drop", at+"/math")
	y.until("[y/N] ")
	y.keystrokes("y\n")
	if shown, code := y.end(); code != 0 || !strings.Contains(shown, "table math is dropped, with 0 rollouts") {
		t.Errorf("after y: exit code %d\n%s", code, shown)
	}
	if shown, code := inTerminal(t, "table", "drop", "--yes", at+"/code").end(); code != 0 || strings.Contains(shown, "[y/N]") {
		t.Errorf("with --yes: exit code %d\n%s", code, shown)
	}
}

func TestWhatFollowsCtrlCBeginsALine(t *testing.T) {
	t.Parallel()
	y := inTerminal(t, "serve", "--listen", "127.0.0.1:0", "--http", "off")
	y.until("capacity=4096\r\n")
	y.keystrokes("\x03")
	if shown, code := y.end(); code != 0 || !strings.Contains(shown, "\n^C\nstopping: calls have ") {
		t.Errorf("serve: exit code %d\n%s", code, shown)
	}
}

func TestBashCompletesWhatIsTyped(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	y := startInTerminal(t, exec.Command(bash, "--norc", "-i"))
	y.keystrokes("eval \"$(" + shellWord(binary) + " completion bash)\" && echo re''ady\n")
	y.until("ready\r\n")
	y.keystrokes("reprise table dr\t")
	y.until("reprise table drop ")
	y.keystrokes("\x15exit\n")
	y.end()
}
