package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// namespaced says in the environment of a test's process that it has a network namespace of its own.
const namespaced = "REPRISE_TEST_NAMESPACE"

// inNamespace reports whether the test is to go on in this process. Otherwise it has run in another, which has a
// network namespace of its own.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaced) != "" {
		return true
	}
	own := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		own.Cloneflags |= syscall.CLONE_NEWUSER
		own.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		own.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	probe := exec.Command("sh", "-c", "nsenter --version && ip link add probe0 type bridge && "+
		"ip link add probe1 type veth peer name probe2 && echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet")
	probe.SysProcAttr = own
	if out, err := probe.CombinedOutput(); err != nil {
		t.Logf("no link between nodes is cut, as this machine gives the test no network of its own: %v: %s", err, out)
		return true
	}
	c := exec.CommandContext(t.Context(), binary, "-test.run=^"+t.Name()+"$", "-test.v",
		fmt.Sprintf("-faults=%d", *faults), fmt.Sprintf("-fault-seed=%d", *faultSeed))
	if end, ok := t.Deadline(); ok {
		c.Args = append(c.Args, fmt.Sprintf("-test.timeout=%v", time.Until(end)-time.Second))
	}
	c.Env = append(os.Environ(), runProgram+"=", namespaced+"=1")
	c.SysProcAttr = own
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := c.Wait(); err != nil {
		t.Errorf("in its own network namespace: %v", err)
	}
	return false
}

// network is a bridge between network namespaces, one for each node. Its addresses are of loopback, which is all that
// a service without TLS listens at.
type network struct {
	t     *testing.T
	nodes []*exec.Cmd // a process in each namespace, which keeps it
}

// newNetwork returns nil where the process has no namespace of its own.
func newNetwork(t *testing.T, n int) *network {
	t.Helper()
	if os.Getenv(namespaced) == "" {
		return nil
	}
	w := &network{t: t}
	loopback := func(device, host string) string {
		return "ip addr add 127.0.0.1/32 dev lo && ip link set lo up && ip addr del 127.0.0.1/8 dev lo && " +
			"echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet && " +
			"ip addr add " + host + "/24 dev " + device + " && ip link set " + device + " up"
	}
	w.run("sh", "-c", "ip link add bridge type bridge && "+loopback("bridge", w.host(n)))
	for i := range n {
		c := exec.Command("sleep", "36000")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		w.nodes = append(w.nodes, c)
		port := fmt.Sprint("port", i)
		w.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(c.Process.Pid))
		w.run("ip", "link", "set", port, "master", "bridge", "up")
		w.run(w.in(i, "sh", "-c", loopback("eth0", w.host(i)))...)
	}
	return w
}

func (w *network) host(i int) string { return fmt.Sprintf("127.1.0.%d", i+1) }

// in returns a command that runs in the namespace of a node, as the process that is started.
func (w *network) in(i int, command ...string) []string {
	return append([]string{"nsenter", "-t", fmt.Sprint(w.nodes[i].Process.Pid), "-n"}, command...)
}

// cut drops what a node sends to another.
func (w *network) cut(from, to int) {
	w.run(w.in(from, "ip", "route", "add", "blackhole", w.host(to))...)
}

func (w *network) heal(from, to int) {
	w.run(w.in(from, "ip", "route", "del", "blackhole", w.host(to))...)
}

// plug sets a node's cable "down", without a word to anybody, or "up".
func (w *network) plug(i int, state string) { w.run("ip", "link", "set", fmt.Sprint("port", i), state) }

func (w *network) run(command ...string) {
	w.t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}
