package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/replay/parted"
	"github.com/reprise-rl/reprise/rollout"
)

// Rollouts is [Table.Rollouts] over the parts that are up; [browse.Page].Down has the others. Each part sends the
// beginning of its own list, so q.Skip and q.Limit are at most [replay.MostFound] together. Without an order the parts
// take turns: nobody knows which of two parts' rollouts is the newer. Probabilities are those inside the part.
func (w *PartedTable) Rollouts(ctx context.Context, q replay.Query) (browse.Page, error) {
	if q.Skip > 0 && q.Limit > 0 && q.Skip > replay.MostFound-q.Limit {
		return browse.Page{}, w.failed("find rollouts", fmt.Errorf("skip is %d and limit %d: of a table in parts ask "+
			"for the first %d, with where for fewer or another order: %w", q.Skip, q.Limit, replay.MostFound,
			rollout.ErrInvalid))
	}
	parts, err := w.resolve(ctx)
	if err != nil {
		return browse.Page{}, err
	}
	if q.Group != 0 {
		home, _ := parted.Cut(q.Group)
		parts = slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.number != home })
	}
	pages := make([]*browse.Page, len(parts))
	err = w.each(ctx, parts, false, func(i int, t *Table) error {
		page, err := t.Rollouts(ctx, queryOf(q, parts[i].number))
		if err == nil {
			pages[i] = &page
		}
		return err
	})
	if err != nil {
		return browse.Page{}, err
	}
	joined := browse.Page{Rows: []browse.Row{}}
	for i, page := range pages {
		if page == nil {
			joined.Down = append(joined.Down, parts[i].number)
			continue
		}
		joined.Version, joined.Matched = max(joined.Version, page.Version), joined.Matched+page.Matched
		joined.Rows = append(joined.Rows, joinRows(parts[i].number, page.Rows)...)
	}
	slices.SortFunc(joined.Rows, compareRows)
	joined.Rows = joined.Rows[min(q.Skip, len(joined.Rows)):]
	joined.Rows = joined.Rows[:min(q.Limit, len(joined.Rows))]
	return joined, nil
}

// queryOf returns what to ask of a part, whose ids are its own.
func queryOf(q replay.Query, number int) replay.Query {
	_, q.Group = parted.Cut(q.Group)
	if home, group := parted.Cut(q.Except); home == number {
		q.Except = group
	} else {
		q.Except = 0
	}
	if q.Skip > 0 && q.Limit >= 0 {
		q.Skip, q.Limit = 0, q.Skip+q.Limit
	}
	return q
}

// joinRows gives rows of a part the table's ids, and returns them.
func joinRows(number int, rows []browse.Row) []browse.Row {
	for i := range rows {
		joinRow(number, &rows[i])
	}
	return rows
}

func joinRow(number int, r *browse.Row) {
	r.ID, r.Group = rollout.ID(parted.Join(number, uint64(r.ID))), parted.Join(number, r.Group)
}

// compareRows orders rows as each part does: by the query's order, the greatest first and unknown ones last, then the
// newest first.
func compareRows(a, b browse.Row) int {
	if a.Order != nil && b.Order != nil {
		if c := cmp.Compare(*b.Order, *a.Order); c != 0 {
			return c
		}
	} else if (a.Order == nil) != (b.Order == nil) {
		if a.Order == nil {
			return 1
		}
		return -1
	}
	partA, idA := parted.Cut(uint64(a.ID))
	partB, idB := parted.Cut(uint64(b.ID))
	return cmp.Or(cmp.Compare(idB, idA), cmp.Compare(partA, partB))
}

// Rollout is [Table.Rollout]. The other groups of its prompt are those of all parts that are up.
func (w *PartedTable) Rollout(ctx context.Context, id rollout.ID) (browse.Rollout, error) {
	parts, err := w.resolve(ctx)
	if err != nil {
		return browse.Rollout{}, err
	}
	number, own := parted.Cut(uint64(id))
	at := slices.IndexFunc(parts, func(p *part) bool { return p.number == number })
	if at < 0 {
		return browse.Rollout{}, w.failed("show rollout", fmt.Errorf("rollout %d: %w", id, browse.ErrGone))
	}
	var shown browse.Rollout
	err = w.each(ctx, parts[at:at+1], false, func(_ int, t *Table) (err error) {
		shown, err = t.Rollout(ctx, rollout.ID(own))
		return err
	})
	if err != nil {
		return browse.Rollout{}, err
	}
	joinRow(number, &shown.Row)
	joinRows(number, shown.Mates)
	if life := shown.Life; life != nil {
		life.ID, life.Group = shown.ID, shown.Group
		for i := range life.Events {
			if d := life.Events[i].Draw; d != nil {
				d.Batch = rollout.BatchID(parted.Join(number, uint64(d.Batch)))
			}
		}
	}
	if shown.PromptID != "" && !shown.Left {
		shown.Others, err = w.Rollouts(ctx, browse.OtherGroups(&shown))
	}
	return shown, err
}
