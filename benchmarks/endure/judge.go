package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/wire"
)

// What the trends of the second half may grow by: a share of what there is, a fixed amount, and for each insertion the bytes in
// which a table remembers its id, up to the number that it remembers at all. The process's memory holds garbage too, more of it
// on a busier machine.
const (
	flatLive, flatMemory = 0.15, 0.30
	flatBytes            = 64 << 20
	rememberedBytes      = 512
	remembered           = 100_000 // insertions per table
)

// Runs shorter than steady end before memory is in its steady state; all that is asked of them is to stay below peak.
const (
	steady = 5 * time.Minute
	peak   = 1536 << 20
)

// judgeMemory judges whether memory was flat.
func (k *soaker) judgeMemory() {
	if len(k.readings) < 4 {
		k.verdict.violate("memory was read %d times only", len(k.readings))
		return
	}
	highest := slices.MaxFunc(k.readings, func(a, b reading) int { return cmp.Compare(a.anonymous, b.anonymous) }).anonymous
	if k.For < steady {
		k.verdict.hold(highest <= peak, "memory: %s at most, allowed are %s", mega(highest), mega(peak))
		return
	}
	ids := 0.0
	for _, p := range k.places {
		batches, _, _, _ := p.totals()
		ids += rememberedBytes * float64(min(batches/2, remembered))
	}
	k.judgeTrend("live heap", flatLive, ids, func(r reading) float64 { return r.live })
	k.judgeTrend("memory", flatMemory, ids, func(r reading) float64 { return r.anonymous })
	k.judgeTrend("files", 0.5, 0, func(r reading) float64 { return r.files })
	k.verdict.fact("memory: %s at most", mega(highest))
}

// judgeTrend judges what something grew by over the second half.
func (k *soaker) judgeTrend(name string, share, more float64, of func(reading) float64) {
	grown, middle := growth(k.readings, of)
	bound := share*middle + flatBytes + more
	k.verdict.hold(grown <= bound, "%s: the trend of the second half is %+.1f MB around %s, allowed are %s", name, grown/1e6, mega(middle), mega(bound))
}

// judgeRest judges what the heap holds when nobody works any more: what the tables hold and remember, and little else.
func (k *soaker) judgeRest(ctx context.Context) error {
	if k.For < steady {
		return nil
	}
	r, err := k.collected(ctx)
	if err != nil {
		return err
	}
	// A table remembers the last 256 batches that were asked for by an id, and of large ones fewer.
	const batches, most = 256, 128 << 20
	held, payload := 0.0, 0.0
	for _, p := range k.places {
		s, err := k.direct.Table(p.Name).Statistics(ctx)
		if err != nil {
			return err
		}
		inserted, _, _, _ := p.totals()
		payload += float64(s.Bytes)
		held += min(batches*batchSize*float64(s.Bytes)/float64(max(s.Present, 1)), most) + rememberedBytes*float64(min(inserted, remembered))
	}
	bound := 1.5*payload + 1.5*held + restBytes
	k.verdict.hold(r.live <= bound, "live heap at rest: %s, of which %s are the payload of the tables; allowed are %s", mega(r.live), mega(payload), mega(bound))
	return nil
}

// restBytes is what a service may have beside what its tables hold: pools, connections, the dashboard's history.
const restBytes = 128 << 20

// collected waits until garbage has been collected, which the runtime does every two minutes at least, and measures.
func (k *soaker) collected(ctx context.Context) (reading, error) {
	first, err := k.server.read(ctx)
	for err == nil {
		var r reading
		r, err = k.server.read(ctx)
		if err == nil && r.collected > first.collected {
			return r, nil
		}
		wait(ctx, time.Second)
	}
	return first, err
}

// judgeGoroutines judges whether what the clients brought has gone with them.
func (k *soaker) judgeGoroutines(calm reading) {
	k.verdict.hold(calm.goroutines <= k.idle.goroutines, "goroutines: %.0f when all clients have left, %.0f before they came", calm.goroutines, k.idle.goroutines)
}

// judgeBooks judges what the tables say and hold once nobody works any more.
func (k *soaker) judgeBooks(ctx context.Context) (map[string]*wire.TableStatistics, error) {
	all := make(map[string]*wire.TableStatistics)
	for _, p := range k.places {
		s, err := k.settled(ctx, p)
		if err != nil {
			return nil, err
		}
		all[p.Name] = s
		batches, rows, unknown, drawn := p.totals()
		k.verdict.fact("table %s: %d rollouts acknowledged in %d insertions (%d unknown), %d received; inserted %d, drawn %d, acknowledged %d, returned %d, present %d, version %d",
			p.Name, rows, batches, unknown, drawn, s.Inserted, s.Drawn, s.Acknowledged, s.Returned, s.Present, s.Version)
		if err := balance(s); err != nil {
			k.verdict.violate("table %s: the books do not balance: %v", p.Name, err)
		}
		k.verdict.hold(s.OnLease == 0, "table %s: %d draws are on lease when all clients have left", p.Name, s.OnLease)
		if err := p.agrees(s.Inserted); err != nil {
			k.verdict.violate("table %s: %v", p.Name, err)
		} else {
			k.verdict.hold(rows > 0 && drawn > 0, "table %s: its count of insertions agrees with what the producers were told; %d were acknowledged", p.Name, rows)
		}
		found, err := k.takeStock(ctx, p)
		if err != nil {
			return nil, err
		}
		k.verdict.hold(found == s.Present, "table %s: an export holds %d rollouts, the table says %d; each is as it was made, and there once", p.Name, found, s.Present)
	}
	return all, nil
}

// settled returns a table's statistics once every lease has gone back, or after the time which that may take.
func (k *soaker) settled(ctx context.Context, p *place) (*wire.TableStatistics, error) {
	deadline := time.Now().Add(settleTimeout)
	for {
		s, err := k.direct.Table(p.Name).Statistics(ctx)
		if err != nil || s.OnLease == 0 || time.Now().After(deadline) {
			return s, err
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// takeStock exports a table and checks every rollout in it.
func (k *soaker) takeStock(ctx context.Context, p *place) (found int, err error) {
	seen := make(map[key]bool)
	err = k.direct.Table(p.Name).Export(ctx, 64, nil, func(rec arrow.RecordBatch) error {
		draws, err := wire.Draws(rec, p.extra())
		if err != nil {
			return err
		}
		for _, d := range draws {
			found++
			name, err := check(d.Rollout, k.Longest)
			if err != nil {
				k.verdict.violate("table %s: id %d: %v", p.Name, d.ID, err)
			}
			if seen[name] {
				k.verdict.violate("table %s: rollout %s is there twice", p.Name, name)
			}
			seen[name] = true
		}
		return nil
	})
	return found, err
}

// facts notes what happened on the way.
func (k *soaker) facts() {
	k.verdict.fact("insert: %s", &k.load.inserts)
	k.verdict.fact("sample: %s", &k.load.samples)
	k.verdict.fact("connections: %d cut, %d throttled; sessions: %s", k.proxy.cut.Load(), k.proxy.slow.Load(), &k.load.sessions)
	k.verdict.fact("answers that are part of the game: %s", &k.load.answers)
	k.verdict.fact("nonsense: %s", &k.attacks)
	for _, a := range attacks() {
		if k.For >= time.Minute && k.Vandals > 0 && k.attacks.of(a.name) == 0 {
			k.verdict.violate("nonsense of kind %q was never sent", a.name)
		}
	}
	if n := k.attacks.of("internal"); n > 0 {
		k.verdict.violate("%d messages that a client could send were answered as defects of the service (internal)", n)
	}
}

// judgeJournals verifies the files that the service left, starts it again and compares the books.
func (k *soaker) judgeJournals(ctx context.Context, before map[string]*wire.TableStatistics) error {
	files, err := k.server.journals()
	if err != nil {
		return err
	}
	for _, f := range files {
		out, err := exec.CommandContext(ctx, k.Program, "journal", "verify", f).CombinedOutput()
		if err != nil {
			k.verdict.violate("journal verify %s: %v: %.500s", f, err, out)
		}
	}
	took, err := k.server.start(ctx)
	if err != nil {
		return err
	}
	for _, p := range k.places {
		s, err := k.direct.Table(p.Name).Statistics(ctx)
		if err != nil {
			return err
		}
		if same := sameBooks(before[p.Name], s); same != nil {
			k.verdict.violate("table %s after a restart: %v", p.Name, same)
		}
	}
	k.verdict.hold(true, "%d journals were verified, and opened anew in %s", len(files), took.Round(time.Millisecond))
	return k.server.stop()
}

// sameBooks returns how the books after a restart differ from those before, nil if they do not.
func sameBooks(before, after *wire.TableStatistics) error {
	if x, y := booksOf(before), booksOf(after); x != y {
		return fmt.Errorf("the books were %s and are %s", x, y)
	}
	return nil
}

// booksOf is what of a table's counts outlives a restart.
func booksOf(s *wire.TableStatistics) string {
	return fmt.Sprintf("version %d, present %d (%d bytes), inserted %d in %d groups, evicted %v, drawn %d, acknowledged %d, returned %d, uses %v and %v",
		s.Version, s.Present, s.Bytes, s.Inserted, s.InsertedGroups, s.Evicted, s.Drawn, s.Acknowledged, s.Returned, s.UsesPresent.Bins(), s.UsesAtEviction.Bins())
}
