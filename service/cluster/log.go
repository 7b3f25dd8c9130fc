package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reprise-rl/reprise/service/journal"
)

// errLost is the error of a log that another node writes now.
var errLost = errors.New("another node owns the table now")

// writerHeader is the header of every message: the ownership under which it was written. No two are alike.
const writerHeader = "Reprise-Writer"

const (
	// appendTimeout is how long an owner goes on trying to append while it makes no progress. A stream without a
	// leader has one before, unless an election fails.
	appendTimeout = 6 * time.Second
	// publishWindow is how many messages are under way to the stream at once.
	publishWindow = 48
	// readBytes is how much of a log is decoded at once, by all processors.
	readBytes = 8 << 20
	// readExpiry is how long a reader of a log goes on while the node that sends it is silent.
	readExpiry = 4 * time.Second
	// ackTimeout is how long to wait for an acknowledgement before asking what the stream has.
	ackTimeout = 2 * time.Second
)

// tableLog is the log of a table in a stream, for one ownership: once another node has begun to write, nothing more
// gets in, because every message says which sequence number the one before has. One exception does no harm: where the
// first of several messages that are under way got lost, the other node's message may stand at its place, so that the
// next fits behind it. Its writer is not told that it got in ([tableLog.written]), and nobody reads it.
type tableLog struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string // of the stream
	writer string // of this ownership
	ctx    context.Context
	lost   func(error) // called once nothing can be appended any more
	log    *slog.Logger
	last   uint64   // sequence number of the last message
	avoid  []string // nodes whose copies are damaged
	source string   // the node whose copy was read, or led where it was found too short
	broken bool     // messages of that copy are missing, or not what was written
	// seen, if it is set, is told every message that is read, those that do not count too.
	seen func(number uint64, writer string, content []byte)
	// For other goroutines: the sequence numbers of the last message that is acknowledged; of the first that is to be left
	// of the log, and up to which it is trimmed; and of the first by the state of the nodes, as a copy's own beginning may
	// be what is lost.
	reached, trimTo, trimmed atomic.Uint64
	first                    *atomic.Uint64
	trimming                 atomic.Bool
	slow                     slowLeader
}

// takeLog opens a table's log as its only writer: it ends the ownership before. Floor is the sequence number of a
// message that was acknowledged: the copy of a leader that ends before it is damaged.
func takeLog(ctx context.Context, l *tableLog, floor uint64) error {
	stream, err := l.js.Stream(ctx, l.name)
	if err != nil {
		return err
	}
	l.stream, l.slow = stream, slowLeader{js: l.js, stream: l.name, log: l.log}
	unknown := l.first.Load() == 0 // the state is of a build that did not say where logs begin
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if unknown {
			l.first.Store(info.State.FirstSeq)
			l.trimTo.Store(info.State.FirstSeq)
		}
		if l.last = info.State.LastSeq; l.last < floor {
			l.source = leaderOf(info.Cluster)
			err := l.damaged("ends with message %d: %d was acknowledged", l.last, floor)
			return errors.Join(err, stepDown(l.js.Conn(), l.name, ""))
		}
		// An empty message, which readers skip, makes the sequence number that an earlier owner expects wrong.
		ack, err := l.js.PublishMsg(ctx, l.message(nil), jetstream.WithExpectLastSequence(l.last),
			jetstream.WithRetryAttempts(0))
		switch {
		case err == nil:
			l.last = ack.Sequence
			l.reached.Store(l.last)
			return nil
		case !isWrongSequence(err):
			return err
		}
	}
}

func (l *tableLog) String() string { return "stream " + l.name }

// message makes a message of the stream: it begins with a CRC-32C (Castagnoli) of its content, uint32, because
// JetStream's checksum leaves out where the header ends.
func (l *tableLog) message(content []byte) *nats.Msg {
	data := binary.LittleEndian.AppendUint32(make([]byte, 0, sumLength+len(content)), contentSum(content))
	return &nats.Msg{Subject: l.name, Data: append(data, content...), Header: nats.Header{writerHeader: {l.writer}}}
}

const sumLength = 4

func contentSum(content []byte) uint32 {
	return crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
}

// content checks a message of the stream.
func content(data []byte) ([]byte, error) {
	if len(data) < sumLength || binary.LittleEndian.Uint32(data) != contentSum(data[sumLength:]) {
		return nil, fmt.Errorf("%w: its %d bytes are not what was written", journal.ErrDamaged, len(data))
	}
	return data[sumLength:], nil
}

// Sync implements [journal.Log]. What Append acknowledges is on the disks of most copies.
func (l *tableLog) Sync() error { return nil }

// Append implements [journal.Log].
func (l *tableLog) Append(messages [][]byte, _ bool) (uint64, error) {
	base, done := l.last, 0 // messages[:done] are in the stream
	deadline := time.Now().Add(appendTimeout)
	for done < len(messages) {
		began := time.Now()
		n, err := l.publish(messages[done:], base+uint64(done))
		if n > 0 {
			l.slow.took(time.Since(began), sizeOf(messages[done:]))
			done += n
			deadline = time.Now().Add(appendTimeout)
			continue
		}
		in, asking := l.written(base, done)
		switch {
		case in > done: // an acknowledgement was lost, or late
			l.slow.took(time.Since(began), sizeOf(messages[done:]))
			done = in
			deadline = time.Now().Add(appendTimeout)
			continue
		case errors.Is(asking, errLost) || l.ctx.Err() != nil || time.Now().After(deadline):
			err = fmt.Errorf("appending to %s: %w", l, errors.Join(err, asking, context.Cause(l.ctx)))
			l.lost(err)
			return 0, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-l.ctx.Done():
		}
	}
	l.last = base + uint64(len(messages))
	l.reached.Store(l.last)
	return l.last, nil
}

// publish publishes messages after a sequence number, and returns how many of the first are acknowledged.
func (l *tableLog) publish(messages [][]byte, after uint64) (done int, err error) {
	var pending []jetstream.PubAckFuture
	settle := func() error {
		select {
		case <-pending[0].Ok():
			done, pending = done+1, pending[1:]
			return nil
		case err := <-pending[0].Err():
			return err
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	for i := range messages {
		if len(pending) == publishWindow {
			if err := settle(); err != nil {
				return done, err
			}
		}
		ack, err := l.js.PublishMsgAsync(l.message(messages[i]), jetstream.WithExpectLastSequence(after+uint64(i)),
			jetstream.WithRetryAttempts(0))
		if err != nil {
			return done, err
		}
		pending = append(pending, ack)
	}
	for len(pending) > 0 {
		if err := settle(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// written asks the stream how many messages it has after a sequence number, all of them by this writer, as the first
// ones are known to be. With an error other than errLost it is those that it got to see: large messages on a busy
// machine take longer than ackTimeout.
func (l *tableLog) written(after uint64, known int) (int, error) {
	ctx, cancel := context.WithTimeout(l.ctx, ackTimeout)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	last := info.State.LastSeq
	if last <= after {
		return 0, nil
	}
	for at := after + uint64(known) + 1; at <= last; at++ { // publishWindow at most, unless another has written
		m, err := l.stream.GetMsg(ctx, at)
		if err != nil {
			return int(at - 1 - after), err
		}
		if m.Header.Get(writerHeader) != l.writer {
			return 0, errLost
		}
	}
	return int(last - after), nil
}

// Read implements [journal.Log]. It reads the copy of a node that is not in avoid; source is whose it was. JetStream
// leaves out messages that it finds damaged: they are missed here. What an owner wrote after the next had taken the log
// is left out: it never counted.
func (l *tableLog) Read(yield func([]journal.Message) error) error {
	return l.readCopy(l.ctx, func(node string) bool { return !slices.Contains(l.avoid, node) }, yield)
}

// copyTries is how many consumers are made until JetStream puts one on a node whose copy is wanted.
const copyTries = 64

// silenceTime is how long a reader of a copy waits for the next message.
const silenceTime = 3 * readExpiry

// readCopy reads the messages up to the last from the copy of a node that is wanted.
func (l *tableLog) readCopy(ctx context.Context, wanted func(node string) bool,
	yield func([]journal.Message) error) error {
	consumer, err := l.consumerOn(ctx, wanted)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		_ = l.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name) // it ends by itself, too
	}()
	messages, err := consumer.Messages(jetstream.PullMaxBytes(16<<20), jetstream.PullExpiry(readExpiry),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	silence := time.AfterFunc(silenceTime, messages.Stop)
	defer silence.Stop()
	var batch []journal.Message
	bytes, last := 0, uint64(0) // of batch; position
	owner := ""                 // whose empty message came last: the writer of what counts
	for n := uint64(1); ; n++ {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) && ctx.Err() == nil {
			return l.silent(ctx, consumer, last)
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		silence.Reset(silenceTime)
		at, err := m.Metadata()
		if err != nil {
			return err
		}
		if at.Sequence.Consumer != n {
			return fmt.Errorf("message %d of %s came as message %d", at.Sequence.Consumer, l, n)
		}
		if err := l.follows(last, at.Sequence.Stream); err != nil {
			return err
		}
		last = at.Sequence.Stream
		data, err := content(m.Data())
		if err != nil {
			return l.damaged("has message %d, where %w", last, err)
		}
		writer := m.Headers().Get(writerHeader)
		if l.seen != nil {
			l.seen(last, writer, data)
		}
		if len(data) == 0 || owner == "" { // the log may be trimmed
			owner = writer
		}
		if len(data) > 0 && writer == owner {
			batch, bytes = append(batch, journal.Message{Position: last, Data: data}), bytes+len(data)
		}
		if bytes >= readBytes || last >= l.last {
			silence.Stop()
			if err := yield(batch); err != nil || last >= l.last {
				return err
			}
			silence.Reset(silenceTime)
			batch, bytes = nil, 0
		}
	}
}

// consumerOn returns a consumer on a node that is wanted. JetStream chooses the node of each, at random.
func (l *tableLog) consumerOn(ctx context.Context, wanted func(node string) bool) (jetstream.Consumer, error) {
	for range copyTries {
		// An ordered consumer would repeat by itself what fails, after 5 to 10 s each.
		ask, cancel := context.WithTimeout(ctx, askTime)
		consumer, err := l.stream.CreateConsumer(ask, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute})
		if err == nil {
			l.source = leaderOf(consumer.CachedInfo().Cluster)
			if wanted(l.source) {
				cancel()
				return consumer, nil
			}
			err = l.stream.DeleteConsumer(ask, consumer.CachedInfo().Name)
		}
		cancel()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("reading %s: JetStream placed none of %d consumers on the node that is wanted", l, copyTries)
}

// silent returns why a consumer sends nothing more: its node has no more messages, or does not answer.
func (l *tableLog) silent(ctx context.Context, consumer jetstream.Consumer, last uint64) error {
	ask, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	info, err := consumer.Info(ask)
	if err != nil || info.NumPending > 0 {
		return fmt.Errorf("reading %s on node %s: nothing came for %v after message %d: %w", l, l.source, silenceTime, last,
			cmp.Or(err, context.DeadlineExceeded))
	}
	return l.damaged("ends with message %d: want %d", last, l.last)
}

// damaged notes that the copy is damaged, and returns the error that says how.
func (l *tableLog) damaged(format string, args ...any) error {
	l.broken = true
	return fmt.Errorf("%w: the copy of %s on node %s "+format, append([]any{journal.ErrDamaged, l, l.source}, args...)...)
}

// follows checks that a message comes after the one before, 0 at the beginning, unless those between are trimmed.
func (l *tableLog) follows(last, next uint64) error {
	if next > max(last+1, l.first.Load()) {
		return l.damaged("has message %d after message %d: want the ones between", next, last)
	}
	return nil
}

// Trim implements [journal.Log]. The owner's next beat says in the state where the log begins, and then the messages
// before are removed ([tableLog.trim]): a copy that begins later is damaged.
func (l *tableLog) Trim(before uint64) error {
	l.trimTo.Store(max(before, l.trimTo.Load()))
	return nil
}

// trim removes the messages before a sequence number.
func (l *tableLog) trim(before uint64) {
	ctx, cancel := context.WithTimeout(l.ctx, ackTimeout)
	defer cancel()
	err := l.stream.Purge(ctx, jetstream.WithPurgeSequence(before))
	switch {
	case err == nil:
		l.trimmed.Store(before)
	case l.ctx.Err() == nil:
		l.log.Warn("trimming the log of a table; it is tried again with the next beat", "stream", l.name, "before",
			strconv.FormatUint(before, 10), "error", err)
	}
}

// leaderOf returns the name of the node that leads a stream or a consumer: "" if none does, and of a consumer in a
// server without others.
func leaderOf(c *jetstream.ClusterInfo) string {
	if c == nil {
		return ""
	}
	return c.Leader
}

// stepDown has another node lead a stream, to if it is not "". It waits for nobody: there may be no leader now.
func stepDown(conn *nats.Conn, stream, to string) error {
	var request server.JSApiLeaderStepdownRequest
	if to != "" {
		request.Placement = &server.Placement{Preferred: to}
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return conn.PublishRequest(fmt.Sprintf(server.JSApiStreamLeaderStepDownT, stream), nats.NewInbox(), text)
}

// slowLeader has another node lead a stream whose leader takes long: every write waits for the leader's disk, but of
// the others only for the faster half.
type slowLeader struct {
	js     jetstream.JetStream
	stream string
	log    *slog.Logger
	moved  time.Time // when another was last asked for
}

const (
	// slowTime is what a write takes at most at a leader that is not slow, beyond a second for each slowRate bytes.
	slowTime = 1500 * time.Millisecond
	slowRate = 16 << 20
	// moveTime is how long a node waits before it asks for another leader again: where all are slow none is better.
	moveTime = 10 * time.Second
)

// took notes how long the leader took for a write.
func (s *slowLeader) took(d time.Duration, bytes int) {
	if d < slowTime+time.Duration(bytes)*time.Second/slowRate || time.Since(s.moved) < moveTime {
		return
	}
	s.moved = time.Now()
	s.log.Info("a write to a stream took long: another node is to lead it", "stream", s.stream, "took", d, "error",
		stepDown(s.js.Conn(), s.stream, ""))
}

func sizeOf(messages [][]byte) (bytes int) {
	for _, m := range messages {
		bytes += len(m)
	}
	return bytes
}

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	for _, c := range codes {
		if api.ErrorCode == c {
			return true
		}
	}
	return false
}

func isWrongSequence(err error) bool {
	return hasCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
