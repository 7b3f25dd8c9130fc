package wire

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
)

// Draws returns the draws of a record batch of a [SampleSchema], in order; fields whose columns are not there are zero. Rollout.Advantage is
// nil, as the batch does not tell who computed the draw's.
//
// Per-token slices and images share the record batch's memory, which must stay: with memory of the garbage collector nothing
// is to be done, with pooled memory the record batch is to be released after the last use of the draws. Nobody may write into
// them. As Groups does, Draws trusts nothing that it has not checked.
func Draws(rec arrow.RecordBatch, extra []arrow.Field) ([]rollout.Draw, error) {
	d, err := NewDrawer(extra)
	if err != nil {
		return nil, err
	}
	return d.Draws(rec)
}

// Drawer is [Draws] for one batch after another with the same columns of the user's own. Any number of goroutines may use it.
type Drawer struct{ fields, extra []arrow.Field }

// NewDrawer returns a Drawer for batches that may have these columns beside those of every batch.
func NewDrawer(extra []arrow.Field) (*Drawer, error) {
	schema, err := SampleSchema(nil, extra...)
	if err != nil {
		return nil, err
	}
	return &Drawer{schema.Fields(), extra}, nil
}

// Draws is [Draws].
func (d *Drawer) Draws(rec arrow.RecordBatch) ([]rollout.Draw, error) {
	t, err := openTable(rec, d.fields, d.extra)
	if err != nil {
		return nil, err
	}
	n := int(rec.NumRows())
	draws, rollouts := make([]rollout.Draw, n), make([]rollout.Rollout, n)
	t.shareLists(rollouts)
	for row := range n {
		t.draw(&draws[row], row)
		t.complete(&rollouts[row], row)
		draws[row].Rollout = &rollouts[row]
	}
	return draws, nil
}

// shareLists gives rollouts their per-token slices.
func (t *table) shareLists(rollouts []rollout.Rollout) {
	share(&t.tokens, rollouts, func(r *rollout.Rollout, s []int32) { r.Tokens = s })
	share(&t.mask, rollouts, func(r *rollout.Rollout, s []uint8) { r.Mask = s })
	share(&t.logprobs, rollouts, func(r *rollout.Rollout, s []float32) { r.Logprobs = s })
	share(&t.versions, rollouts, func(r *rollout.Rollout, s []rollout.Version) { r.Versions = s })
	share(&t.advantages, rollouts, func(r *rollout.Rollout, s []float32) { r.Advantages = s })
	share(&t.values, rollouts, func(r *rollout.Rollout, s []float32) { r.Values = s })
	share(&t.refLogprobs, rollouts, func(r *rollout.Rollout, s []float32) { r.RefLogprobs = s })
}

func share[T any](c *column, rollouts []rollout.Rollout, set func(*rollout.Rollout, []T)) {
	if c.absent || c.n == 0 {
		return
	}
	all := words[T](&c.parts[0])
	for i := range rollouts {
		if start, end := c.list(i); start < end {
			set(&rollouts[i], all[start:end:end])
		}
	}
}

// scalar returns an entry, zero where it is null.
func scalar[T any](c *column, row int) T {
	var zero T
	if c.null(row) {
		return zero
	}
	return entry[T](c, row)
}

func (t *table) draw(d *rollout.Draw, row int) {
	d.ID = scalar[rollout.ID](&t.id, row)
	d.Group = scalar[uint64](&t.group, row)
	d.Advantage = scalar[float32](&t.advantage, row)
	d.Probability = scalar[float64](&t.probability, row)
	d.Weight = scalar[float32](&t.weight, row)
	d.Fresh = !t.fresh.null(row) && t.fresh.bools.get(row)
	d.Staleness, d.Uses = scalar[int32](&t.staleness, row), scalar[int32](&t.uses, row)
	d.GroupMean, d.GroupStd = scalar[float32](&t.mean, row), scalar[float32](&t.std, row)
}

// complete gives a rollout what is not per token.
func (t *table) complete(r *rollout.Rollout, row int) {
	r.PromptID = t.prompt(row)
	r.Temperature, r.TopP, r.Reward = scalar[float32](&t.temperature, row), scalar[float32](&t.topP, row), scalar[float32](&t.reward, row)
	r.Truncated = !t.truncated.null(row) && t.truncated.bools.get(row)
	r.Turns = t.turnsOf(row)
	if begin, end := t.images.list(row); begin < end {
		r.Images = make([][]byte, end-begin)
		for i := range r.Images {
			r.Images[i] = t.images.parts[0].bytes(begin + i)
		}
	}
	if !t.text.null(row) {
		r.Text = string(t.text.bytes(row))
	}
	r.Meta = t.metaOf(row)
	r.Extra = t.extraOf(row)
}
