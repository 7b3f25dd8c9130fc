package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/wire"
)

// What the trends of the second half may grow by: a share of what there is, a fixed amount, and for each insertion the
// bytes in which a table remembers its id, up to the number of ids that it remembers. The process's memory also holds
// garbage, more of it on a busy machine.
const (
	liveGrowth, memoryGrowth = 0.15, 0.30
	fixedGrowth              = 64 << 20
	idBytes                  = 512
	rememberedIDs            = 100_000 // insertions per table
)

// A soak shorter than steadyAfter ends before memory is steady. It must only stay below maxMemory.
const (
	steadyAfter = 5 * time.Minute
	maxMemory   = 1536 << 20
)

// restBytes is what a service may hold besides the contents of its tables: pools, connections, the dashboard's history.
const restBytes = 128 << 20

// check checks what is left after the load, stops the service, and checks what it left on disk.
func (s *soaker) check(ctx context.Context) error {
	s.checkMemory()
	quiet, err := s.readQuiet(ctx)
	if err != nil {
		return err
	}
	s.verdict.check(quiet.goroutines <= s.idle.goroutines+collectors,
		"goroutines: %.0f after all clients have left, %.0f before they came", quiet.goroutines, s.idle.goroutines)
	before, err := s.checkContents(ctx)
	if err != nil {
		return err
	}
	if err := s.checkRest(ctx); err != nil {
		return err
	}
	s.summarize()
	if err := s.server.Stop(); err != nil {
		s.verdict.violation("stop: %v", err)
	} else {
		s.verdict.check(true, "the service stopped on SIGTERM, with exit code 0")
	}
	return s.checkJournals(ctx, before)
}

// checkMemory checks that memory was flat.
func (s *soaker) checkMemory() {
	if len(s.readings) < 4 {
		s.verdict.violation("memory was read only %d times", len(s.readings))
		return
	}
	highest := slices.MaxFunc(s.readings, func(a, b reading) int {
		return cmp.Compare(a.anonymous, b.anonymous)
	}).anonymous
	if s.For < steadyAfter {
		s.verdict.check(highest <= maxMemory, "memory: at most %s, allowed %s", mega(highest), mega(maxMemory))
		return
	}
	ids := 0.0
	for _, t := range s.tables {
		batches, _, _, _ := t.totals()
		ids += idBytes * float64(min(batches/2, rememberedIDs))
	}
	for _, m := range []struct {
		name        string
		share, more float64
		of          func(reading) float64
	}{
		{"live heap", liveGrowth, ids, func(r reading) float64 { return r.live }},
		{"memory", memoryGrowth, ids, func(r reading) float64 { return r.anonymous }},
		{"files", 0.5, 0, func(r reading) float64 { return r.files }},
	} {
		grown, middle := growth(s.readings, m.of)
		bound := m.share*middle + fixedGrowth + m.more
		s.verdict.check(grown <= bound, "%s: the trend of the second half is %+.1f MB around %s, allowed %s", m.name,
			grown/1e6, mega(middle), mega(bound))
	}
	s.verdict.fact("memory: at most %s", mega(highest))
}

// growth returns how much a figure grew over the second half of the time, by its trend, and its median there.
func growth(readings []reading, of func(reading) float64) (grown, median float64) {
	if len(readings) == 0 {
		return 0, 0
	}
	last := readings[len(readings)-1].after
	var x, y []float64
	for _, r := range readings {
		if r.after >= last/2 {
			x, y = append(x, r.after.Seconds()), append(y, of(r))
		}
	}
	return trend(x, y) * (last / 2).Seconds(), results.Median(y)
}

// trend returns the slope of y over x by Theil and Sen, the median slope of all pairs, which a few outliers do not
// move. It is 0 with fewer than two different x.
func trend(x, y []float64) float64 {
	var slopes []float64
	for i := range x {
		for j := range i {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	return results.Median(slopes)
}

// checkRest checks that the heap of an idle service holds the contents of its tables, what they remember, and little
// else.
func (s *soaker) checkRest(ctx context.Context) error {
	if s.For < steadyAfter {
		return nil
	}
	r, err := s.readCollected(ctx)
	if err != nil {
		return err
	}
	// A table remembers the last 256 batches with a request id, and fewer large ones.
	const batches, most = 256, 128 << 20
	remembered, payload := 0.0, 0.0
	for _, t := range s.tables {
		stats, err := s.direct.Table(t.Name).Statistics(ctx)
		if err != nil {
			return err
		}
		inserted, _, _, _ := t.totals()
		payload += float64(stats.Bytes)
		remembered += min(batches*batchSize*float64(stats.Bytes)/float64(max(stats.Present, 1)),
			most) + idBytes*float64(min(inserted, rememberedIDs))
	}
	bound := 1.5*payload + 1.5*remembered + restBytes
	s.verdict.check(r.live <= bound, "live heap at rest: %s, with %s of payload in the tables; allowed %s",
		mega(r.live), mega(payload), mega(bound))
	return nil
}

// readCollected waits for a garbage collection, which the runtime makes at least every two minutes, and returns a
// reading after it.
func (s *soaker) readCollected(ctx context.Context) (reading, error) {
	first, err := s.server.read(ctx)
	for err == nil {
		var r reading
		r, err = s.server.read(ctx)
		if err == nil && r.collections > first.collections {
			return r, nil
		}
		wait(ctx, time.Second)
	}
	return first, err
}

// checkContents checks the counts and contents of all tables after the load, and returns their statistics.
func (s *soaker) checkContents(ctx context.Context) (map[string]*wire.TableStatistics, error) {
	all := make(map[string]*wire.TableStatistics)
	for _, t := range s.tables {
		stats, err := s.settledStatistics(ctx, t.Name)
		if err != nil {
			return nil, err
		}
		all[t.Name] = stats
		batches, rows, unknown, received := t.totals()
		s.verdict.fact("table %s: %d rollouts acknowledged in %d insertions (%d unknown), %d received; inserted %d, "+
			"drawn %d, acknowledged %d, returned %d, present %d, version %d",
			t.Name, rows, batches, unknown, received, stats.Inserted, stats.Drawn, stats.Acknowledged, stats.Returned,
			stats.Present, stats.Version)
		if err := checkBalance(stats); err != nil {
			s.verdict.violation("table %s: the counts do not balance: %v", t.Name, err)
		}
		s.verdict.check(stats.OnLease == 0, "table %s: %d draws are on lease after all clients have left", t.Name,
			stats.OnLease)
		if err := t.checkInserted(stats.Inserted); err != nil {
			s.verdict.violation("table %s: %v", t.Name, err)
		} else {
			s.verdict.check(rows > 0 && received > 0,
				"table %s: its count of insertions agrees with the producers' answers; %d were acknowledged",
				t.Name, rows)
		}
		found, err := s.checkExport(ctx, t)
		if err != nil {
			return nil, err
		}
		s.verdict.check(found == stats.Present, "table %s: an export has %d rollouts, the table counts %d; each is "+
			"unchanged, and there once", t.Name, found, stats.Present)
	}
	return all, nil
}

// settledStatistics returns a table's statistics after every lease has ended, or after the time that this may take.
func (s *soaker) settledStatistics(ctx context.Context, table string) (*wire.TableStatistics, error) {
	deadline := time.Now().Add(settleTimeout)
	for {
		stats, err := s.direct.Table(table).Statistics(ctx)
		if err != nil || stats.OnLease == 0 || time.Now().After(deadline) {
			return stats, err
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// checkExport exports a table, checks every rollout, and returns their number.
func (s *soaker) checkExport(ctx context.Context, t *loadTable) (found int, err error) {
	seen := make(map[key]bool)
	err = s.direct.Table(t.Name).Export(ctx, client.ExportOptions{Rows: 64}, func(rec arrow.RecordBatch) error {
		draws, err := wire.Draws(rec, t.extra())
		if err != nil {
			return err
		}
		for _, d := range draws {
			found++
			k, err := checkRollout(d.Rollout, s.Longest)
			if err != nil {
				s.verdict.violation("table %s: id %d: %v", t.Name, d.ID, err)
			}
			if seen[k] {
				s.verdict.violation("table %s: rollout %s was returned twice", t.Name, k)
			}
			seen[k] = true
		}
		return nil
	})
	return found, err
}

// summarize notes what happened during the load.
func (s *soaker) summarize() {
	s.verdict.fact("insert: %s", &s.load.inserts)
	s.verdict.fact("sample: %s", &s.load.samples)
	s.verdict.fact("connections: %d cut, %d throttled; sessions: %s", s.proxy.cut.Load(), s.proxy.slow.Load(),
		&s.load.sessions)
	s.verdict.fact("expected errors: %s", &s.load.expected)
	s.verdict.fact("attacks: %s", &s.attacks)
	for _, a := range attacks() {
		if s.For >= time.Minute && s.Hostile > 0 && s.attacks.get(a.name) == 0 {
			s.verdict.violation("attack %q was never made", a.name)
		}
	}
	if n := s.attacks.get("internal"); n > 0 {
		s.verdict.violation("%d messages of clients were answered as defects of the service (internal)", n)
	}
}

// checkJournals verifies the journals that the service left, starts it again and compares the counts.
func (s *soaker) checkJournals(ctx context.Context, before map[string]*wire.TableStatistics) error {
	if err := verifyJournals(ctx, s.Program, s.server, s.verdict); err != nil {
		return err
	}
	took, err := s.server.start(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.tables {
		after, err := s.direct.Table(t.Name).Statistics(ctx)
		if err != nil {
			return err
		}
		if x, y := durableCounts(before[t.Name]), durableCounts(after); x != y {
			s.verdict.violation("table %s after a restart: the counts were %s and are %s", t.Name, x, y)
		}
	}
	s.verdict.check(true, "the journals were verified, and opened again in %s", took.Round(time.Millisecond))
	return s.server.Stop()
}

// verifyJournals runs `reprise journal verify` on each of the service's journals.
func verifyJournals(ctx context.Context, program string, s *server, v *Verdict) error {
	files, err := s.journals()
	if err != nil {
		return err
	}
	for _, f := range files {
		if out, err := exec.CommandContext(ctx, program, "journal", "verify", f).CombinedOutput(); err != nil {
			v.violation("journal verify %s: %v: %.500s", f, err, out)
		}
	}
	return nil
}

// durableCounts lists the counts of a table that survive a restart.
func durableCounts(s *wire.TableStatistics) string {
	return fmt.Sprintf("version %d, present %d (%d bytes), inserted %d in %d groups, evicted %v, drawn %d, "+
		"acknowledged %d, returned %d, uses %v and %v",
		s.Version, s.Present, s.Bytes, s.Inserted, s.InsertedGroups, s.Evicted, s.Drawn, s.Acknowledged, s.Returned,
		s.UsesPresent.Bins(), s.UsesAtEviction.Bins())
}
