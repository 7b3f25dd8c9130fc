package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// ranked is what a table with priorities holds in the model: its version, and the priority of one rollout. Histories
// are checked for the version and for each rollout by itself, which keeps the search small.
type ranked struct {
	version   int
	advancing []int // larger versions that the table may have or not
	priority  int   // 0: that at which the rollout entered
	before    []int // its priorities since an insertion was answered, to which a new owner may return
}

func (r ranked) equal(other state) bool {
	s := other.(ranked)
	return r.version == s.version && slices.Equal(r.advancing, s.advancing) && r.priority == s.priority &&
		slices.Equal(r.before, s.before)
}

// step does a call, before which a new owner may have undone the latest updates.
func (r ranked) step(in asked, out answered) (after []state) {
	for after = r.do(in, out); len(r.before) > 0; {
		last := len(r.before) - 1
		r.priority, r.before = r.before[last], r.before[:last:last]
		after = append(after, r.do(in, out)...)
	}
	return after
}

func (r ranked) do(in asked, out answered) (after []state) {
	if out.unclear != nil {
		after = append(after, r) // it was not carried out
	}
	if out.refused != nil {
		return nil // nothing that a client asks for may be refused
	}
	switch in.kind {
	case insertion:
		if out.unclear == nil {
			r.before = nil
		}
	case update:
		r.before, r.priority = append(slices.Clip(r.before), r.priority), in.value
	case priorityOf:
		if out.value != r.priority {
			return nil
		}
	case advance:
		if out.unclear != nil {
			if in.value > r.version {
				r.advancing = append(slices.Clip(r.advancing), in.value)
			}
			break
		}
		r.version = max(r.version, in.value)
		r.advancing = slices.DeleteFunc(slices.Clone(r.advancing), func(v int) bool { return v <= r.version })
	case versionOf:
		if out.value != r.version && !slices.Contains(r.advancing, out.value) {
			return nil
		}
	}
	return append(after, r)
}

// parts returns the calls that concern the version, and for each rollout those that concern its priority.
func (ranked) parts(all []porcupine.Operation) (list [][]porcupine.Operation) {
	var versions, insertions []porcupine.Operation
	of := make(map[rollout.ID][]porcupine.Operation)
	for _, each := range all {
		switch in := each.Input.(asked); in.kind {
		case insertion:
			insertions = append(insertions, each)
		case advance, versionOf:
			versions = append(versions, each)
		default:
			of[in.id] = append(of[in.id], each)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		list = append(list, slices.Concat(of[id], insertions))
	}
	return append(list, versions)
}

// ofRanked returns a random call of a client of a table with priorities. Only the first client advances the version: a
// second one would rewind the table to its own.
func (h *chronicle) ofRanked(number int, random *rand.Rand) asked {
	h.next++
	switch k := random.IntN(20); {
	case len(h.ids) == 0 || k < 3:
		return asked{kind: insertion, tag: fmt.Sprint("p", h.next), size: 1 + random.IntN(2)}
	case k < 9:
		return asked{kind: update, id: h.any(random), value: h.next}
	case k < 16:
		return asked{kind: priorityOf, id: h.any(random)}
	case number == 0:
		return asked{kind: advance, value: h.next}
	}
	return asked{kind: versionOf}
}

// any returns the id of one of the latest rollouts, so that a priority is asked for soon after it was given.
func (h *chronicle) any(random *rand.Rand) rollout.ID {
	return h.ids[len(h.ids)-1-random.IntN(min(4, len(h.ids)))]
}

// The checker finds what a table with priorities must not do.
func TestDefectsAreFoundInHistoriesOfPriorities(t *testing.T) {
	insert := porcupine.Operation{Input: asked{kind: insertion, tag: "a", size: 1}, Output: answered{ids: []rollout.ID{1}}}
	set := func(value int, out answered) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: update, id: 1, value: value}, Output: out}
	}
	get := func(value int) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: priorityOf, id: 1}, Output: answered{value: value}}
	}
	forward := func(value int, out answered) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: advance, value: value}, Output: out}
	}
	at := func(value int) porcupine.Operation {
		return porcupine.Operation{Input: asked{kind: versionOf}, Output: answered{value: value}}
	}
	unclear, gone := answered{unclear: wire.ErrInterrupted}, answered{refused: wire.ErrNotFound}
	type calls = []porcupine.Operation
	for name, each := range map[string]struct {
		want  porcupine.CheckResult
		calls calls
	}{
		"given":                     {porcupine.Ok, calls{insert, get(0), set(2, answered{}), get(2)}},
		"another's":                 {porcupine.Illegal, calls{insert, set(2, answered{}), get(3)}},
		"undone by a new owner":     {porcupine.Ok, calls{set(2, answered{}), insert, set(3, answered{}), get(3), get(2)}},
		"back after it was undone":  {porcupine.Illegal, calls{set(2, answered{}), insert, set(3, answered{}), get(2), get(3)}},
		"undone after an insertion": {porcupine.Illegal, calls{set(2, answered{}), insert, get(2), get(0)}},
		"lost": {porcupine.Illegal,
			calls{insert, porcupine.Operation{Input: asked{kind: priorityOf, id: 1}, Output: gone}}},
		"an update refused":             {porcupine.Illegal, calls{insert, set(2, gone)}},
		"unclear, and given":            {porcupine.Ok, calls{insert, set(2, unclear), get(2)}},
		"a version":                     {porcupine.Ok, calls{at(0), forward(2, answered{}), at(2)}},
		"a version undone":              {porcupine.Illegal, calls{forward(2, answered{}), at(0)}},
		"an unclear version":            {porcupine.Ok, calls{forward(2, answered{}), forward(3, unclear), at(3), at(2)}},
		"a version that nobody set":     {porcupine.Illegal, calls{forward(2, answered{}), forward(4, unclear), at(3)}},
		"a version undone after others": {porcupine.Illegal, calls{forward(3, unclear), forward(4, answered{}), at(3)}},
	} {
		for i := range each.calls {
			each.calls[i].Call, each.calls[i].Return = int64(2*i), int64(2*i+1)
			if each.calls[i].Output.(answered).unclear != nil {
				each.calls[i].Return = math.MaxInt64
			}
		}
		if got := (&chronicle{empty: ranked{}, calls: each.calls}).check(); got != each.want {
			t.Errorf("%s: %s, want %s", name, got, each.want)
		}
	}
}
