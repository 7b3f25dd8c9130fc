package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// RecoverySettings are the settings of a recovery.
type RecoverySettings struct {
	Program  string        `default:"bin/reprise" help:"Program whose verb serve is killed."`
	Dir      string        `help:"Folder for the journal, removed in the end; the system's folder for temporary files by default."`
	Rollouts int           `default:"100000" help:"Rollouts in the table when the service is killed."`
	Tokens   int           `default:"1000" help:"Tokens of each rollout."`
	Within   time.Duration `default:"5s" help:"Longest time from start to ready."`
	Times    int           `default:"3" help:"Number of kills."`
}

// fillers is the number of clients that fill the table, fillRows the number of rollouts in an insertion.
const (
	fillers  = 4
	fillRows = 256
)

// recovery fills a table, kills the service and measures how long it takes to serve again.
func recovery(ctx context.Context, s RecoverySettings, out io.Writer) (*Verdict, error) {
	dir, remove, err := workspace(s.Dir, "reprise-recovery", false, out)
	if err != nil {
		return nil, err
	}
	defer remove()
	server, err := newServer(s.Program, dir)
	if err != nil {
		return nil, err
	}
	defer server.close()
	if _, err := server.start(ctx); err != nil {
		return nil, err
	}
	direct, err := server.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer direct.Close()
	if _, err := direct.Create(ctx, wire.Table{Name: "full",
		Options: replay.Options{Capacity: s.Rollouts}}); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.fill(ctx, direct.Table("full")); err != nil {
		return nil, err
	}
	size, err := folderSize(server.data)
	if err != nil {
		return nil, err
	}
	v := &Verdict{}
	v.fact("inserted %d rollouts of %d tokens in %s, journal %s", s.Rollouts, s.Tokens,
		time.Since(began).Round(time.Millisecond), mega(size))
	for range s.Times {
		server.Kill()
		took, err := server.start(ctx)
		if err != nil {
			return nil, err
		}
		stats, err := direct.Table("full").Statistics(ctx)
		if err != nil {
			return nil, err
		}
		v.check(stats.Present == s.Rollouts, "the table holds %d rollouts of %d after kill -9", stats.Present,
			s.Rollouts)
		busy, err := server.processorTime()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "ready again after %s, and %s of processor time\n", took.Round(time.Millisecond), busy)
		v.check(took <= s.Within, "ready again after %s, allowed %s", took.Round(time.Millisecond), s.Within)
	}
	v.fact("the service: %s", recovered(server.Output()))
	return v, server.Stop()
}

// fill inserts with several clients at once.
func (s *RecoverySettings) fill(ctx context.Context, table *client.Table) error {
	var all sync.WaitGroup
	errs := make([]error, fillers)
	for f := range fillers {
		all.Go(func() {
			for at := f * fillRows; at < s.Rollouts && errs[f] == nil; at += fillers * fillRows {
				_, errs[f] = table.Insert(ctx, s.batch(at, min(fillRows, s.Rollouts-at)))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// batch makes a group of random rollouts.
func (s *RecoverySettings) batch(at, count int) rollout.Group {
	random := rollout.Stream(1, "recovery", uint64(at))
	var g rollout.Group
	for range count {
		r := &rollout.Rollout{
			PromptID: fmt.Sprint("prompt-", at), Temperature: 1, TopP: 1, Reward: random.Float32(),
			Tokens: make([]int32, s.Tokens),
			Mask:   make([]uint8, s.Tokens), Logprobs: make([]float32, s.Tokens), Versions: make([]rollout.Version,
				s.Tokens),
		}
		for i := range s.Tokens {
			r.Tokens[i], r.Mask[i], r.Logprobs[i] = random.Int32N(vocab), 1, -random.Float32()
		}
		g.Rollouts = append(g.Rollouts, r)
	}
	return g
}

// recovered is what the service last logged about a recovery.
func recovered(log string) string {
	const mark = "found=\""
	at := strings.LastIndex(log, mark)
	if at < 0 {
		return "the service did not log what it recovered"
	}
	text, _, _ := strings.Cut(log[at+len(mark):], "\"")
	return text
}
