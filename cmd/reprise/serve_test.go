package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/service/server"
	"github.com/reprise-rl/reprise/wire"
)

// served is `reprise serve` in a process of its own.
type served struct {
	t       *testing.T
	command *exec.Cmd
	at      server.Addresses
	lines   *bufio.Reader // standard output, from after the first line on
	stderr  lockedBuffer
}

// lockedBuffer is written by the process's reader and read by the test; the test reads after the process has ended.
type lockedBuffer struct{ bytes.Buffer }

// startServe starts the command on ports of the system's choice and waits until it listens.
func startServe(t *testing.T, args ...string) *served {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready.json")
	s := &served{t: t, command: exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--http",
		"127.0.0.1:0", "--ready-file", file}, args...)...)}
	s.command.Stderr = &s.stderr
	out, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.command.ProcessState == nil {
			s.kill()
		}
	})
	s.lines = bufio.NewReader(out)
	first, err := s.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("reprise serve %v ended: %v\n%s", args, s.command.Wait(), s.stderr.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s.at); err != nil || !strings.Contains(first, s.at.GRPC) ||
		s.at.PID != s.command.Process.Pid {
		t.Fatalf("first line %q, ready file %s: %v", first, text, err)
	}
	return s
}

// kill ends the process as a crash does.
func (s *served) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// stop stops the process, which must succeed, and returns the rest of its standard output.
func (s *served) stop() string {
	s.t.Helper()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	rest, err := io.ReadAll(s.lines)
	if err := errors.Join(err, s.command.Wait()); err != nil {
		s.t.Fatalf("stopping: %v\n%s", err, s.stderr.String())
	}
	return string(rest)
}

// dial connects a client.
func (s *served) dial(address string, o client.Options) *client.Client {
	s.t.Helper()
	c, err := client.Dial(s.t.Context(), address, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// twoRollouts is a group of two rollouts.
func twoRollouts() rollout.Group {
	var g rollout.Group
	for i, answer := range []string{"4", "5"} {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: "2+2", Tokens: []int32{2, 10, 2, int32(4 + i)}, Mask: []uint8{0, 0, 0, 1}, Logprobs: []float32{0,
				0, 0, -0.7},
			Versions: []rollout.Version{-1, -1, -1, 0}, Temperature: 1, TopP: 1, Reward: float32(1 - i), Text: answer,
		})
	}
	return g
}

// fetch gets a page with a token as its password.
func fetch(t *testing.T, c *http.Client, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.SetBasicAuth("", token)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestServeKeepsAcknowledgedRollouts(t *testing.T) {
	t.Parallel()
	data, socket := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "s")
	args := []string{"--data", data, "--unix", socket, "--table", "name=math,capacity=64,sampler=prioritized",
		"--table", "name=7,capacity=8"}
	s := startServe(t, args...)
	if _, err := s.dial(s.at.GRPC, client.Options{}).Table("math").Insert(t.Context(), twoRollouts()); err != nil {
		t.Fatal(err)
	}
	over := s.dial(s.at.Unix, client.Options{}).Table("math")
	if batch, err := over.Sample(t.Context(), rollout.Request{Size: 2}); err != nil || len(batch.Draws) != 2 {
		t.Fatalf("sampling over the unix socket: %v, %v", batch, err)
	}
	if code, body := fetch(t, http.DefaultClient, s.at.HTTP+"/healthz", ""); code != http.StatusOK ||
		!strings.Contains(body, `"status":"ok"`) {
		t.Errorf("/healthz: %d %s", code, body)
	}
	tests.Until(t, "/metrics count two rollouts", func() bool { // they may be a moment old
		code, body := fetch(t, http.DefaultClient, s.at.HTTP+"/metrics", "")
		return code == http.StatusOK && strings.Contains(body, `reprise_inserted_rollouts_total{table="math"} 2`)
	})
	if code, body := fetch(t, http.DefaultClient, s.at.HTTP+"/", ""); code != http.StatusOK ||
		!strings.Contains(body, ">math<") || !strings.Contains(body, "2+2") && !strings.Contains(body, "2&#43;2") {
		t.Errorf("the dashboard: %d %s", code, body)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if out := s.stop(); !strings.Contains(out, "durable in "+data+", sync always") ||
		!strings.Contains(out, "\nstopped ") {
		t.Errorf("standard output:\n%s", out)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}

	again := startServe(t, args...)
	info, err := again.dial(again.at.GRPC, client.Options{}).Table("math").Info(t.Context())
	if err != nil || info.Present != 2 {
		t.Errorf("after a restart: %+v, %v", info, err)
	}
	out := again.stop()
	if !strings.Contains(out, "table math: 2 rollouts") || !strings.Contains(again.stderr.String(), "read 2 rollouts") {
		t.Errorf("the recovery is not reported:\n%s\n%s", out, again.stderr.String())
	}
}

func TestServeDecodesWhatCameWithoutText(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--tokenizer", modelFolder(t), "--table", "name=math,capacity=8")
	tokenizer, err := hf.NewCharTokenizer("0123456789+=")
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := tokenizer.Encode("7+5=")
	answer, failed := tokenizer.Encode("12")
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	r := rollout.New("p1", prompt, rollout.Completion{Tokens: answer, Logprobs: []float32{-1, -2}})
	if _, err := s.dial(s.at.GRPC, client.Options{}).Table("math").Insert(t.Context(), rollout.Group{
		Rollouts: []*rollout.Rollout{r}}); err != nil {
		t.Fatal(err)
	}
	if list := succeeds(t, "", "rollouts", s.at.GRPC+"/math"); !strings.Contains(list, "     2  12\n") {
		t.Errorf("the list has no decoded text:\n%s", list)
	}
	shown := succeeds(t, "", "rollouts", s.at.GRPC+"/math", "--show", "1")
	if !strings.Contains(shown, "\nprompt, decoded\n  7+5=\n\ntext, decoded\n  12\n") {
		t.Errorf("the rollout is shown as\n%s", shown)
	}
}

// Invariant 10.
func TestServeListensBeyondLoopbackOnlyWithTLSAndTokens(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	certificate, key, _ := nettest.NewAuthority(t, "tests").Files("service")
	tokens := tests.File(t, "tokens.yaml", "tokens: [{name: a, token: beyond-loopback-0123456789, read: ['*']}]")
	withTLS, withTokens := []string{"--tls-certificate", certificate, "--tls-key", key}, []string{"--tokens", tokens}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "add TLS (tls.certificate and tls.key) and tokens"},
		{[]string{"--listen", ":0"}, "can be reached from other machines"},
		{append([]string{"--listen", "[::]:0"}, withTLS...), "add tokens"},
		{append([]string{"--listen", "0.0.0.0:0"}, withTokens...), "add TLS"},
		{[]string{"--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"}, "can be reached from other machines"},
		{append([]string{"--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"}, withTLS...), "add tokens"},
	} {
		fails(t, call(t, "", append([]string{"serve", "--data", data}, c.args...)...), c.want)
		if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v was refused and made a data folder: %v", c.args, err)
		}
	}
	s := startServe(t, append(append([]string{"--listen", "0.0.0.0:0", "--http", "0.0.0.0:0"}, withTLS...),
		withTokens...)...)
	if !strings.HasPrefix(s.at.GRPC, "grpc+tls://") || !strings.HasPrefix(s.at.HTTP, "https://") {
		t.Errorf("secured, it listens at %+v", s.at)
	}
	s.stop()
}

func TestServeReadsNewTokensAtSIGHUP(t *testing.T) {
	t.Parallel()
	const trainer, reader, late = "trainer-0123456789", "reader-01234567890", "late-0123456789abc"
	authority := nettest.NewAuthority(t, "tests")
	certificate, key, ca := authority.Files("service")
	entries := "tokens:\n- {name: trainer, token: " + trainer +
		", read: ['*'], write: ['*']}\n- {name: reader, token: " + reader + ", read: ['*']}\n"
	tokens := tests.File(t, "tokens.yaml", entries)
	s := startServe(t, "--tls-certificate", certificate, "--tls-key", key, "--tokens", tokens, "--table",
		"name=math,capacity=64")
	options := func(token string) client.Options { return client.Options{CA: ca, Token: token} }
	if _, err := s.dial(s.at.GRPC, options(trainer)).Table("math").Insert(t.Context(), twoRollouts()); err != nil {
		t.Fatal(err)
	}
	read := s.dial(s.at.GRPC, options(reader)).Table("math")
	if _, err := read.Sample(t.Context(), rollout.Request{Size: 1}); err != nil {
		t.Errorf("a reader samples: %v", err)
	}
	if _, err := read.Insert(t.Context(), twoRollouts()); wire.CodeOf(err) != wire.Denied {
		t.Errorf("a reader inserts: %v", err)
	}
	if err := use(t.Context(), s.at.GRPC, options("nonsense-0123456789")); wire.CodeOf(err) != wire.Unauthenticated {
		t.Errorf("a token that is not known: %v", err)
	}
	pages := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	defer pages.CloseIdleConnections()
	for token, want := range map[string]int{"": http.StatusUnauthorized, reader: http.StatusOK} {
		if code, _ := fetch(t, pages, s.at.HTTP+"/metrics", token); code != want {
			t.Errorf("/metrics with token %q: %d, want %d", token, code, want)
		}
	}

	if err := os.WriteFile(tokens, []byte(entries+"- {name: late, token: "+late+", read: ['*']}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	tests.Until(t, "the new token is taken", func() bool {
		return use(t.Context(), s.at.GRPC, options(late)) == nil
	}) // the signal is on its way
	s.stop()
	if said := s.stderr.String(); strings.Contains(said, trainer) || strings.Contains(said, late) {
		t.Error("a token is in the log")
	}
}

// use dials and asks for the table "math".
func use(ctx context.Context, address string, o client.Options) error {
	c, err := client.Dial(ctx, address, o)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Table("math").Info(ctx)
	return err
}

func TestAttackTheReadyFileFollowsNoLinkAndIsPrivate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, link := filepath.Join(folder, "ready.json"), filepath.Join(folder, "link")
	victim := tests.File(t, "victim", "mine")
	if err := errors.Join(os.Symlink(victim, link), os.WriteFile(file, []byte("old"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := writeReady(file, server.Addresses{PID: 7}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the ready file: %v, %v: want mode 0600", info.Mode(), err)
	}
	for _, path := range []string{link, folder} {
		fails(t, call(t, "", "serve", "--listen", "127.0.0.1:0", "--http", "off", "--ready-file", path),
			"--ready-file: "+path, "no regular file", "choose another path")
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("behind the link: %q, %v", text, err)
	}
	if _, err := os.Readlink(link); err != nil {
		t.Errorf("the link was replaced: %v", err)
	}
}

func TestServeJSONLogsOnlyJSON(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ready.json")
	c := exec.Command(binary, "serve", "--json", "--listen", "127.0.0.1:0", "--http", "off", "--table",
		"name=math,capacity=4", "--ready-file", file)
	logs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	c.Stdout = &stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(logs)
	serving := false
	for n := 0; lines.Scan(); n++ {
		var entry struct{ Msg, GRPC, HTTP string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Errorf("line %d is no JSON: %s", n, lines.Text())
		}
		if entry.Msg == "serving" {
			if serving = true; entry.HTTP != "" || !strings.HasPrefix(entry.GRPC, "grpc://127.0.0.1:") {
				t.Errorf("it serves %+v", entry)
			}
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := c.Wait(); err != nil || !serving || stdout.Len() > 0 {
		t.Errorf("ended with %v, serving %v, standard output %q", err, serving, stdout.String())
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file outlives the service: %v", err)
	}
}

func TestServeAnnouncesItselfAndStopsWhenStandardInputEnds(t *testing.T) {
	t.Parallel()
	c := exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--http", "off", "--table", "name=math,capacity=4",
		"--ready-file", "-", "--stop-at-eof")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := json.NewDecoder(stdout)
	var at server.Addresses
	if err := said.Decode(&at); err != nil || at.PID != c.Process.Pid {
		t.Errorf("it announced %+v: %v", at, err)
	}
	if err := use(t.Context(), at.GRPC, client.Options{}); err != nil {
		t.Error(err)
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := said.Decode(&at); err != io.EOF {
		t.Errorf("it wrote more to standard output: %+v, %v", at, err)
	}
	if err := c.Wait(); err != nil || !strings.Contains(stderr.String(), "stopped in ") {
		t.Errorf("it ended with %v:\n%s", err, stderr.String())
	}
}

func TestServeRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	base := []string{"serve", "--listen", "127.0.0.1:0", "--http", "off"}
	for want, args := range map[string][]string{
		"is in use: another program listens":       {"--listen", taken.Addr().String()},
		"http: \"" + taken.Addr().String():         {"--http", taken.Addr().String()},
		"listen: off: want a unix socket":          {"--listen", "off"},
		`listen: "nonsense": want HOST:PORT`:       {"--listen", "nonsense"},
		"sync: sometimes: want always":             {"--sync", "sometimes"},
		"tls.key: none":                            {"--tls-certificate", "x"},
		"reading the tokens file":                  {"--tokens", "nowhere"},
		"tokenizer: nowhere does not exist: want":  {"--tokenizer", "nowhere"},
		"colour: unknown key: want one of":         {"--table", "name=a,colour=red"},
		"line 1: tabels: unknown key: want tables": {"--config", tests.File(t, "a.yaml", "tabels: []")},
		"line 1: tables[0].kapacity: unknown key: want tables[0].capacity": {"--config",
			tests.File(t, "b.yaml", "tables: [{name: a, kapacity: 4}]")},
		"line 2: tables[0].capacity: many: want a whole number": {"--config",
			tests.File(t, "c.yaml", "tables:\n- {name: a, capacity: many}")},
		"line 1: interval: 5: want a time with its unit": {"--config", tests.File(t, "d.yaml", "interval: 5")},
		"line 1: tables[0]: 3: want a mapping":           {"--config", tests.File(t, "e.yaml", "tables: [3]")},
		"limiter: 3: want a mapping":                     {"--table", "name=a,limiter=3"},
		`line 2: mapping key "sync" already defined`: {"--config",
			tests.File(t, "f.yaml", "sync: off\nsync: off")},
		"another --table has that name": {"--table", "name=a", "--table",
			"name=a,capacity=2"},
		"lisen: unknown key: want listen":                    {"--config", tests.File(t, "g.yaml", "lisen: off")},
		"portt: unknown key: want one of listen, unix, http": {"--config", tests.File(t, "h.yaml", "portt: 4")},
		"syncc: unknown key: want sync":                      {"--config", tests.File(t, "i.yaml", "syncc: off")},
		"--config":                                           {"--config", "nowhere.yaml"},
	} {
		fails(t, call(t, "", append(base, args...)...), want)
	}
	if got := call(t, "", append(base, "--max-message", "much")...); got.code == 0 ||
		!strings.Contains(got.stderr, "number of bytes") {
		t.Errorf("a size that is none: exit code %d\n%s", got.code, got.stderr)
	}
	// All problems of a file and of flags at once, and none that follows from another.
	several := call(t, "", append(base, "--stop-timeout=-1s", "--table", "name=b,samplr=lifo", "--config", tests.File(t,
		"several.yaml", "tables:\n- {name: a, capacity: x, min_size: 9, positive_share: 2}\n- 3\nmax_tables: 0.5\n"+
			"intervall: 1s\ntls: {certificate: [1], key: k}\n"))...)
	var keys []string
	for _, match := range regexp.MustCompile(`([\w.\[\]]+): [^:\n]*: want `).FindAllStringSubmatch(several.stderr, -1) {
		keys = append(keys, match[1])
	}
	slices.Sort(keys)
	if want := []string{"intervall", "max_tables", "samplr", "stop_timeout", "tables[0].capacity",
		"tables[0].positive_share", "tables[1]", "tls.certificate"}; !slices.Equal(keys, want) {
		t.Errorf("problems of %v, want of %v:\n%s", keys, want, several.stderr)
	}
	all := call(t, "", append(base, "--sync", "sometimes", "--tls-key", "x", "--table", "name=a,capacity=-1", "--table",
		"capacity=1")...)
	fails(t, all, "sync: sometimes", "tls.certificate: none", "capacity", "want a name=")
}

func TestFlagsOverrideTheConfigurationFile(t *testing.T) {
	t.Parallel()
	path := tests.File(t, "serve.yaml", `
listen: 127.0.0.1:1
http: off
unix: /run/reprise.sock
data: /var/lib/reprise
sync: interval
interval: 2s
tokens: /etc/tokens.yaml
tls: {certificate: c.pem, key: k.pem, client_ca: ca.pem, clients: optional}
stop_timeout: 5s
max_message_bytes: 1048576
send_timeout: 10s
tables:
  - {name: math, capacity: 64}
  - name: code
    capacity: 32
    age_decay: inf
    sampler: prioritized
    columns: [{name: x_depth, type: int32}]
`)
	c, err := (&serveCommand{Config: file(path)}).load()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:1" || c.HTTP != "off" || c.Unix != "/run/reprise.sock" || c.Data != "/var/lib/reprise" ||
		c.Sync != journal.Interval ||
		c.Interval != 2*time.Second || c.StopTimeout != 5*time.Second || c.MaxMessageBytes != 1<<20 ||
		c.SendTimeout != 10*time.Second || c.Tokens != "/etc/tokens.yaml" ||
		c.TLS != (access.TLS{Certificate: "c.pem", Key: "k.pem", ClientCA: "ca.pem", Clients: "optional"}) ||
		len(c.Tables) != 2 ||
		c.Tables[1].Columns[0].Type != "int32" || !math.IsInf(float64(c.Tables[1].AgeDecay), 1) {
		t.Errorf("the file is read as %+v", c)
	}
	c, err = (&serveCommand{
		Config: file(path), Listen: "127.0.0.1:2", HTTP: "127.0.0.1:3", Unix: "off", Data: "d", Sync: "off",
		Interval: time.Minute, StopTimeout: time.Hour,
		MaxMessage: 1 << 21, Tokens: "t", Certificate: "c2", Clients: "required",
		Table: []string{"name=math,capacity=7", "name=new,capacity=8"},
	}).load()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:2" || c.HTTP != "127.0.0.1:3" || c.Unix != "" || c.Data != "d" ||
		c.Sync != journal.Off || c.Interval != time.Minute ||
		c.StopTimeout != time.Hour || c.MaxMessageBytes != 1<<21 || c.Tokens != "t" ||
		c.TLS != (access.TLS{Certificate: "c2", Key: "k.pem", ClientCA: "ca.pem", Clients: "required"}) ||
		len(c.Tables) != 3 || c.Tables[0].Capacity != 7 || c.Tables[2].Name != "new" {
		t.Errorf("with flags it is %+v", c)
	}
}

func TestServeListensOnLoopbackByDefault(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", tests.File(t, "empty.yaml", "\n")} {
		c, err := (&serveCommand{Config: file(path)}).load()
		if err != nil || c.Listen != "127.0.0.1:7447" || c.HTTP != "127.0.0.1:7448" ||
			c.StopTimeout != 30*time.Second || c.Data != "" {
			t.Errorf("%q: %+v, %v", path, c, err)
		}
	}
}

func TestByteSizesHaveUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]byteSize{"1": 1, "268435456": 1 << 28, "256MiB": 1 << 28, "250 MB": 250e6,
		"1GiB": 1 << 30, "2GB": 2e9, "4KiB": 4096, "5kB": 5000, "7B": 7} {
		var got byteSize
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "much", "-1", "0", "1.5GiB", "99999999999GiB", "1TiB?"} {
		var got byteSize
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

// A killed service with a table of all kinds of sources holds what one holds that was not, and draws on as another does
// that starts from the same folder.
func TestComposedTablesSurviveAKill(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	config := filepath.Join(folder, "tables.yaml")
	tables := `tables:
  - name: composed
    capacity: 96
    sampler: unseen
    retention: positive
    positive_fraction: 0.25
    positive_threshold: 0.9
    draw_advantage: regroup
    seed: 3
    sources:
      - {name: fresh, pool: fresh, count: 4, where: group_std > 0, backfill: right}
      - {name: old, pool: prompts, count: 4, per_prompt: 2, order: reward - 0.01 * uses}
      - {name: kept, pool: reserved, share: 0.1}
      - {name: right, share: "version < 3 ? 0.1 : 0.2", where: reward > 0.5 and uses < 6, weight: reward, per_prompt: 3}
`
	if err := os.WriteFile(config, []byte(tables), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(name string) (*served, *client.Table) {
		s := startServe(t, "-c", config, "--data", filepath.Join(folder, name), "--sync", "always")
		return s, s.dial(s.at.GRPC, client.Options{}).Table("composed")
	}
	killed, first := serve("killed")
	_, second := serve("other")
	random := rollout.Stream(1, "composed", 0)
	round := func(version int) {
		t.Helper()
		var g []rollout.Group
		for range 8 {
			prompt, group := fmt.Sprint(random.IntN(12)), rollout.Group{}
			for range 4 {
				r := twoRollouts().Rollouts[0]
				r.PromptID, r.Reward = prompt, float32(random.IntN(5))/4
				group.Rollouts = append(group.Rollouts, r)
			}
			g = append(g, group)
		}
		var draws [2]string
		for i, table := range []*client.Table{first, second} {
			if _, err := table.Insert(t.Context(), g...); err != nil {
				t.Fatal(err)
			}
			b, err := table.Sample(t.Context(), rollout.Request{Size: 24})
			if err == nil {
				err = table.Advance(t.Context(), rollout.Version(version)) // which commits the draws
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range b.Draws {
				draws[i] += fmt.Sprintf("%d p %v advantage %v uses %d\n", d.ID, d.Probability, d.Advantage, d.Uses)
			}
			draws[i] += fmt.Sprint(b.SourceCounts)
		}
		if draws[0] != draws[1] {
			t.Fatalf("version %d: one draws\n%s\nthe other\n%s", version, draws[0], draws[1])
		}
	}
	contents := func(table *client.Table) (text string) {
		err := table.Export(t.Context(), client.ExportOptions{}, func(b arrow.RecordBatch) error {
			text += fmt.Sprint(b)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for version := 1; version <= 6; version++ {
		round(version)
	}
	killed.kill()
	if err := os.CopyFS(filepath.Join(folder, "copy"), os.DirFS(filepath.Join(folder, "killed"))); err != nil {
		t.Fatal(err)
	}
	_, first = serve("killed")
	if a, b := contents(first), contents(second); a != b || a == "" {
		t.Errorf("the killed one holds\n%s\nthe other\n%s", a, b)
	}
	_, second = serve("copy")
	for version := 7; version <= 12; version++ {
		round(version)
	}
}
