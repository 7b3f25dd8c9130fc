package wire

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// maxRows is how many rows one record batch may have.
const maxRows = 1 << 20

// Order says where the rows of an insertion went: Order[row] is the position of the row's rollout among those of all groups,
// taken one after another.
type Order []int

// Row returns the row whose rollout stands at a position, -1 if there is none: an error of a table counts positions.
func (o Order) Row(position int) int { return slices.Index(o, position) }

// Groups returns the rollouts of a record batch in groups, those of rows that share a number in column group, which need not be
// neighbours; a row whose group is null, or all where there is no such column, is alone. Groups stand in the order of their first rows,
// rollouts in the order of theirs.
//
// Columns may stand in any order and be of any type that the schema's can be made of without loss: integers of any width that
// fit, doubles for floats (rounded), bools for 0 and 1, large, fixed-size and view lists, dictionaries of text, structs or lists
// of pairs for maps. Columns tokens, mask, logprobs, reward and versions or version (one number for all tokens of the policy) must be
// there; prompt_id is "" by default, temperature and top_p 1, truncated false, and the others absent. A column that is unknown is an
// error that names it, unless it is one of extra, the table's own.
//
// The rollouts share no memory with the record batch, and no large memory with one another. Groups checks form and ranges,
// whatever the sender wrote, and no more: rollout.Validate has to follow. An error wraps rollout.ErrInvalid; one of a row is a
// *rollout.FieldError.
func Groups(rec arrow.RecordBatch, extra []arrow.Field) ([]rollout.Group, Order, error) {
	in, err := openInsertion(rec, extra)
	if err != nil {
		return nil, nil, err
	}
	n := int(rec.NumRows())
	all, err := in.allPerToken(n)
	if err != nil {
		return nil, nil, err
	}
	places := make([]place, n)
	var groups []rollout.Group
	at := map[uint64]int{}
	for row, r := range all {
		in.rest(r, row)
		g, known := len(groups), false
		if !in.group.null(row) {
			number := entry[uint64](&in.group, row)
			if g, known = at[number]; !known {
				g = len(groups)
				at[number] = g
			}
		}
		if !known {
			groups = append(groups, rollout.Group{})
		}
		places[row] = place{g, len(groups[g].Rollouts)}
		groups[g].Rollouts = append(groups[g].Rollouts, r)
	}
	return groups, order(places, groups), nil
}

// place is a rollout's group and its number in it.
type place struct{ group, member int }

func order(places []place, groups []rollout.Group) Order {
	first := make([]int, len(groups))
	sum := 0
	for i, g := range groups {
		first[i] = sum
		sum += len(g.Rollouts)
	}
	o := make(Order, len(places))
	for row, p := range places {
		o[row] = first[p.group] + p.member
	}
	return o
}

// table is the columns of a record batch, opened; those that are not there are absent.
type table struct {
	promptID, tokens, mask, logprobs, versions, version        column
	temperature, topP, reward, truncated, turns                column
	advantage, advantages, values, refLogprobs                 column
	images, text, meta, group                                  column
	id, probability, weight, staleness, uses, mean, std, fresh column

	extra       []column
	extraFields []arrow.Field

	lastPrompt string // of the row before, which rows of one group share
	scratch    []byte
}

// named returns the column of a name, nil if there is none.
func (t *table) named(name string) *column {
	switch name {
	case "prompt_id":
		return &t.promptID
	case "tokens":
		return &t.tokens
	case "mask":
		return &t.mask
	case "logprobs":
		return &t.logprobs
	case "versions":
		return &t.versions
	case "version":
		return &t.version
	case "temperature":
		return &t.temperature
	case "top_p":
		return &t.topP
	case "reward":
		return &t.reward
	case "truncated":
		return &t.truncated
	case "turns":
		return &t.turns
	case "advantage":
		return &t.advantage
	case "advantages":
		return &t.advantages
	case "values":
		return &t.values
	case "ref_logprobs":
		return &t.refLogprobs
	case "images":
		return &t.images
	case "text":
		return &t.text
	case "meta":
		return &t.meta
	case "group":
		return &t.group
	}
	return t.namedOfDraws(name)
}

func (t *table) namedOfDraws(name string) *column {
	switch name {
	case "id":
		return &t.id
	case "probability":
		return &t.probability
	case "weight":
		return &t.weight
	case "staleness":
		return &t.staleness
	case "uses":
		return &t.uses
	case "group_mean":
		return &t.mean
	case "group_std":
		return &t.std
	case "fresh":
		return &t.fresh
	}
	return nil
}

// openInsertion opens the columns of a record batch to insert.
func openInsertion(rec arrow.RecordBatch, extra []arrow.Field) (*table, error) {
	fields := append(InsertSchema(extra...).Fields(), arrow.Field{Name: "version", Type: arrow.PrimitiveTypes.Int32})
	for i := range fields {
		switch fields[i].Name {
		case "tokens", "mask", "logprobs", "reward":
		default:
			fields[i].Nullable = true
		}
		if fields[i].Name == "turns" {
			fields[i].Type = looseTurns()
		}
	}
	t, err := openTable(rec, fields, extra)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if !f.Nullable && len(rec.Schema().FieldIndices(f.Name)) == 0 {
			return nil, Errorf(Invalid, "column %s is missing: give %s", f.Name, plainType(f.Type))
		}
	}
	if t.versions.absent && t.version.absent && rec.NumRows() > 0 {
		return nil, Errorf(Invalid, "column versions is missing: give list<int32>, or one int32 for all tokens of the policy as column version")
	}
	return t, nil
}

// looseTurns is the type of turns to insert, whose reward and done may be left out.
func looseTurns() arrow.DataType {
	fields := turnsType().(*arrow.ListType).Elem().(*arrow.StructType).Fields()
	loose := slices.Clone(fields)
	loose[2].Nullable, loose[3].Nullable = true, true
	return listOf(arrow.StructOf(loose...))
}

// openTable opens all columns of a record batch; each must be one of the fields.
func openTable(rec arrow.RecordBatch, fields, extra []arrow.Field) (*table, error) {
	if rec.NumRows() > maxRows {
		return nil, Errorf(Invalid, "a record batch of %d rows: insert at most %d at a time", rec.NumRows(), maxRows)
	}
	n := int(rec.NumRows())
	t := &table{extra: make([]column, len(extra)), extraFields: extra}
	for _, f := range fields {
		if c := t.named(f.Name); c != nil {
			*c = column{typ: f.Type, n: n, absent: true}
		}
	}
	for i, f := range extra {
		t.extra[i] = column{typ: f.Type, n: n, absent: true}
	}
	for i, found := range rec.Schema().Fields() {
		at := slices.IndexFunc(fields, func(f arrow.Field) bool { return f.Name == found.Name })
		switch {
		case at < 0:
			return nil, unknownColumn(found.Name, fields)
		case len(rec.Schema().FieldIndices(found.Name)) > 1:
			return nil, Errorf(Invalid, "column %s is there twice: give it once", found.Name)
		case rec.Column(i).Len() != n:
			return nil, Errorf(Invalid, "column %s has %d entries, the record batch %d rows", found.Name, rec.Column(i).Len(), n)
		}
		c, f := open(rec.Column(i).Data(), fields[at].Type, []span{{0, n}}, !fields[at].Nullable)
		if f != nil {
			return nil, f.of(found.Name)
		}
		if own := slices.IndexFunc(extra, func(f arrow.Field) bool { return f.Name == found.Name }); own >= 0 {
			t.extra[own] = c
		} else {
			*t.named(found.Name) = c
		}
	}
	return t, nil
}

func unknownColumn(name string, fields []arrow.Field) error {
	before, after := drawFields()
	switch {
	case slices.ContainsFunc(slices.Concat(before, after), func(f arrow.Field) bool { return f.Name == name }):
		return Errorf(Invalid, "column %s is what sampling adds: leave it out", name)
	case strings.HasPrefix(name, extraPrefix):
		return Errorf(Invalid, "column %s is not one of the table's: declare it in the table's columns, or leave it out%s", clip(name), suggestion(name, fields))
	}
	return Errorf(Invalid, "column %s is unknown: leave it out, or name it %s… and declare it in the table's columns%s", clip(name), extraPrefix, suggestion(name, fields))
}
