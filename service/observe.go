package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/replay"
)

// Observe returns everything that there is to see now. It costs a look at every rollout of prioritized tables.
func (s *Service) Observe() Observation {
	o := Observation{
		At: s.options.Clock(), Started: s.started, Stopping: s.stopping(), Connections: s.connections.list(),
		InFlightBytes: s.incoming.inUse(), MaxInFlightBytes: s.options.MaxInFlightBytes,
		OutgoingBytes: s.outgoing.inUse(), MaxOutgoingBytes: s.options.MaxOutgoingBytes,
		SlowReaders: s.slowReaders.Load(),
	}
	o.Calls, o.Errors = s.tally.view()
	for _, t := range s.list() {
		v := t.view()
		o.Tables = append(o.Tables, v)
		if v.Journal != nil && v.Journal.Err != nil && o.Err == nil && !o.Stopping {
			o.Err = fmt.Errorf("table %q: journal: %w", t.Name, v.Journal.Err)
		}
	}
	return o
}

func (s *Service) stopping() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// view returns everything that there is to see of a table.
func (t *table) view() TableView {
	now := t.now()
	v := TableView{
		Name: t.Name, Definition: t.Table, Created: t.created, Stats: t.store.Stats(),
		ByAge: t.store.ByAge(), ESSByAge: t.store.ESSByAge(), NeverUsed: t.store.NeverUsedShare(),
		Counters: t.meter.counters(), InsertLatency: t.meter.insertTimes.view(), SampleLatency: t.meter.sampleTimes.view(),
		InsertsWaiting: int(t.meter.insertsWaiting.Load()), SamplesWaiting: int(t.meter.samplesWaiting.Load()), StartsWaiting: int(t.meter.startsWaiting.Load()),
		Recent: t.meter.recent.list(),
	}
	v.OnLease = v.Stats.Drawn - v.Stats.Acknowledged - v.Stats.Returned
	if t.options.Sampler == replay.Prioritized {
		v.AgeDecay = t.store.AgeDecay()
	}
	if t.limiter != nil {
		state := t.limiter.State(t.store.Flow())
		v.Limiter = &state
	}
	if t.Gate != nil {
		state := t.gate.Load().State(now, v.Stats.Version)
		v.Gate = &state
	}
	if t.prompts != nil {
		state := t.prompts.Stats()
		v.Prompts = &state
	}
	if t.journal != nil {
		stats := t.journal.Stats()
		v.Journal = &JournalState{Path: stats.Path, Sync: stats.Sync, Stats: stats, Err: stats.Err}
	}
	return v
}

// isGone tells whether an error says only that the caller has left, or the connection; ours are none of grpc's statuses yet.
func isGone(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable}, status.Code(err))
}
