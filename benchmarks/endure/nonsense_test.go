package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestTheProxyPassesBytesAndCuts(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	p, err := newProxy(echo.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		p.serve(ctx)
		close(served)
	}()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "hello" {
		t.Fatalf("the proxy passed %q, %v", answer, err)
	}
	cancel() // which cuts what is open, as a fate's end does
	if _, err := c.Read(answer); err == nil {
		t.Error("a connection that was cut still gave bytes")
	}
	<-served
}

func TestFatesOfConnectionsAreOfEveryKind(t *testing.T) {
	var short, slow, reset int
	for n := range uint64(1000) {
		f := fateOf(rollout.Stream(1, "proxy", n))
		if f.lives <= 0 {
			t.Fatalf("a connection lives for %v", f.lives)
		}
		if f.lives <= 100*time.Millisecond {
			short++
		}
		if f.rate > 0 {
			slow++
		}
		if f.reset {
			reset++
		}
	}
	for name, n := range map[string]int{"short": short, "slow": slow, "reset": reset} {
		if n < 80 || n > 700 {
			t.Errorf("%d of 1,000 connections are %s", n, name)
		}
	}
}

func TestBentMessagesDifferAndGoodInsertionsAreGood(t *testing.T) {
	random := rollout.Stream(1, "bend", 0)
	changed := 0
	for i := range 500 {
		messages, err := insertion(wreckName, i, 2, 64, i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		good := make([]string, len(messages))
		for j, m := range messages {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			good[j] = string(b)
		}
		out, err := bent(random, messages)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, len(out))
		for j := range out {
			got[j] = string(out[j])
		}
		if strings.Join(good, "|") != strings.Join(got, "|") {
			changed++
		}
	}
	if changed < 350 || changed == 500 { // some go as they are
		t.Errorf("%d of 500 insertions were changed", changed)
	}
}

// replayer gives collected messages to a reader.
type replayer struct{ messages []*flight.FlightData }

func (r *replayer) Recv() (*flight.FlightData, error) {
	if len(r.messages) == 0 {
		return nil, io.EOF
	}
	m := r.messages[0]
	r.messages = r.messages[1:]
	return m, nil
}

func TestAnInsertionThatIsNotBentHoldsItsGroups(t *testing.T) {
	messages, err := insertion(wreckName, 7, 3, 64, true)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := flight.NewRecordReader(&replayer{messages})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if !reader.Next() {
		t.Fatal(reader.Err())
	}
	got, _, err := wire.Groups(reader.RecordBatch(), nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d groups, %v", len(got), err)
	}
	for _, g := range got {
		for _, r := range g.Rollouts {
			if _, err := check(r, 64); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEveryWrongRowIsRefusedByATable(t *testing.T) {
	for row, fields := range wrong() {
		rec, err := recordOf(row, fields, memory.NewGoAllocator())
		if err != nil {
			t.Errorf("%s: %v", row, err)
			continue
		}
		table, err := replay.New(replay.Options{Vocab: vocab})
		if err != nil {
			t.Fatal(err)
		}
		made, _, err := wire.Groups(rec, nil)
		if err == nil {
			for i := range made {
				made[i].Size = groupSize
			}
			_, err = table.Insert(t.Context(), made...)
		}
		if !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: %v, want an error that wraps ErrInvalid", row, err)
		}
		rec.Release()
	}
}
