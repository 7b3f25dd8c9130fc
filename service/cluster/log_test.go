package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reprise-rl/reprise/internal/nettest"
	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/service/journal"
)

// withLog opens the log of a table in a server of its own.
func withLog(t *testing.T, data string, use func(l *tableLog) error) error {
	t.Helper()
	token := rand.Text()
	o := Options{Node: "n", Listen: nettest.FreeAddresses(t, 1)[0], Replicas: 1, AcceptRisk: true, Data: data}
	o = o.WithDefaults()
	so, err := serverOptions(o, token)
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServer(o, so)
	if err != nil {
		t.Fatal(err)
	}
	defer s.WaitForShutdown()
	defer s.Shutdown()
	conn, err := dial(s, nodeUser, token)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	const name = "TABLE-x"
	if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name},
		Storage: jetstream.FileStorage, DenyDelete: true}); err != nil {
		t.Fatal(err)
	}
	l := &tableLog{js: js, name: name, writer: token, ctx: t.Context(), log: slog.New(slog.DiscardHandler),
		first: new(atomic.Uint64), lost: func(error) {}}
	attempt, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := takeLog(attempt, l, 0); err != nil {
		t.Fatal(err)
	}
	return use(l)
}

// A byte that changes in a file of JetStream is never read as data. Where it says how long the header is JetStream does
// not notice; a message that it finds damaged it leaves out without a word.
func TestAttackAFlippedByteOfAStreamIsNotRead(t *testing.T) {
	tests.Long(t)
	data := t.TempDir()
	var written [][]byte
	for i := range 20 {
		written = append(written, bytes.Repeat([]byte{byte(i + 1)}, 1000))
	}
	if err := withLog(t, data, func(l *tableLog) error {
		_, err := l.Append(written, true)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var block string
	err := filepath.WalkDir(data, func(path string, _ os.DirEntry, err error) error {
		if filepath.Ext(path) == ".blk" && bytes.Contains([]byte(path), []byte("TABLE-x")) {
			block = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	message := bytes.Index(whole, bytes.Repeat([]byte{9}, 1000))
	for what, at := range map[string]int{
		"nothing": -1, "the content": message + 500, "the length of the header": bytes.LastIndex(whole[:message],
			[]byte("NATS/1.0")) - 4,
	} {
		t.Run(what, func(t *testing.T) {
			b := bytes.Clone(whole)
			if at >= 0 {
				b[at] ^= 1
			}
			if err := os.WriteFile(block, b, 0o600); err != nil {
				t.Fatal(err)
			}
			copied := t.TempDir() // the server repairs what it can
			if err := os.CopyFS(copied, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			n := 0
			err := withLog(t, copied, func(l *tableLog) error {
				return l.Read(func(list []journal.Message) error {
					for _, m := range list {
						if !bytes.Equal(m.Data, written[n]) {
							t.Errorf("message %d was read as %x", n, m.Data)
						}
						n++
					}
					return nil
				})
			})
			if at < 0 && (err != nil || n != len(written)) || at >= 0 && !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("read %d messages, %v", n, err)
			}
		})
	}
}

// A message of an owner before may get in behind the empty message of the next, in the place of the one that was to
// follow its lost neighbour. It does not count: its writer learns that the log is another's, and nobody reads it.
func TestAMessageThatSlipsInBehindTheNextOwnersDoesNotCount(t *testing.T) {
	tests.Long(t)
	err := withLog(t, t.TempDir(), func(old *tableLog) error {
		if _, err := old.Append([][]byte{[]byte("first")}, true); err != nil {
			return err
		}
		take := func(writer string) *tableLog {
			l := &tableLog{js: old.js, name: old.name, writer: writer, ctx: old.ctx, log: old.log, first: new(atomic.Uint64),
				lost: old.lost}
			if err := takeLog(t.Context(), l, 0); err != nil {
				t.Fatal(err)
			}
			return l
		}
		take("second") // its empty message stands where the first of the old owner's next two would
		if n, err := old.publish([][]byte{[]byte("slipped in")}, old.last+1); n != 1 || err != nil {
			t.Fatalf("the second of two messages did not get in: %d, %v", n, err)
		}
		if n, err := old.written(old.last, 0); !errors.Is(err, errLost) {
			t.Errorf("%d messages are said to be written, %v: one is another's", n, err)
		}
		third := take("third")
		if _, err := third.Append([][]byte{[]byte("second")}, true); err != nil {
			return err
		}
		var read []string
		err := third.Read(func(list []journal.Message) error {
			for _, m := range list {
				read = append(read, string(m.Data))
			}
			return nil
		})
		if !slices.Equal(read, []string{"first", "second"}) {
			t.Errorf("the log has %q", read)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A log is trimmed only once its owner's beat has written to the state where it begins.
func TestALogIsTrimmedAfterTheStateSaysSo(t *testing.T) {
	tests.Long(t)
	err := withLog(t, t.TempDir(), func(l *tableLog) error {
		last, err := l.Append([][]byte{{1}, {2}, {3}, {4}}, true)
		if err != nil {
			return err
		}
		if err := l.Trim(last); err != nil {
			return err
		}
		o := &ownership{log: l.name}
		o.taken.Store(l)
		o.open.Store(true)
		var running sync.WaitGroup
		owner := &tables{owned: map[string]*ownership{"lab": o}, running: &running, host: &memoryHost{}}
		first := func(p placement) uint64 {
			owner.trim(state{Tables: map[string]placement{"lab": p}})
			running.Wait()
			info, err := l.stream.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return info.State.FirstSeq
		}
		p := placement{Log: l.name, First: 1}
		if at := first(p); at != 1 {
			t.Errorf("the log begins with message %d, and by the state with 1", at)
		}
		other := placement{Log: "another", First: 1}
		if owner.note("lab", &other); other.First != 1 {
			t.Errorf("another log is said to begin with message %d", other.First)
		}
		if owner.note("lab", &p); p.First != last || p.Reached != last {
			t.Errorf("the state says %+v: want message %d", p, last)
		}
		whole := l.stream
		l.stream = &busyStream{Stream: whole}
		if at := first(p); at != 1 {
			t.Errorf("the log begins with message %d, although the stream was busy", at)
		}
		l.stream = whole
		if at := first(p); at != last {
			t.Errorf("the log begins with message %d at the next beat: want %d", at, last)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// busyStream answers every third question for a message too late, and removes none.
type busyStream struct {
	jetstream.Stream
	asked int
}

func (s *busyStream) GetMsg(ctx context.Context, at uint64, options ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg,
	error) {
	if s.asked++; s.asked%3 == 0 {
		return nil, context.DeadlineExceeded
	}
	return s.Stream.GetMsg(ctx, at, options...)
}

func (s *busyStream) Purge(context.Context, ...jetstream.StreamPurgeOpt) error {
	return context.DeadlineExceeded
}

// Where the acknowledgements of messages are lost, and a busy stream says of a few at a time that it has them, they are
// written in the end, once.
func TestMessagesWhoseAcknowledgementsAreLostAreWrittenOnce(t *testing.T) {
	tests.Long(t)
	var messages [][]byte
	for i := range 3 * publishWindow / 2 {
		messages = append(messages, []byte{byte(i)})
	}
	err := withLog(t, t.TempDir(), func(l *tableLog) error {
		if n, err := l.publish(messages[:publishWindow], l.last); n != publishWindow || err != nil {
			t.Fatalf("%d messages were published, %v", n, err)
		}
		l.stream = &busyStream{Stream: l.stream}
		if _, err := l.Append(messages, true); err != nil {
			t.Fatal(err)
		}
		var read [][]byte
		err := l.Read(func(list []journal.Message) error {
			for _, m := range list {
				read = append(read, bytes.Clone(m.Data))
			}
			return nil
		})
		if !slices.EqualFunc(read, messages, bytes.Equal) {
			t.Errorf("read %v", read)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Where a write took long another node leads the stream, once in a while.
func TestASlowLeaderGivesWay(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	create(t, c.any(), "lab")
	s := slowLeader{js: c.any().directory.js, stream: c.placed("lab").Log, log: slog.New(slog.DiscardHandler)}
	leader := func() (name string) {
		tests.Until(t, "a leader", func() bool {
			name = c.leader(s.stream)
			return name != ""
		})
		return name
	}
	before := leader()
	if s.took(slowTime-1, 0); !s.moved.IsZero() {
		t.Error("a write that took no longer than others had the leader moved")
	}
	if s.took(slowTime, slowRate); !s.moved.IsZero() {
		t.Error("a large write that took no longer than others had the leader moved")
	}
	s.took(slowTime, 0)
	moved := s.moved
	tests.Until(t, "another leader", func() bool { return leader() != before })
	if s.took(slowTime, 0); s.moved != moved {
		t.Error("a leader was moved at once again")
	}
}
