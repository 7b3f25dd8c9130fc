package wire

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// maxRows bounds the rows of one record batch.
const maxRows = 1 << 20

// Order maps the rows of an insertion to its rollouts: Order[row] is the position of the row's rollout when all groups
// are taken one after another.
type Order []int

// Row returns the row of the rollout at a position, -1 if there is none. A table's errors name positions.
func (o Order) Row(position int) int { return slices.Index(o, position) }

// Groups decodes an insertion: a record batch as rollouts in groups. Rows with one number in column group form a group
// and need not be neighbours; a row whose group is null, or every row if there is no such column, is a group by itself.
// Groups are ordered by their first rows, and rollouts within a group by theirs.
//
// Columns may have any order, and any type that converts to the schema's without loss: integers of any width that fit,
// doubles for floats (rounded), bools for 0 and 1, large, fixed-size and view lists, dictionaries of text, structs or
// lists of pairs for maps. Columns tokens, mask, logprobs, reward and versions, or version (one number for all tokens
// of the policy), are required; prompt_id is "" by default, temperature and top_p 1, truncated false, and the others
// absent. extra are the table's user-defined columns. Any other column is an error.
//
// The rollouts share no memory with the record batch, and nothing but Mask and Versions with one another
// ([rollout.SharedMask]). Groups checks form and ranges,
// whatever the sender wrote; the caller still has to call rollout.Validate. Errors wrap rollout.ErrInvalid; one of a
// row is a *rollout.FieldError.
func Groups(rec arrow.RecordBatch, extra []arrow.Field) ([]rollout.Group, Order, error) {
	in, err := openInsertion(rec, extra)
	if err != nil {
		return nil, nil, err
	}
	rollouts, err := in.decodeRollouts(int(rec.NumRows()))
	if err != nil {
		return nil, nil, err
	}
	type place struct{ group, member int }
	places := make([]place, len(rollouts))
	var groups []rollout.Group
	byNumber := map[uint64]int{}
	for row, r := range rollouts {
		g, known := len(groups), false
		if !in.group.null(row) {
			number := entry[uint64](&in.group, row)
			if g, known = byNumber[number]; !known {
				g = len(groups)
				byNumber[number] = g
			}
		}
		if !known {
			groups = append(groups, rollout.Group{})
		}
		places[row] = place{g, len(groups[g].Rollouts)}
		groups[g].Rollouts = append(groups[g].Rollouts, r)
	}
	first := make([]int, len(groups)) // position of each group's first rollout
	for i := 1; i < len(groups); i++ {
		first[i] = first[i-1] + len(groups[i-1].Rollouts)
	}
	order := make(Order, len(places))
	for row, p := range places {
		order[row] = first[p.group] + p.member
	}
	return groups, order, nil
}

// Draws decodes a sampled batch, a record batch of a [SampleSchema] whose user-defined columns are among extra. Fields
// whose columns are missing are zero. Rollout.Advantage is nil: the batch does not tell who computed the draw's
// advantage.
//
// Per-token slices and images share the batch's memory and must not be written to. If it is pooled memory, release the
// batch after the last use of the draws. Like Groups, Draws trusts nothing that it has not checked.
func Draws(rec arrow.RecordBatch, extra []arrow.Field) ([]rollout.Draw, error) {
	b, err := openBatch(rec, sampleFields(extra), extra)
	if err != nil {
		return nil, err
	}
	n := int(rec.NumRows())
	draws, rollouts := make([]rollout.Draw, n), make([]rollout.Rollout, n)
	share(&b.tokens, rollouts, func(r *rollout.Rollout, s []int32) { r.Tokens = s })
	share(&b.mask, rollouts, func(r *rollout.Rollout, s []uint8) { r.Mask = s })
	share(&b.logprobs, rollouts, func(r *rollout.Rollout, s []float32) { r.Logprobs = s })
	share(&b.versions, rollouts, func(r *rollout.Rollout, s []rollout.Version) { r.Versions = s })
	share(&b.advantages, rollouts, func(r *rollout.Rollout, s []float32) { r.Advantages = s })
	share(&b.values, rollouts, func(r *rollout.Rollout, s []float32) { r.Values = s })
	share(&b.refLogprobs, rollouts, func(r *rollout.Rollout, s []float32) { r.RefLogprobs = s })
	share(&b.routedExperts, rollouts, func(r *rollout.Rollout, s []uint16) { r.RoutedExperts = s })
	shareIDLists(&b.samplingMask, rollouts)
	for row := range n {
		r := &rollouts[row]
		b.decodeRow(r, row)
		r.Temperature, r.TopP = scalar[float32](&b.temperature, row, 0), scalar[float32](&b.topP, row, 0)
		draws[row] = rollout.Draw{
			ID: scalar[rollout.ID](&b.id, row, 0), Group: scalar[uint64](&b.group, row, 0), Rollout: r,
			Advantage: scalar[float32](&b.advantage, row, 0), Probability: scalar[float64](&b.probability, row, 0),
			Weight: scalar[float32](&b.weight, row, 0), Fresh: b.fresh.flag(row),
			Redelivered: b.redelivered.flag(row),
			Staleness:   scalar[int32](&b.staleness, row, 0), Uses: scalar[int32](&b.uses, row, 0),
			GroupMean: scalar[float32](&b.groupMean, row, 0), GroupStd: scalar[float32](&b.groupStd, row, 0),
		}
	}
	return draws, nil
}

// share sets a per-token slice of every rollout to its part of a column.
func share[T any](c *column, rollouts []rollout.Rollout, set func(*rollout.Rollout, []T)) {
	if c.absent || c.n == 0 {
		return
	}
	all := typed[T](c.parts[0].values)
	for i := range rollouts {
		if start, end := c.list(i); start < end {
			set(&rollouts[i], all[start:end:end])
		}
	}
}

// shareIDLists sets the sampling mask of every rollout to its part of a column. Ends, which count from the rollout's
// first id, are not shared, nor are ids that do not follow one another.
func shareIDLists(c *column, rollouts []rollout.Rollout) {
	if c.absent || c.n == 0 {
		return
	}
	lists := &c.parts[0]
	for i := range rollouts {
		start, end := c.list(i)
		if start == end {
			continue
		}
		m := &rollouts[i].SamplingMask
		if lists.shifted {
			ids := c.ids(i)
			free := uncleared(end - start + ids)
			*m = copyIDLists(&free, c, i, ids)
			continue
		}
		first, last := lists.starts[start], lists.ends[end-1]
		m.Ends = make([]int32, end-start)
		for k := range m.Ends {
			m.Ends[k] = lists.ends[start+k] - first
		}
		if first < last {
			m.IDs = typed[int32](lists.parts[0].fixed(int(first), int(last), 4))[: last-first : last-first]
		}
	}
}

// batchColumns is the opened columns of a record batch. Missing ones are absent.
type batchColumns struct {
	promptID, tokens, mask, logprobs, versions, version                  column
	temperature, topP, reward, truncated, turns                          column
	advantage, advantages, values, refLogprobs                           column
	samplingMask, routedExperts                                          column
	images, text, meta, group                                            column
	id, probability, weight, staleness, uses, groupMean, groupStd, fresh column
	redelivered                                                          column

	extra       []column
	extraFields []arrow.Field

	lastPrompt string // of the row before: rows of one group share it
	scratch    []byte
}

func (b *batchColumns) byName() map[string]*column {
	columns := map[string]*column{
		"prompt_id": &b.promptID, "tokens": &b.tokens, "mask": &b.mask, "logprobs": &b.logprobs,
		"versions": &b.versions,
		"version":  &b.version, "temperature": &b.temperature, "top_p": &b.topP, "reward": &b.reward,
		"truncated": &b.truncated,
		"turns":     &b.turns, "advantage": &b.advantage, "advantages": &b.advantages, "values": &b.values,
		"ref_logprobs": &b.refLogprobs, "sampling_mask": &b.samplingMask, "routed_experts": &b.routedExperts,
		"images": &b.images, "text": &b.text, "meta": &b.meta, "group": &b.group,
		"id": &b.id, "probability": &b.probability, "weight": &b.weight, "staleness": &b.staleness, "uses": &b.uses,
		"group_mean": &b.groupMean, "group_std": &b.groupStd, "fresh": &b.fresh,
		"redelivered": &b.redelivered,
	}
	for i, f := range b.extraFields {
		columns[f.Name] = &b.extra[i]
	}
	return columns
}

// openInsertion opens the columns of an insertion.
func openInsertion(rec arrow.RecordBatch, extra []arrow.Field) (*batchColumns, error) {
	fields := append(insertFields(extra), arrow.Field{Name: "version", Type: arrow.PrimitiveTypes.Int32})
	for i := range fields {
		f := &fields[i]
		f.Nullable = !slices.Contains([]string{"tokens", "mask", "logprobs", "reward"}, f.Name)
		if f.Name == "turns" { // reward and done may be left out
			turn := turnsType().(*arrow.ListType).Elem().(*arrow.StructType).Fields()
			turn[2].Nullable, turn[3].Nullable = true, true
			f.Type = listOf(arrow.StructOf(turn...))
		}
		if f.Name == "sampling_mask" { // a null list is an empty one
			f.Type = arrow.ListOf(listOf(arrow.PrimitiveTypes.Int32))
		}
	}
	b, err := openBatch(rec, fields, extra)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if !f.Nullable && len(rec.Schema().FieldIndices(f.Name)) == 0 {
			return nil, Errorf(Invalid, "column %s is missing: give %s", f.Name, plainType(f.Type))
		}
	}
	if b.versions.absent && b.version.absent && rec.NumRows() > 0 {
		return nil, Errorf(Invalid, "column versions is missing: give list<int32>, or one int32 for all tokens of "+
			"the policy as column version")
	}
	return b, nil
}

// openBatch opens the columns of a record batch, each of which must be one of the fields.
func openBatch(rec arrow.RecordBatch, fields, extra []arrow.Field) (*batchColumns, error) {
	if rec.NumRows() > maxRows {
		return nil, Errorf(Invalid, "a record batch of %d rows: insert at most %d at a time", rec.NumRows(), maxRows)
	}
	n := int(rec.NumRows())
	b := &batchColumns{extra: make([]column, len(extra)), extraFields: extra}
	columns := b.byName()
	for _, c := range columns {
		*c = column{n: n, absent: true}
	}
	for i, found := range rec.Schema().Fields() {
		at := slices.IndexFunc(fields, func(f arrow.Field) bool { return f.Name == found.Name })
		switch {
		case at < 0:
			return nil, unknownColumn(found.Name, fields)
		case len(rec.Schema().FieldIndices(found.Name)) > 1:
			return nil, Errorf(Invalid, "column %s is given twice: give it once", found.Name)
		case rec.Column(i).Len() != n:
			return nil, Errorf(Invalid, "column %s has %d entries, the record batch %d rows", found.Name,
				rec.Column(i).Len(), n)
		}
		c, f := openColumn(rec.Column(i).Data(), fields[at].Type, []span{{0, n}}, !fields[at].Nullable)
		if f != nil {
			return nil, f.err(found.Name)
		}
		*columns[found.Name] = c
	}
	return b, nil
}

func unknownColumn(name string, fields []arrow.Field) error {
	before, after := drawFields()
	switch {
	case slices.ContainsFunc(slices.Concat(before, after), func(f arrow.Field) bool { return f.Name == name }):
		return Errorf(Invalid, "column %s is output only, added by sampling: leave it out", name)
	case strings.HasPrefix(name, extraPrefix):
		return Errorf(Invalid, "column %s is not one of the table's: declare it in the table's columns, or leave "+
			"it out%s",
			clip(name), suggestion(name, fields))
	}
	return Errorf(Invalid, "column %s is unknown: leave it out, or name it %s… and declare it in the table's columns%s",
		clip(name), extraPrefix, suggestion(name, fields))
}

// tokenBytes is about what a token takes in the columns that are always there.
const tokenBytes = 13

// decodeRollouts copies all rows out. The error is that of the first bad row.
func (b *batchColumns) decodeRollouts(n int) ([]*rollout.Rollout, error) {
	all := make([]*rollout.Rollout, n)
	errs := make([]error, n)
	tokens := 0
	for row := range n {
		tokens += b.mask.length(row)
	}
	InParts(n, int64(tokens)*tokenBytes, func(from, to int) {
		for row := from; row < to && (row == from || errs[row-1] == nil); row++ {
			all[row] = new(rollout.Rollout)
			errs[row] = b.decodeTokens(all[row], row)
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for row, r := range all {
		b.decodeRow(r, row)
		r.Temperature, r.TopP = scalar[float32](&b.temperature, row, 1), scalar[float32](&b.topP, row, 1)
		if !b.advantage.null(row) {
			a := entry[float32](&b.advantage, row)
			r.Advantage = &a
		}
		for i := range r.Images {
			r.Images[i] = slices.Clone(r.Images[i])
		}
	}
	return all, nil
}

// oneVersion returns the version of a row of one prompt and one completion, if it has one.
func (b *batchColumns) oneVersion(row int, single bool, prompt, tokens int) (rollout.Version, bool) {
	if single {
		return rollout.Version(entry[int32](&b.version, row)), true
	}
	start, end := b.versions.list(row)
	if end-start != tokens {
		return 0, false
	}
	return rollout.OneVersion(typed[rollout.Version](b.versions.parts[0].fixed(start, end, 4)), prompt)
}

// decodeTokens copies the per-token columns of a row into one block of memory that belongs to the rollout. Mask and
// versions of a prompt and one completion are shared instead.
func (b *batchColumns) decodeTokens(r *rollout.Rollout, row int) error {
	single := !b.version.null(row) // one version for all tokens
	switch perToken := !b.versions.null(row); {
	case single && perToken:
		return &rollout.FieldError{Row: row, Field: "version", Value: "given beside versions",
			Remedy: "give one of the two"}
	case !single && !perToken:
		return &rollout.FieldError{
			Row: row, Field: "versions", Value: "null", Remedy: "give the version of each token, -1 where mask is 0, " +
				"or one for all as version",
		}
	}
	masks, versions := b.mask.length(row), b.versions.length(row)
	if single {
		versions = masks
	}
	prompt, mask := -1, []uint8(nil)
	if masks > 0 {
		start, end := b.mask.list(row)
		mask = b.mask.parts[0].fixed(start, end, 1)
		prompt = rollout.OneTurn(mask)
	}
	if prompt >= 0 { // most rollouts
		r.Mask = rollout.SharedMask(prompt, masks-prompt)
		if v, ok := b.oneVersion(row, single, prompt, masks); ok {
			r.Versions, versions = rollout.SharedVersions(prompt, masks-prompt, v), 0
		}
		masks = 0
	}
	experts, lists := b.routedExperts.length(row), b.samplingMask.length(row)
	if lists > 0 && lists != b.tokens.length(row) { // checked before memory is taken: lists may take no bytes
		return &rollout.FieldError{Row: row, Field: "length of sampling_mask", Value: strconv.Itoa(lists),
			Remedy: "give one entry per token, " + strconv.Itoa(b.tokens.length(row))}
	}
	ids := b.samplingMask.ids(row)
	words := b.tokens.length(row) + b.logprobs.length(row) + versions +
		b.advantages.length(row) + b.values.length(row) + b.refLogprobs.length(row) + lists + ids
	free := uncleared(words + (2*experts+masks+3)/4)
	r.Tokens = copyWords[int32](&free, &b.tokens, row)
	r.Logprobs = copyWords[float32](&free, &b.logprobs, row)
	if versions > 0 && single {
		r.Versions = takeWords[rollout.Version](&free, versions)
	} else if versions > 0 {
		r.Versions = copyWords[rollout.Version](&free, &b.versions, row)
	}
	r.Advantages = copyWords[float32](&free, &b.advantages, row)
	r.Values = copyWords[float32](&free, &b.values, row)
	r.RefLogprobs = copyWords[float32](&free, &b.refLogprobs, row)
	r.SamplingMask = copyIDLists(&free, &b.samplingMask, row, ids)
	if experts > 0 {
		start, end := b.routedExperts.list(row)
		r.RoutedExperts = typed[uint16](bytesOf(free))[:experts:experts]
		copy(bytesOf(r.RoutedExperts), b.routedExperts.parts[0].fixed(start, end, 2))
	}
	if masks > 0 {
		r.Mask = bytesOf(free)[2*experts:][:masks:masks]
		copy(r.Mask, mask)
	}
	if versions > 0 && single {
		version := rollout.Version(entry[int32](&b.version, row))
		for i, m := range r.Mask {
			r.Versions[i] = rollout.NoVersion
			if m != 0 {
				r.Versions[i] = version
			}
		}
	}
	return nil
}

// uncleared returns n words of any content, all of which the caller has to write. make would clear them first.
// strings.Builder is the one part of the standard library that gives memory uncleared.
func uncleared(n int) []int32 {
	if n == 0 {
		return nil
	}
	var b strings.Builder
	b.Grow(4 * n)
	b.WriteByte(0) // the address is specified from the first byte on
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.StringData(b.String()))), n)
}

// takeWords takes n four-byte items off free memory, nil for none.
func takeWords[T any](free *[]int32, n int) []T {
	if n == 0 {
		return nil
	}
	head := typed[T](bytesOf((*free)[:n]))
	*free = (*free)[n:]
	return head
}

// copyWords copies a list of four-byte items into free memory.
func copyWords[T any](free *[]int32, c *column, row int) []T {
	start, end := c.list(row)
	words := takeWords[T](free, end-start)
	if words != nil {
		copy(bytesOf(words), c.parts[0].fixed(start, end, 4))
	}
	return words
}

// ids returns the number of ids in the lists of a row.
func (c *column) ids(row int) (sum int) {
	start, end := c.list(row)
	for i := start; i < end; i++ {
		sum += c.parts[0].length(i)
	}
	return sum
}

// copyIDLists copies the lists of a row, of the given ids in all, into free memory. They need not follow one another.
func copyIDLists(free *[]int32, c *column, row, ids int) rollout.IDLists {
	start, end := c.list(row)
	l := rollout.IDLists{Ends: takeWords[int32](free, end-start), IDs: takeWords[int32](free, ids)}
	n := 0
	for i := range l.Ends {
		if from, to := c.parts[0].list(start + i); from < to {
			n += copy(bytesOf(l.IDs[n:]), c.parts[0].parts[0].fixed(from, to, 4)) / 4
		}
		l.Ends[i] = int32(n)
	}
	return l
}

// decodeRow sets what is not per token, but for temperature, top_p and advantage. Images share the batch's memory.
func (b *batchColumns) decodeRow(r *rollout.Rollout, row int) {
	if !b.promptID.null(row) {
		if id := b.promptID.bytes(row); string(id) != b.lastPrompt {
			b.lastPrompt = string(id)
		}
		r.PromptID = b.lastPrompt
	}
	r.Reward = scalar[float32](&b.reward, row, 0)
	r.Truncated = b.truncated.flag(row)
	if begin, end := b.turns.list(row); begin < end {
		turn := b.turns.parts[0].parts
		r.Turns = make([]rollout.Turn, end-begin)
		for i := range r.Turns {
			at := begin + i
			r.Turns[i] = rollout.Turn{
				Start: entry[int32](&turn[0], at), End: entry[int32](&turn[1], at),
				Reward: scalar[float32](&turn[2], at, 0), Done: turn[3].flag(at),
			}
		}
	}
	if begin, end := b.images.list(row); begin < end {
		r.Images = make([][]byte, end-begin)
		for i := range r.Images {
			r.Images[i] = b.images.parts[0].bytes(begin + i)
		}
	}
	if !b.text.null(row) {
		r.Text = string(b.text.bytes(row))
	}
	if begin, end := b.meta.list(row); begin < end {
		pair := b.meta.parts[0].parts
		r.Meta = make(map[string]string, end-begin)
		for i := begin; i < end; i++ {
			r.Meta[string(pair[0].bytes(i))] = string(pair[1].bytes(i))
		}
	}
	if len(b.extra) > 0 {
		b.scratch = appendExtra(b.scratch[:0], b.extra, b.extraFields, row)
		r.Extra = append([]byte(nil), b.scratch...)
	}
}
