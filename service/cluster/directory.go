package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The stream of the state.
const (
	stateStream  = "REPRISE"
	stateSubject = "reprise.state"
)

// directory is the state that all nodes agree on, in a stream. Its methods may be called concurrently.
type directory struct {
	js       jetstream.JetStream
	replicas int

	mu       sync.Mutex
	stream   jetstream.Stream // nil: not found yet
	state    state            // as of the last look; never changed in place
	sequence uint64           // of the state
	looked   time.Time        // when the state was last read
}

// find finds the stream, or makes it.
func (d *directory) find(ctx context.Context) error {
	d.mu.Lock()
	known := d.stream != nil
	d.mu.Unlock()
	if known {
		return nil
	}
	stream, err := d.js.CreateStream(ctx, jetstream.StreamConfig{Name: stateStream, Subjects: []string{stateSubject},
		Replicas: d.replicas, MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		stream, err = d.js.Stream(ctx, stateStream)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stream = stream
	return nil
}

// last returns the state as of the last look, and when that was.
func (d *directory) last() (state, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state, d.looked
}

// read returns the state and its sequence number, as the stream's leader has them.
func (d *directory) read(ctx context.Context) (state, uint64, error) {
	s := state{Nodes: make(map[string]member), Tables: make(map[string]placement), Names: make(map[string]claim)}
	d.mu.Lock()
	stream := d.stream
	d.mu.Unlock()
	if stream == nil {
		return s, 0, errors.New("this node has not joined the cluster yet")
	}
	m, err := stream.GetLastMsgForSubject(ctx, stateSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, err
	}
	return s, m.Sequence, json.Unmarshal(m.Data, &s)
}

// errSame is what a change returns that has nothing to change.
var errSame = errors.New("nothing to change")

// change changes the state, as often as it takes for nobody else to have changed it meanwhile.
func (d *directory) change(ctx context.Context, edit func(*state) error) error {
	for {
		s, sequence, err := d.read(ctx)
		looked := time.Now()
		if err == nil {
			err = edit(&s)
		}
		if err != nil && !errors.Is(err, errSame) {
			return err
		}
		if err == nil {
			text, err := json.Marshal(&s)
			if err != nil {
				return err
			}
			ack, err := d.js.Publish(ctx, stateSubject, text, jetstream.WithExpectLastSequencePerSubject(sequence),
				jetstream.WithRetryAttempts(0))
			if isWrongSequence(err) {
				continue
			}
			if err != nil {
				return err
			}
			sequence = ack.Sequence
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if sequence >= d.sequence {
			d.state, d.sequence, d.looked = s, sequence, looked
		}
		return nil
	}
}

// ask returns the state as the others have it now.
func (d *directory) ask(ctx context.Context) (s state, err error) {
	err = d.change(ctx, func(now *state) error {
		s = *now
		return errSame
	})
	return s, err
}
