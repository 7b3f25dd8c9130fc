package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout/option"
)

func TestARedisElsewhereIsRefused(t *testing.T) {
	_, err := startRedis(t.Context(), "example.org:6379", t.TempDir())
	var setting *option.Error
	if !errors.As(err, &setting) || setting.Key != "--redis" {
		t.Error(err)
	}
}

func TestRedisKeepsWhatIsStored(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed here; .ci/run installs it")
	}
	server, err := startRedis(t.Context(), auto, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.process.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, over := range []string{tcp, unix} {
		c, err := dialRedis(over, server.at.address(over))
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		store, fetch, forget, err := redisContenders(c, 1_000_003, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, contender := range append(store, fetch...) {
			if took, err := contender.run(t.Context(), time.Millisecond); err != nil || took.operations == 0 {
				t.Errorf("%s over %s: %+v, %v", contender.name, over, took, err)
			}
		}
		if err := forget(); err != nil {
			t.Error(err)
		}
		if _, err := fetch[0].run(t.Context(), time.Millisecond); err == nil {
			t.Error("what was removed was fetched")
		}
	}
}

// scripted is a connection that answers what it was given, and keeps what it was sent.
type scripted struct {
	net.Conn
	answers io.Reader
	sent    bytes.Buffer
}

func (s *scripted) Read(p []byte) (int, error)  { return s.answers.Read(p) }
func (s *scripted) Write(p []byte) (int, error) { return s.sent.Write(p) }

func answering(text string) (*redisClient, *scripted) {
	s := &scripted{answers: strings.NewReader(text)}
	return newRedisClient(s), s
}

func command(words ...string) [][]byte {
	var c [][]byte
	for _, w := range words {
		c = append(c, []byte(w))
	}
	return c
}

func TestCommandsAreArraysOfBulkStrings(t *testing.T) {
	r, sent := answering("+OK\r\n+OK\r\n:2\r\n")
	if err := r.store(command("SET", "key", "value\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := r.store(command("MSET", "a", "1", "b", "")); err != nil {
		t.Fatal(err)
	}
	if err := r.send(command("DEL", "a", "b")); err != nil {
		t.Fatal(err)
	}
	want := "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$7\r\nvalue\r\n\r\n" +
		"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$0\r\n\r\n" +
		"*3\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n"
	if got := sent.sent.String(); got != want {
		t.Errorf("sent\n%q\nwant\n%q", got, want)
	}
}

func TestValuesAreReadWhole(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	r, _ := answering(fmt.Sprintf("$%d\r\n%s\r\n*3\r\n$2\r\nab\r\n$0\r\n\r\n$3\r\ncde\r\n", len(long), long))
	if n, err := r.fetch(command("GET", "key")); err != nil || string(r.into[:n]) != long {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := r.fetch(command("MGET", "a", "b", "c")); err != nil || string(r.into[:n]) != "abcde" {
		t.Errorf("%q, %v", r.into[:n], err)
	}
}

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{"-ERR out of memory\r\n", "out of memory"},
		{"$-1\r\n", "want a number"},
		{"$5\r\nab\r\n", "unexpected EOF"},
		{"$2\r\nabcd", "does not end with its length"},
		{"$600000000\r\n", "want a number"},
		{"$x\r\n", "want a number"},
		{"$2\n", "CR and LF"},
		{"\r\n", "want a number"},
		{"", "EOF"},
	} {
		r, _ := answering(c.answer)
		if _, err := r.fetch(command("GET", "key")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v: want %q", c.answer, err, c.want)
		}
	}
	r, _ := answering("*1\r\n$1\r\na\r\n")
	if _, err := r.fetch(command("MGET", "a", "b")); err == nil {
		t.Error("one value for two keys was taken")
	}
}

func FuzzRedisAnswers(f *testing.F) {
	f.Add("$3\r\nabc\r\n")
	f.Add("*2\r\n$1\r\na\r\n$0\r\n\r\n")
	f.Add("+OK\r\n")
	f.Add("-ERR\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, _ := answering(text)
		if n, err := r.fetch(command("GET", "key")); err == nil && n > len(text) {
			t.Errorf("%d bytes came of %d", n, len(text))
		}
		r, _ = answering(text)
		if n, err := r.fetch(command("MGET", "a", "b")); err == nil && n > len(text) {
			t.Errorf("%d bytes came of %d", n, len(text))
		}
		r, _ = answering(text)
		if err := r.store(command("SET", "key", "")); err == nil && !strings.HasPrefix(text, "+OK\r\n") {
			t.Errorf("%q was taken for +OK", text)
		}
	})
}
