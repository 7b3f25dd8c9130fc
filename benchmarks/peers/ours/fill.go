package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// batch is the number of rollouts of a cycle, and so of the values in a row.
const batch = 64

// settings are those of the sequence, which the peers in Python have too.
type settings struct {
	folder       string
	group        int // rollouts inserted together
	version      int // of the table when it is full
	epsilon      float64
	exponent     float64
	ageDecay     float64
	beta         float64
	betaVersions int
}

// fill makes a table of the folder's entries, each inserted at its own version.
func fill(ctx context.Context, s settings) (*trainer, error) {
	bases, err := read[float64](s.folder, "bases.f64")
	if err != nil {
		return nil, err
	}
	versions, err := read[rollout.Version](s.folder, "versions.i32")
	if err != nil {
		return nil, err
	}
	values, err := read[float64](s.folder, "values.f64")
	if err != nil {
		return nil, err
	}
	t := &trainer{bases: bases, ids: make([]rollout.ID, batch)}
	for i := 0; i < len(values); i += batch {
		t.values = append(t.values, values[i:i+batch])
	}
	if t.table, err = replay.New(s.options(len(bases))); err != nil {
		return nil, err
	}
	for i := 0; i < len(bases); i += s.group {
		if err := t.advanceTo(ctx, versions[i]); err != nil {
			return nil, err
		}
		if err := t.insert(ctx, bases[i:i+s.group]); err != nil {
			return nil, err
		}
	}
	return t, t.advanceTo(ctx, rollout.Version(s.version))
}

func (s settings) options(capacity int) replay.Options {
	return replay.Options{
		Capacity: capacity, Sampler: replay.Prioritized, Seed: 2,
		PriorityEpsilon: s.epsilon, PriorityExponent: s.exponent, AgeDecay: replay.Versions(s.ageDecay),
		ImportanceBeta: &s.beta, ImportanceAnneal: &s.betaVersions,
	}
}

func (t *trainer) advanceTo(ctx context.Context, v rollout.Version) error {
	if v <= t.version {
		return nil
	}
	t.version = v
	return t.table.Advance(ctx, v)
}

// insert adds a group made at the table's version. Each rollout has slices of its own, as rollouts do, so that the
// garbage collector's work is in the figures.
func (t *trainer) insert(ctx context.Context, bases []float64) error {
	var g rollout.Group
	for _, base := range bases {
		advantage := float32(base)
		x := &rollout.Rollout{PromptID: "prompt", Temperature: 1, TopP: 1, Advantage: &advantage}
		for i := range 12 {
			policy := i >= 4
			x.Tokens = append(x.Tokens, int32(i))
			if policy {
				x.Mask, x.Logprobs, x.Versions = append(x.Mask, 1), append(x.Logprobs, -1), append(x.Versions, t.version)
			} else {
				x.Mask, x.Logprobs, x.Versions = append(x.Mask, 0), append(x.Logprobs, 0), append(x.Versions, rollout.NoVersion)
			}
		}
		g.Rollouts = append(g.Rollouts, x)
	}
	next, err := t.table.Len(ctx)
	if err != nil {
		return err
	}
	next++
	ids, err := t.table.Insert(ctx, g)
	if err != nil {
		return err
	}
	if ids[0] != rollout.ID(next) {
		return fmt.Errorf("rollout %d of the sequence got id %d: ids are taken for positions", next, ids[0])
	}
	return nil
}

// read returns a file of little-endian numbers.
func read[T float64 | rollout.Version](folder, name string) ([]T, error) {
	path := filepath.Join(folder, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers := make([]T, len(raw)/binary.Size(T(0)))
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, numbers); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return numbers, nil
}
