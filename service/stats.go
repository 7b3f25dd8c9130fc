package service

import (
	"context"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/wire"
)

// statistics is the answer to wire.Statistics; wire.TableStatistics says what is in it.
func statistics(_ context.Context, t *table, _ *wire.TableRequest) (any, error) {
	v := t.view()
	s := v.Stats
	answer := wire.TableStatistics{
		TableInfo: wire.TableInfo{Table: t.Name, Version: int32(s.Version), Present: s.Present, Bytes: s.PresentBytes},
		Inserted:  s.Inserted, InsertedGroups: s.InsertedGroups, Evicted: s.Evicted, Refused: s.Refused,
		Drawn: s.Drawn, Acknowledged: s.Acknowledged, Returned: s.Returned, OnLease: v.OnLease,
		UpdatesIgnored: s.UpdatesIgnored, NeverUsed: s.NeverUsed,
		Staleness: s.Staleness, MeanStaleness: s.MeanStaleness, UsesAtEviction: s.UsesAtEviction, UsesPresent: s.UsesPresent, SinceLastUse: s.SinceLastUse,
		NeverUsedShare: v.NeverUsed, AgeDecay: wire.Versions(v.AgeDecay),
		Limiter: v.Limiter, Gate: v.Gate, Prompts: promptsState(v.Prompts), Journal: journalStatistics(v.Journal),
		Waiting: wire.Waiting{Inserts: v.InsertsWaiting, Samples: v.SamplesWaiting, Starts: v.StartsWaiting},
	}
	for _, a := range v.ByAge {
		answer.Ages = append(answer.Ages, wire.AgeShare{Age: a.Age, Units: a.Units, Base: a.Base, Probability: a.Probability})
	}
	for _, e := range v.ESSByAge {
		answer.ESSByAge = append(answer.ESSByAge, wire.AgeESS{First: e.First, Last: e.Last, ESS: e.ESS, Tokens: e.Tokens})
	}
	return answer, nil
}

func promptsState(s *prompts.Stats) *wire.PromptsState {
	if s == nil {
		return nil
	}
	return &wire.PromptsState{
		Held: s.Held, Eligible: s.Eligible, Spent: s.Spent, Reported: s.Reported, ZeroVariance: s.ZeroVariance, Replayed: s.Replayed,
		Reuses: s.Reuses, PassRates: s.PassRates,
	}
}

func journalStatistics(s *JournalState) *wire.JournalStatistics {
	if s == nil {
		return nil
	}
	j := &wire.JournalStatistics{
		Sync: string(s.Sync), Commits: s.Stats.Commits, Bytes: s.Stats.FileBytes, Seconds: s.Stats.WriteTime.Seconds(),
	}
	if s.Err != nil {
		j.Error = s.Err.Error()
	}
	return j
}
