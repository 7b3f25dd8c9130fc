package watch

import (
	"time"

	"github.com/reprise-rl/reprise/service"
)

// state is how a table does, in a few words: the first thing to read of it.
type state struct {
	Words, About string
	Class        string // good, warn, bad, or still: nothing is the matter and nothing moves
}

// stateOf tells the worst of what there is to tell. Somebody waits if they were seen waiting in most of the last
// looks: a stream that asks for its next batch always waits for a moment.
func stateOf(v *service.TableView, points []point) state {
	recent := since(points, rateSpan)
	starts, inserts, samples := mostly(recent, func(p point) bool { return p.starts }), mostly(recent, func(p point) bool { return p.inserts }), mostly(recent, func(p point) bool { return p.samples })
	rows := func(p point) uint64 { return p.inserted + p.sampled }
	switch {
	case v.Journal != nil && v.Journal.Err != nil:
		return state{"journal failed", "insertions are refused until a restart", "bad"}
	case inserts && insertsHeld(v):
		return state{"inserts held", "the limiter holds insertions back: trainers are the slower side", "warn"}
	case inserts:
		return state{"inserts wait", "insertions wait for room: trainers are the slower side", "warn"}
	case samples && samplesHeld(v):
		return state{"samples held", "the limiter holds samples back: generators are the slower side", "warn"}
	case samples:
		return state{"samples wait", "samples wait for rollouts: generators are the slower side", "warn"}
	case v.Stats.Inserted == 0:
		return state{"unused", "nothing was ever inserted", "still"}
	case current(points, rateSpan, rows) == 0:
		return state{"idle", "nothing came and nothing went in the last " + span(rateSpan), "still"}
	case starts:
		return state{"gate closed", "generators wait for the next version before they start more", "good"}
	}
	return state{"flowing", "nobody waits for long", "good"}
}

// since are the points of the last while.
func since(points []point, while time.Duration) []point {
	if len(points) == 0 {
		return nil
	}
	last := points[len(points)-1].at
	for len(points) > 1 && last.Sub(points[0].at) > while {
		points = points[1:]
	}
	return points
}

// mostly tells whether something holds at more than half of some points.
func mostly(points []point, holds func(point) bool) bool {
	n := 0
	for _, p := range points {
		if holds(p) {
			n++
		}
	}
	return 2*n > len(points)
}
