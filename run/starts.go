package run

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
)

// Starts shares warm starts among runs that begin alike: the first that asks has its start made, the others wait for it. A start is
// kept while runs are expected that have not ended. The zero value is ready; it is safe for concurrent use.
type Starts struct {
	mu   sync.Mutex
	kept map[string]*kept
}

// kept is the start of all runs that begin alike.
type kept struct {
	runs  int           // expected that have not ended
	busy  chan struct{} // holds a token while nobody makes the start
	start *Start        // nil: not made yet
}

// origin is all that [Begin] reads of a configuration. Runs with equal ones begin alike.
type origin struct {
	Seed      uint64
	Task      map[string]any
	Own       uintptr // which of the program's own tasks; 0: one of the catalog
	Policy    Policy
	Critic    bool
	Warmup    Warmup
	MaxTokens int
}

// startKey returns a text that configurations share if their runs begin alike.
func (c Config) startKey() (string, error) {
	resolved, err := c.resolved()
	if err != nil {
		return "", err
	}
	b := origin{
		Seed: c.Seed, Task: resolved.Task, Policy: c.Policy, Critic: c.needsCritic(), Warmup: c.Warmup, MaxTokens: c.Generate.MaxTokens,
	}
	if c.own != nil {
		b.Own = reflect.ValueOf(c.made).Pointer()
	}
	text, err := json.Marshal(b)
	if err != nil {
		return "", fmt.Errorf("task: %w", err)
	}
	return string(text), nil
}

// Expect says that a run of a valid configuration is to come, which will ask for its start or not, and ends with [Starts.Release].
func (s *Starts) Expect(c Config) error {
	key, err := c.startKey()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = make(map[string]*kept)
	}
	k := s.kept[key]
	if k == nil {
		k = &kept{busy: make(chan struct{}, 1)}
		k.busy <- struct{}{}
		s.kept[key] = k
	}
	k.runs++
	return nil
}

// Release ends what Expect began: when no run is left that begins so, the start is dropped.
func (s *Starts) Release(c Config) error {
	key, err := c.startKey()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[key]; k != nil {
		if k.runs--; k.runs <= 0 {
			delete(s.kept, key)
		}
	}
	return nil
}

// Begin is [Begin] for an expected run: it returns the start that runs like this one share. Whoever makes it reports its
// warm-up. An error is not kept: the next that asks tries again.
func (s *Starts) Begin(ctx context.Context, c Config, report func(step int, loss float64)) (*Start, error) {
	key, err := c.startKey()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	k := s.kept[key]
	s.mu.Unlock()
	if k == nil {
		return Begin(ctx, c, report)
	}
	select {
	case <-k.busy:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { k.busy <- struct{}{} }()
	if k.start == nil {
		if k.start, err = Begin(ctx, c, report); err != nil {
			k.start = nil
		}
	}
	return k.start, err
}
