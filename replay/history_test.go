package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// note adds an event to a life of the model, at this moment.
func (m *model) note(id rollout.ID, e Event) {
	if m.lives != nil {
		e.Time, e.Version = m.now().UTC(), m.version
		m.lives[id].Events = append(m.lives[id].Events, e)
	}
}

func (m *model) noteInsertion(u *modelUnit) {
	if m.lives == nil {
		return
	}
	entersAt := 0.0
	if m.o.Entry == EnterMax { // as enterAtMax, which follows
		if entersAt = m.largest[u.shard]; entersAt <= m.o.PriorityEpsilon {
			entersAt = 1
		}
	}
	for _, it := range u.items {
		m.lives[it.id] = &Life{ID: it.id, Group: uint64(u.group), Made: it.r.Version(), Reward: Number(it.r.Reward),
			Advantage: Number(it.advantage)}
		e := Event{Kind: WasInserted}
		if m.o.Sampler == Prioritized && !u.passed && !u.tooOld && !u.waits {
			e.Priority = new(max(entersAt, it.base))
		}
		m.note(it.id, e)
	}
}

func (m *model) noteEviction(u *modelUnit, why rollout.Cause) {
	for _, it := range u.items {
		m.note(it.id, Event{Kind: WasEvicted, Cause: why})
	}
}

func (m *model) noteDraws(b *rollout.Batch) {
	for _, d := range b.Draws {
		if m.lives == nil {
			return
		}
		if last := m.lives[d.ID].Events; last[len(last)-1].Draw != nil && last[len(last)-1].Draw.Batch == b.ID {
			last[len(last)-1].Draw.Times++
			continue
		}
		m.note(d.ID, Event{Kind: WasDrawn, Draw: &EventDraw{Batch: b.ID, Times: 1, Probability: d.Probability,
			Weight: float64(d.Weight), Staleness: int(d.Staleness), Fresh: d.Fresh, Outcome: OnLease}})
	}
}

func (m *model) noteOutcome(b *rollout.Batch, what Outcome) {
	for _, d := range b.Draws {
		if m.lives == nil {
			return
		}
		for _, e := range m.lives[d.ID].Events {
			if e.Draw != nil && e.Draw.Batch == b.ID {
				e.Draw.Outcome = what
			}
		}
	}
}

// noteReport follows rebase.
func (m *model) noteReport(f rollout.Feedback) {
	e, u := Event{Kind: WasReported}, m.unitOf(f.ID)
	if u.present && m.o.Sampler == Prioritized && !u.waits {
		at := slices.IndexFunc(u.items, func(it *modelItem) bool { return it.id == f.ID })
		e.Priority = new(u.items[at].base)
	}
	measured := EventMeasured{}
	for to, from := range map[**float64]rollout.Measurement{&measured.Advantage: f.Advantage, &measured.TDError: f.TDError,
		&measured.GradNorm: f.GradNorm} {
		if from.Known {
			*to = new(from.Value)
		}
	}
	if f.Tokens > 0 {
		measured.MeanRatio = new(f.RatioSum / f.Tokens)
		e.Measured = &measured
	}
	m.note(f.ID, e)
}

// checkLives compares the lives that the table remembers with the model's: of each the insertion and the latest events.
func (tr *trial) checkLives() {
	tr.t.Helper()
	for id, want := range tr.model.lives {
		want := *want
		want.Events = slices.Clone(want.Events)
		if n := len(want.Events); n > MostEvents {
			want.Forgotten = n - MostEvents
			want.Events = slices.Concat(want.Events[:1], want.Events[n-MostEvents+1:])
		}
		got, ok := tr.table.Inspect().Life(id)
		for i := range got.Events {
			p, q := &got.Events[i].Priority, &want.Events[i].Priority
			if tr.model.o.PriorityBase == BaseExpression || *p != nil && *q != nil && near(**p, **q) {
				*p, *q = nil, nil
			}
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if !ok || string(a) != string(b) {
			tr.t.Fatalf("a life is\n%s, by definition\n%s", a, b)
		}
	}
}

// A table remembers those to which something happened last, as many as the option says.
func TestAHistoryForgetsThoseToWhichNothingHappenedForLongest(t *testing.T) {
	const seed, most = 1, 24
	random := rollout.Stream(seed, "history", 0)
	table := mustNew(t, Options{Capacity: 16, History: most})
	last := make(map[rollout.ID]int) // step of the last event
	present := make(map[rollout.ID]bool)
	for step := range 2000 {
		switch random.IntN(4) {
		case 0:
			ids, err := table.Insert(ctx, someGroup(random, 1+random.IntN(3), 0))
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				present[id] = true
			}
		case 1, 2:
			b, err := table.Sample(ctx, rollout.Request{Size: 1 + random.IntN(2)})
			if err != nil {
				continue // it holds too little yet
			}
			for _, d := range b.Draws {
				last[d.ID] = step
			}
		default:
			id := rollout.ID(1 + random.IntN(len(last)+1))
			if last[id] == 0 {
				continue
			}
			if err := table.Update(ctx, []rollout.ID{id}, []float64{1}); err != nil {
				t.Fatal(err)
			}
			if _, ok := table.Inspect().Life(id); ok {
				last[id] = step
			}
		}
		for id, was := range present {
			if _, is := table.Inspect().Get(id); last[id] == 0 || was && !is {
				present[id], last[id] = is, step
			}
		}
		kept, forgotten, n := math.MaxInt, -1, 0
		for id, at := range last {
			if _, ok := table.Inspect().Life(id); ok {
				kept, n = min(kept, at), n+1
			} else {
				forgotten = max(forgotten, at)
			}
		}
		if n != min(most, len(last)) || forgotten > kept {
			t.Fatalf("step %d of seed %d: %d lives of %d rollouts; one of step %d is forgotten, one of step %d is not", step,
				seed, n, len(last), forgotten, kept)
		}
	}
}

func TestALifeNamesThoseWhoseContextsSayWhoTheyAre(t *testing.T) {
	clock := &fakeClock{time.Unix(1000, 0)}
	table := mustNew(t, Options{Capacity: 4, MaxUses: 2, Sampler: Prioritized, History: 8, LeaseSeconds: 5,
		Clock: clock.time})
	as := func(name string) context.Context { return WithCaller(ctx, name) }
	ids, err := table.Insert(as("worker"), someGroup(rollout.Stream(1, "names", 0), 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Lease(as("trainer"), rollout.Request{Size: 1}); err != nil {
		t.Fatal(err)
	}
	clock.now = clock.now.Add(5 * time.Second) // it ends
	if _, err := table.Sample(ctx, rollout.Request{Size: 2}); err != nil {
		t.Fatal(err)
	}
	if err := table.Update(as("late"), ids, []float64{1}); err != nil {
		t.Fatal(err)
	}
	life, _ := table.Inspect().Life(ids[0])
	var told []string
	for _, e := range life.Events {
		of := ""
		if e.Draw != nil {
			of = fmt.Sprintf(" %d %s", e.Draw.Times, e.Draw.Outcome)
		}
		told = append(told, fmt.Sprintf("%s%s %s by %q at %d", e.Kind, of, e.Cause, e.Caller, e.Time.Unix()))
	}
	want := []string{`inserted  by "worker" at 1000`, `drawn 1 returned  by "trainer" at 1000`,
		`drawn 2 used  by "" at 1005`, `evicted uses by "" at 1005`, `reported  by "late" at 1005`}
	if !slices.Equal(told, want) {
		t.Errorf("the life is\n%q, want\n%q", told, want)
	}
	for i := range 2 * maxCallers {
		_ = table.Update(as(fmt.Sprintf("%d%080d", i, 0)), ids, []float64{1})
	}
	if h := table.shards[0].history; len(h.callers) != maxCallers || len(h.callers[9]) != callerBytes {
		t.Errorf("%d names are remembered, one of %d bytes", len(h.callers), len(h.callers[9]))
	}
}

// A history that is full takes no more than the options say.
func TestAHistoryTakesNoMoreMemoryThanItSays(t *testing.T) {
	const lives = 20_000
	o := Options{Capacity: 2 * lives, History: lives}
	table := mustNew(t, o)
	groups := benchGroups(1)
	before := heap()
	for range (lives + lives/benchGroup) / benchGroup {
		if _, err := table.Insert(ctx, groups[0]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * MostEvents {
		for first := 1; first <= lives; first += 1000 {
			var ids []rollout.ID
			for id := first; id < first+1000; id++ {
				ids = append(ids, rollout.ID(id))
			}
			if err := table.Update(ctx, ids, make([]float64, len(ids))); err != nil {
				t.Fatal(err)
			}
		}
	}
	took, items := heap()-before, table.Options()
	items.History = 0
	took -= int64(table.present()) * RolloutOverhead / 2 // of the table itself
	t.Logf("%d bytes a life", took/lives)
	if most := table.Options().HistoryBytes(); took > most || items.HistoryBytes() != 0 {
		t.Errorf("a history of %d lives took %d bytes, above %d", lives, took, most)
	}
	runtime.KeepAlive(table)
}

func TestARestoredTableRemembersWhatHappensFromThenOn(t *testing.T) {
	table := mustNew(t, Options{Capacity: 8, History: 8})
	ids, err := table.Insert(ctx, someGroup(rollout.Stream(1, "restored", 0), 3, 0))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := table.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	other := mustNew(t, Options{Capacity: 8, History: 2})
	if err := other.Restore(&b); err != nil {
		t.Fatal(err)
	}
	if _, ok := other.Inspect().Life(ids[0]); ok {
		t.Error("a snapshot brought lives")
	}
	if _, err := other.Sample(ctx, rollout.Request{Size: 3}); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, id := range ids {
		if life, ok := other.Inspect().Life(id); ok {
			told++
			if len(life.Events) != 1 || life.Events[0].Kind != WasDrawn || life.Group != 1 {
				t.Errorf("rollout %d has the life %+v", id, life)
			}
		}
	}
	if told != 2 {
		t.Errorf("%d lives, want 2", told)
	}
}

// A cycle inserts a group, draws a batch and reports it, in a table that is full.
func BenchmarkHistory(b *testing.B) {
	groups := benchGroups(64)
	var off float64
	for _, c := range []struct {
		name string
		Options
	}{{"off", Options{}}, {"on", Options{History: 1 << 15}}} {
		b.Run(c.name, func(b *testing.B) {
			c.Capacity, c.Sampler = 1<<14, Prioritized
			table := mustNew(b, c.Options)
			for i := range 2 << 14 / benchGroup {
				if _, err := table.Insert(ctx, groups[i%len(groups)]); err != nil {
					b.Fatal(err)
				}
			}
			feedback, i := make([]rollout.Feedback, benchBatch), 0
			for b.Loop() {
				_, err := table.Insert(ctx, groups[i%len(groups)])
				batch, failed := table.Sample(ctx, rollout.Request{Size: benchBatch})
				if err := errors.Join(err, failed); err != nil {
					b.Fatal(err)
				}
				for k, d := range batch.Draws {
					feedback[k] = rollout.Feedback{ID: d.ID, Advantage: rollout.Measured(float64(k))}
				}
				if err := table.Report(ctx, feedback...); err != nil {
					b.Fatal(err)
				}
				i++
			}
			if per := perRollout(b, benchBatch, off); off == 0 {
				off = per
			}
		})
	}
}
