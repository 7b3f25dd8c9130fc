package watch_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/service/watch"
	"github.com/reprise-rl/reprise/wire"
)

// atWork is one table that takes and gives ten rollouts a second, the given seconds after it was made.
func atWork(after int) service.Observation {
	o := empty()
	o.At = epoch().Add(time.Duration(after) * time.Second)
	v := &o.Tables[0]
	v.Stats.Inserted, v.Counters.InsertedRows, v.Counters.SampledRows = uint64(10*after+1), uint64(10*after),
		uint64(10*after)
	return o
}

func TestTheStateOfATableNamesTheWaitingSide(t *testing.T) {
	held := func(inserts, samples bool) *wire.LimiterState {
		return &wire.LimiterState{SamplesPerInsert: 4, InsertsHeld: inserts, SamplesHeld: samples}
	}
	around := func(balance float64) *wire.LimiterState {
		return &wire.LimiterState{SamplesPerInsert: 4, Balance: balance, Min: -1000, Max: 1000}
	}
	for want, change := range map[string]func(v *service.TableView, step int){
		`good" title="neither side waits for long">flowing`: func(*service.TableView, int) {},
		`still" title="nothing was inserted yet">unused`: func(v *service.TableView, _ int) {
			v.Stats.Inserted, v.Counters = 0, service.Counters{}
		},
		`still" title="no inserts and no samples in the last 10 s">idle`: func(v *service.TableView,
			_ int) {
			v.Counters = service.Counters{InsertedRows: 7}
		},
		`bad" title="inserts are refused until a restart">journal failed`: func(v *service.TableView, _ int) {
			v.InsertsWaiting, v.Journal = 1,
				&service.JournalState{Sync: journal.Always, Err: errors.New("no space left")}
		},
		`restore a checkpoint">journal damaged`: func(v *service.TableView, _ int) {
			v.Journal = &service.JournalState{Stats: journal.Stats{Damage: []journal.Damage{{Cut: 7}}}}
		},
		`last 10 s">waiting: 3 callers for draws<`: func(v *service.TableView, step int) { // they have just come
			v.Counters, v.SamplesWaiting = service.Counters{InsertedRows: 7}, step/15*3
		},
		`last 10 s">waiting: 1 caller for room, 1 caller for the gate<`: func(v *service.TableView, step int) {
			v.Stats.Inserted, v.Counters = 0, service.Counters{}
			v.InsertsWaiting, v.StartsWaiting = step/15, step/15
		},
		`in the last 10 s">waiting: callers time out<`: func(v *service.TableView, step int) { // and ask again
			v.Counters = service.Counters{InsertedRows: 7, Starved: uint64(step)}
		},
		`title="generators wait for the next version before starting more rollouts">gate closed<`: func(
			v *service.TableView, _ int) {
			v.Counters, v.StartsWaiting = service.Counters{InsertedRows: 7}, 1
		},
		`>inserts wait<`: func(v *service.TableView, _ int) { v.InsertsWaiting = 1 },
		`>inserts held<`: func(v *service.TableView, _ int) { v.InsertsWaiting, v.Limiter = 1, held(true, false) },
		`>samples wait<`: func(v *service.TableView,
			_ int) {
			v.SamplesWaiting = 2
			v.Limiter = around(64)
			v.Limiter.Min = 0
		},
		`title="the limiter holds inserts: trainers are the slower side">inserts held<`: func(v *service.TableView,
			_ int) { // not a rollout, but a group of 16
			v.InsertsWaiting, v.Limiter = 1, around(1000-63)
			v.Counters.InsertRequests = v.Counters.InsertedRows / 16
		},
		`title="the limiter holds samples: generators are the slower side">samples held<`: func(v *service.TableView,
			_ int) { // not a draw, but a batch of 64
			v.SamplesWaiting, v.Limiter = 1, around(63-1000)
			v.Counters.Samples = v.Counters.SampledRows / 64
		},
		`>samples held<`: func(v *service.TableView, _ int) { v.SamplesWaiting, v.Limiter = 2, held(false, true) },
		`>gate closed<`:  func(v *service.TableView, _ int) { v.StartsWaiting = 3 },
	} {
		if got := stateAfter(t, change); !strings.Contains(got, want) {
			t.Errorf("want %s in %s", want, got)
		}
	}
}

func TestShortWaitsDoNotChangeTheState(t *testing.T) {
	for name, change := range map[string]func(v *service.TableView, step int){
		"once":                 func(v *service.TableView, step int) { v.SamplesWaiting = step / 15 },
		"every other step":     func(v *service.TableView, step int) { v.SamplesWaiting = step % 2 },
		"long ago, and longer": func(v *service.TableView, step int) { v.InsertsWaiting = 1 - step/10 },
	} {
		if got := stateAfter(t, change); !strings.Contains(got, ">flowing<") {
			t.Errorf("waiting %s: %s", name, got)
		}
	}
}

func TestAnAlertSaysWhatWaitsForHowLongAndWhatToDo(t *testing.T) {
	stop := func(v *service.TableView, at int) { // nothing moves from 100 s on
		v.Counters.InsertedRows, v.Counters.SampledRows = uint64(10*min(at, 100)), uint64(10*min(at, 100))
	}
	for name, c := range map[string]struct {
		change func(v *service.TableView, at int)
		want   []string
		none   string
	}{
		"trainers without generators": {func(v *service.TableView, at int) {
			stop(v, at)
			v.Counters.Samples, v.Stats.Present, v.NeverUsed = 2, 400, 0.1
			v.SamplesWaiting = 3 * min(1, at/100)
		}, []string{"Starved for 40 s: 3 trainers wait for a batch, so far of 500 rollouts; the table holds 400, 40 of them " +
			"unused.", "Nothing was inserted for 40 s: see whether the generators still run"}, "Insertions blocked"},
		"trainers that are faster": {func(v *service.TableView, at int) {
			v.Counters.SampledRows = uint64(10 * min(at, 100))
			v.SamplesWaiting = min(1, at/100)
		}, []string{"Starved for 40 s: 1 trainer waits for", "Rollouts arrive at 10/s: generators are the slower side."},
			""},
		"trainers that time out": {func(v *service.TableView, at int) {
			stop(v, at)
			v.Counters.Starved = uint64(max(0, at-98))
		}, []string{"Starved for 40 s: trainers time out and ask again"}, ""},
		"both at the gate": {func(v *service.TableView, at int) {
			stop(v, at)
			v.SamplesWaiting, v.StartsWaiting = min(1, at/100), min(1, at/100)
			v.Gate = &wire.GateState{RolloutsPerUpdate: 64}
		}, []string{"Both sides wait: generators wait at the gate", "lets 64 start per version"},
			"have waited at the gate"},
		"a full queue": {func(v *service.TableView, at int) {
			stop(v, at)
			v.InsertsWaiting, v.Stats.Present, v.OnLease = 2*min(1, at/100), 4096, 128
		}, []string{"Insertions blocked for 40 s: 2 generators wait for room. The table holds 4,096 of 4,096 rollouts. 128 " +
			"draws are on lease", "Nothing was drawn for 40 s: see whether the trainers still run"}, "Starved"},
		"a limiter": {func(v *service.TableView, at int) {
			v.Counters.InsertedRows = uint64(10 * min(at, 100))
			v.InsertsWaiting = min(1, at/100)
			v.Limiter = &wire.LimiterState{SamplesPerInsert: 4, Max: 100, Balance: 99, InsertsHeld: true}
		}, []string{"The limiter holds insertions: its balance is 99, and 100 is the most.", "Trainers draw 10/s: they are the " +
			"slower side."}, ""},
		"a trainer that died": {func(v *service.TableView, at int) {
			v.Counters.InsertedRows, v.Counters.SampledRows = 7, 7
			v.StartsWaiting, v.Gate, v.Stats.Version = 2, &wire.GateState{}, 1843
		}, []string{"Generators have waited at the gate for 2 min 20 s: 2 callers wait, and the table is at version 1,843."},
			""},
		"nobody":                                {func(v *service.TableView, at int) { stop(v, at) }, nil, "alarm"},
		"a stream that asks for its next batch": {func(v *service.TableView, _ int) { v.SamplesWaiting = 1 }, nil, "alarm"},
	} {
		f := &fake{}
		w, err := watch.New(f.observe, watch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at <= 140; at += 2 {
			o := atWork(at)
			c.change(&o.Tables[0], at)
			w.Record(o)
			f.set(o)
		}
		body := get(w, "/fragment", "").Body.String()
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				_, got, _ := strings.Cut(body, `class="alarm`)
				t.Errorf("%s: no %q in %.600s", name, want, got)
			}
		}
		if c.none != "" && strings.Contains(body, c.none) {
			t.Errorf("%s: the page says %q", name, c.none)
		}
	}
}

func TestAlertsOfTablesThatAreNotShownInFullAreAtTheTop(t *testing.T) {
	f := &fake{}
	w, err := watch.New(f.observe, watch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at <= 60; at += 2 {
		o := atWork(at)
		for i := range 8 {
			v := o.Tables[0]
			v.Name = "other-" + string(rune('a'+i))
			if i == 5 {
				v.SamplesWaiting, v.Counters.SampledRows = 1, 0
			}
			o.Tables = append(o.Tables, v)
		}
		w.Record(o)
		f.set(o)
	}
	body := get(w, "/fragment", "").Body.String()
	if strings.Count(body, "Starved for") != 1 || !strings.Contains(body, "<b>other-f</b> <b>Starved for 1 min 0 s") {
		t.Errorf("the alert of a table in the overview is missing:\n%.2000s", body)
	}
}

// stateAfter looks at a table 16 times, every two seconds, and returns the mark beside its name.
func stateAfter(t *testing.T, change func(v *service.TableView, step int)) string {
	t.Helper()
	f := &fake{}
	w, err := watch.New(f.observe, watch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 16 {
		o := atWork(2 * step)
		change(&o.Tables[0], step)
		w.Record(o)
		f.set(o)
	}
	body := get(w, "/fragment", "").Body.String()
	_, mark, _ := strings.Cut(body, "<h2>math</h2>")
	mark, _, _ = strings.Cut(mark, "<ul")
	return mark
}
