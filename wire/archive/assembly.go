package archive

import (
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/reprise-rl/reprise/rollout"
)

// label is what a row says of its group.
type label struct {
	group uint64
	alone bool // it has none
}

// labelsOf reads the column `group`: a row each. Without the column, or a type for it, every row is alone.
func labelsOf(rec arrow.RecordBatch) ([]label, error) {
	labels := make([]label, rec.NumRows())
	at := rec.Schema().FieldIndices("group")
	if len(at) == 0 || rec.Column(at[0]).DataType().ID() == arrow.NULL {
		for i := range labels {
			labels[i].alone = true
		}
		return labels, nil
	}
	column := rec.Column(at[0])
	value, err := integers(column)
	if err != nil {
		return nil, err
	}
	for i := range labels {
		if column.IsNull(i) {
			labels[i].alone = true
			continue
		}
		labels[i].group = value(i)
	}
	return labels, nil
}

// integers returns how to read a column of integers. Values that tell groups apart before do so after.
func integers(column arrow.Array) (func(i int) uint64, error) {
	switch c := column.(type) {
	case *array.Uint64:
		return c.Value, nil
	case *array.Int64:
		return func(i int) uint64 { return uint64(c.Value(i)) }, nil
	case *array.Uint32:
		return func(i int) uint64 { return uint64(c.Value(i)) }, nil
	case *array.Int32:
		return func(i int) uint64 { return uint64(c.Value(i)) }, nil
	}
	return nil, fmt.Errorf("group: type %s: want uint64, or another type of integers of 32 or 64 bits", column.DataType())
}

// assembly puts groups together from rows in any order.
type assembly struct {
	missing map[uint64]int                // rows of a group that were not read yet
	begun   map[uint64][]*rollout.Rollout // groups with rows missing
	whole   []rollout.Group               // in the order in which their last rows came
}

// add takes the groups of one record batch, in the order in which their labels first appear.
func (a *assembly) add(groups []rollout.Group, labels []label) error {
	next := 0
	seen := make(map[uint64]bool)
	for _, l := range labels {
		if !l.alone && seen[l.group] {
			continue
		}
		if next == len(groups) {
			return errors.New("there are fewer groups than labels: the column `group` was read in two ways")
		}
		g := groups[next]
		next++
		if l.alone {
			a.whole = append(a.whole, g)
			continue
		}
		seen[l.group] = true
		a.extend(l.group, g.Rollouts)
	}
	return nil
}

// extend adds rows of a group, and moves it to the whole ones with its last.
func (a *assembly) extend(group uint64, rows []*rollout.Rollout) {
	a.missing[group] -= len(rows)
	all := append(a.begun[group], rows...)
	if a.missing[group] > 0 {
		a.begun[group] = all
		return
	}
	delete(a.begun, group)
	delete(a.missing, group)
	a.whole = append(a.whole, rollout.Group{Rollouts: all})
}

// next takes whole groups for an insertion: as many as fit, at least one. An insertion with room left comes only at the end.
func (a *assembly) next(o Options, end bool) Insertion {
	in := Insertion{Newest: rollout.NoVersion}
	for i, g := range a.whole {
		var bytes int64
		for _, r := range g.Rollouts {
			bytes += r.Bytes()
		}
		if i > 0 && (in.Rollouts+len(g.Rollouts) > o.Rollouts || in.Bytes+bytes > o.Bytes) {
			a.whole = a.whole[i:]
			return in
		}
		in.Groups = append(in.Groups, g)
		in.Rollouts += len(g.Rollouts)
		in.Bytes += bytes
		in.Newest = max(in.Newest, newest(g))
	}
	full := in.Rollouts >= o.Rollouts || in.Bytes >= o.Bytes
	if !end && !full {
		return Insertion{}
	}
	a.whole = nil
	return in
}

func newest(g rollout.Group) rollout.Version {
	v := rollout.Version(math.MinInt32)
	for _, r := range g.Rollouts {
		for _, t := range r.Versions {
			v = max(v, t)
		}
	}
	return v
}
