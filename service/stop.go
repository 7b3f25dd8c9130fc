package service

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Summary is what a stop did.
type Summary struct {
	Tables   int // that there were
	Durable  int // of them, with a journal, which was flushed and closed
	Rollouts int // in all tables
	Bytes    int64
	Drained  int // requests under way that were let finish
	Left     int // requests still under way when time was up
	Released int // batches on lease that went back
	Took     time.Duration
}

// String says it in words.
func (s Summary) String() string {
	text := fmt.Sprintf("stopped in %v: %d %s let finish", s.Took.Round(time.Millisecond), s.Drained, plural(s.Drained, "request", "requests"))
	if s.Left > 0 {
		text += fmt.Sprintf(", %d cut off as time was up", s.Left)
	}
	text += fmt.Sprintf("; %d leased %s given back", s.Released, plural(s.Released, "batch", "batches"))
	switch {
	case s.Tables == 0:
		return text + "; there were no tables"
	case s.Durable == s.Tables:
		return text + fmt.Sprintf("; %d %s with %d rollouts of %.1f MB are on disk", s.Tables, plural(s.Tables, "table", "tables"), s.Rollouts, float64(s.Bytes)/1e6)
	}
	if s.Durable == 0 {
		return text + fmt.Sprintf("; %d %s with %d rollouts of %.1f MB, in memory alone, went with the process", s.Tables, plural(s.Tables, "table", "tables"), s.Rollouts, float64(s.Bytes)/1e6)
	}
	return text + fmt.Sprintf("; of %d %s with %d rollouts of %.1f MB, %d on disk and %d gone with the process",
		s.Tables, plural(s.Tables, "table", "tables"), s.Rollouts, float64(s.Bytes)/1e6, s.Durable, s.Tables-s.Durable)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Stop ends the service: requests that wait are told so, those under way may finish until the context ends, batches on lease go
// back, and the journals are flushed and closed. Streams that stay open get errors with code wire.Closing; the grpc server is the
// caller's to stop, after this. It may be called again, and says the same.
func (s *Service) Stop(ctx context.Context) (Summary, error) {
	s.stop.Do(func() { s.summary, s.stopErr = s.shutDown(ctx) })
	return s.summary, s.stopErr
}

func (s *Service) shutDown(ctx context.Context) (sum Summary, err error) {
	began := time.Now()
	under, idle := s.work.stop() // which counts those that wait, too, before they are told
	close(s.closing)
	select {
	case <-idle:
	case <-ctx.Done():
		sum.Left = s.work.left()
		err = fmt.Errorf("%d requests did not finish: %w", sum.Left, ctx.Err())
	}
	sum.Drained = under - sum.Left
	for _, t := range s.list() {
		for _, id := range t.leases.takeAll() {
			if t.store.Release(id) == nil { // others were over
				sum.Released++
			}
		}
		f := t.store.Flow()
		sum.Tables++
		sum.Rollouts += f.Present
		sum.Bytes += f.Bytes
		if t.journal != nil {
			sum.Durable++
		}
	}
	err = errors.Join(err, s.closeJournals())
	sum.Took = time.Since(began)
	s.log.Info(sum.String())
	return sum, err
}

// left returns how many operations are under way.
func (w *work) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}
