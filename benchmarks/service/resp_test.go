package service

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// scripted is a connection that answers what it was given, and keeps what it was sent.
type scripted struct {
	net.Conn
	answers io.Reader
	sent    bytes.Buffer
}

func (s *scripted) Read(p []byte) (int, error)  { return s.answers.Read(p) }
func (s *scripted) Write(p []byte) (int, error) { return s.sent.Write(p) }

func answering(text string) (*respClient, *scripted) {
	s := &scripted{answers: strings.NewReader(text)}
	return newRESP(s), s
}

func TestCommandsAreArraysOfBulkStrings(t *testing.T) {
	r, sent := answering("+OK\r\n+OK\r\n:2\r\n")
	if err := r.set("key", []byte("value\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := r.mset([]string{"a", "b"}, [][]byte{[]byte("1"), {}}); err != nil {
		t.Fatal(err)
	}
	if err := r.del([]string{"a", "b"}); err != nil {
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
	if n, err := r.get("key"); err != nil || string(r.into[:n]) != long {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := r.mget([]string{"a", "b", "c"}); err != nil || string(r.into[:n]) != "abcde" {
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
		if _, err := r.get("key"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v: want %q", c.answer, err, c.want)
		}
	}
	r, _ := answering("*1\r\n$1\r\na\r\n")
	if _, err := r.mget([]string{"a", "b"}); err == nil {
		t.Error("one value for two keys was taken")
	}
}

func FuzzRESPAnswers(f *testing.F) {
	f.Add("$3\r\nabc\r\n")
	f.Add("*2\r\n$1\r\na\r\n$0\r\n\r\n")
	f.Add("+OK\r\n")
	f.Add("-ERR\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, _ := answering(text)
		if n, err := r.get("key"); err == nil && n > len(text) {
			t.Errorf("%d bytes came of %d", n, len(text))
		}
		r, _ = answering(text)
		if n, err := r.mget([]string{"a", "b"}); err == nil && n > len(text) {
			t.Errorf("%d bytes came of %d", n, len(text))
		}
		r, _ = answering(text)
		if err := r.set("key", nil); err == nil && !strings.HasPrefix(text, "+OK\r\n") {
			t.Errorf("%q was taken for +OK", text)
		}
	})
}
