package client

import (
	"context"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// ahead is what a stream knows of the batch that it has asked for before the caller did.
type ahead struct {
	on    bool
	asked bool // its answer is on its way
}

// ReadAhead has the stream ask for another batch as soon as one has come, so that it travels while the caller works: call it
// before the first batch. The service has then handed over one batch more, which goes back when the stream is closed; so may the
// batch before the last, whose acknowledgement is on its way still: [Stream.Acknowledge] settles the last and waits for that.
//
// A batch that waited while this program advanced the table by more than wire.SampleRequest.PrefetchSlack versions goes back, too, and
// another is asked for; of the advances of other programs the stream does not know.
func (s *Stream) ReadAhead() { s.ahead.on = true }

// askAhead asks for the batch after the one that is handed over. Before is the batch before that one, 0 if it is settled.
func (s *Stream) askAhead(before rollout.BatchID, release []uint64) {
	if !s.ahead.on || s.x == nil {
		return
	}
	req := s.request
	req.Acknowledge, req.Release = []uint64{}, nil
	if before != 0 {
		req.Acknowledge, req.Release = given(before, release)
	}
	ms := min(s.table.wait, longestWait).Milliseconds()
	req.TimeoutMS = &ms
	// Why a request cannot be sent is told to who waits for its answer.
	s.ahead.asked = s.x.send(req) == nil
	if !s.ahead.asked {
		s.lose()
	}
}

// arrived returns the batch that was asked for ahead. Where there is none, or it is too old by now, req is made to settle what is to be settled.
func (s *Stream) arrived(ctx context.Context, req *wire.SampleRequest) (a answered, ok bool) {
	if !s.ahead.asked {
		return a, false
	}
	s.ahead.asked = false
	lost := true
	a, err := s.x.answerDuring(ctx, s.x.receive, func() { lost = false })
	switch {
	case lost:
		s.lose()
		return a, false
	case err != nil: // too few rollouts then, or a lease that was over: asked for again
		return a, false
	case int64(a.batch.Version)+int64(req.PrefetchSlack) < int64(s.table.lastVersion()):
		var acknowledge, release []uint64
		if s.handed != 0 {
			acknowledge, release = given(s.handed, req.Release)
		}
		req.Acknowledge, req.Release = acknowledge, append(release, uint64(a.batch.ID))
		return a, false
	}
	return a, true
}

// given returns the two lists of a request that settle a batch: it is released where that was asked, and else acknowledged.
func given(batch rollout.BatchID, release []uint64) (acknowledge, released []uint64) {
	if len(release) > 0 {
		return []uint64{}, []uint64{uint64(batch)}
	}
	return []uint64{uint64(batch)}, nil
}
