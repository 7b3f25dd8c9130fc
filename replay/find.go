package replay

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/replay/formula"
	"github.com/reprise-rl/reprise/rollout"
)

// MostFound is the most rollouts that [Inspection.Find] returns at once.
const MostFound = 1000

// Query says which rollouts [Inspection.Find] looks for, in which order, and which of those it returns. The zero value
// finds all and returns none.
type Query struct {
	Where  string `json:"where,omitempty"`  // a condition, such as reward < 0.5 && age > 10
	Order  string `json:"order,omitempty"`  // a number, the greatest first, unknown ones last; none: the newest first
	Text   string `json:"text,omitempty"`   // in the text or the prompt's id, in upper or lower case
	Prompt string `json:"prompt,omitempty"` // the prompt's id
	Group  uint64 `json:"group,omitempty"`
	Except uint64 `json:"except,omitempty"` // a group that is left out
	Skip   int    `json:"skip,omitempty"`
	Limit  int    `json:"limit,omitempty"` // at most MostFound
}

// search is a query whose expressions are parsed.
type search struct {
	Query
	where, order *formula.Formula // nil: none
	word         []byte           // Text in lower case
	lower        []byte           // the text that was looked at last, in lower case
}

func newSearch(q Query) (s search, err error) {
	s = search{Query: q, word: []byte(strings.ToLower(q.Text))}
	if q.Skip < 0 {
		return s, fmt.Errorf("skip is %d: skip at least 0 rollouts: %w", q.Skip, rollout.ErrInvalid)
	}
	if q.Limit < 0 || q.Limit > MostFound {
		return s, fmt.Errorf("limit is %d: ask for 0 to %d rollouts, and for more by skip: %w", q.Limit, MostFound,
			rollout.ErrInvalid)
	}
	s.where, s.order, err = parseSelection(q.Where, q.Order)
	return s, err
}

// finds reports whether a rollout is looked for.
func (s *search) finds(row *row) bool {
	r := row.rollout
	return (s.Group == 0 || row.item.Group == s.Group) && (s.Except == 0 || row.item.Group != s.Except) &&
		(s.Prompt == "" || r.PromptID == s.Prompt) &&
		(s.where == nil || s.where.Holds(row)) &&
		(len(s.word) == 0 || s.isIn(r.Text) || s.isIn(r.PromptID))
}

// isIn reports whether a text has the word. Most texts are ASCII, and need no memory of their own.
func (s *search) isIn(text string) bool {
	if len(text) > cap(s.lower) {
		s.lower = make([]byte, len(text))
	}
	lower := s.lower[:len(text)]
	for i := range lower {
		c := text[i]
		if c >= utf8.RuneSelf {
			return strings.Contains(strings.ToLower(text), string(s.word))
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return bytes.Contains(lower, s.word)
}

// found is where a rollout is that a search found, and its order: NaN if it is not known.
type found struct {
	Place
	order float64
}

// SkippedBytes is the most memory that [Inspection.Find] holds for each rollout that is skipped.
const SkippedBytes = 64

// Find returns how many rollouts meet a query, and those on its page. It hardly disturbs training: it copies a few
// thousand slots at a time under their shard's lock and evaluates expressions outside, so a rollout that comes or
// leaves meanwhile may be counted or not. With sampler prioritized, the probabilities of those on the page take up to
// O(N) under the lock. It visits every rollout, and holds as much memory as the page and what is before it take. Errors
// wrap [rollout.ErrInvalid], or are the context's.
func (v Inspection) Find(ctx context.Context, q Query) (matched int, page []Held, err error) {
	s, err := newSearch(q)
	if err != nil {
		return 0, nil, err
	}
	first := func(a, b found) int { return cmp.Or(cmp.Compare(b.order, a.order), cmp.Compare(b.id, a.id)) }
	var best []found // the first Skip+Limit so far, and as many later ones again
	most := min(s.Skip, v.table.present()) + s.Limit
	for _, shard := range v.table.shards {
		err := shard.scan(ctx, func(row *row, slot int32) {
			if !s.finds(row) {
				return
			}
			f := found{Place: Place{row.item.ID, int32(shard.number), slot}}
			if s.order != nil {
				f.order = s.order.Number(row)
			}
			if matched++; len(best) > 2*most {
				slices.SortFunc(best, first)
				best = best[:most]
			}
			best = append(best, f)
		})
		if err != nil {
			return 0, nil, err
		}
	}
	slices.SortFunc(best, first)
	best = best[min(s.Skip, len(best)):]
	return matched, v.inOrder(best[:min(s.Limit, len(best))]), nil
}

// Where returns the places of the rollouts that meet a condition, in order of ids, as [Inspection.Places] does of all.
// It disturbs training as little as Find.
func (v Inspection) Where(ctx context.Context, condition string) ([]Place, error) {
	s, err := newSearch(Query{Where: condition})
	if err != nil {
		return nil, err
	}
	var all []Place
	for _, shard := range v.table.shards {
		err := shard.scan(ctx, func(row *row, slot int32) {
			if s.finds(row) {
				all = append(all, Place{row.item.ID, int32(shard.number), slot})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	sortPlaces(all)
	return all, nil
}

// inOrder returns what the table holds at some places, in their order. It leaves out the rollouts that have left.
func (v Inspection) inOrder(list []found) []Held {
	places, rank := make([]Place, len(list)), make(map[rollout.ID]int, len(list))
	for i, f := range list {
		places[i], rank[f.id] = f.Place, i
	}
	held := v.At(places)
	slices.SortFunc(held, func(a, b Held) int { return rank[a.ID] - rank[b.ID] })
	for i := range held {
		held[i].Order = list[rank[held[i].ID]].order
	}
	return held
}

// Get returns what the table holds of a rollout, false if it is not there. It takes O(1), and with sampler prioritized
// at most O(N).
func (v Inspection) Get(id rollout.ID) (h Held, ok bool) {
	for _, s := range v.table.shards {
		s.do(func(s *shard) {
			s.expire()
			if slot := s.index.find(id); slot != none {
				h, ok = s.held(slot, s.chances()), true
			}
		})
		if ok {
			break
		}
	}
	return h, ok
}

// scanned is how many slots are copied under a lock: for some tens of microseconds.
const scanned = 4096

// scan visits the rollouts of a shard without its lock. A row is valid until visit returns. The ages that formulas read
// are those at the beginning, for all rollouts alike.
func (s *lockedShard) scan(ctx context.Context, visit func(row *row, slot int32)) error {
	var of *shard // what the lock guards; restoring puts another in its place
	var at *shard // of the version that rows are seen at
	items, rollouts := make([]item, scanned), make([]*rollout.Rollout, scanned)
	var seen row
	for start, n := 0, scanned; n == scanned; start += n {
		s.do(func(now *shard) {
			if of == nil {
				of, at = now, &shard{version: now.version}
			}
			if n = 0; of == now {
				n = copy(items, now.items[min(start, len(now.items)):])
				copy(rollouts, now.rollouts[min(start, len(now.items)):])
			}
		})
		for i := range n {
			if r := rollouts[i]; r != nil && !items[i].is(evicted) {
				seen = row{shard: at, item: &items[i], rollout: r}
				visit(&seen, int32(start+i))
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
