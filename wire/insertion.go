package wire

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/reprise-rl/reprise/rollout"
)

// tokenBytes is about how many bytes a token takes in the columns that are always there.
const tokenBytes = 13

// allPerToken makes the rollouts of all rows with their per-token slices. The error is that of the first row that has one.
func (t *table) allPerToken(n int) ([]*rollout.Rollout, error) {
	all := make([]*rollout.Rollout, n)
	errs := make([]error, n)
	tokens := 0
	for row := range n {
		tokens += t.mask.length(row)
	}
	InParts(n, int64(tokens)*tokenBytes, func(from, to int) {
		for row := from; row < to && (row == from || errs[row-1] == nil); row++ {
			all[row] = new(rollout.Rollout)
			errs[row] = t.perToken(all[row], row)
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// rest copies out what of a row is not per token.
func (t *table) rest(r *rollout.Rollout, row int) {
	r.PromptID, r.Temperature, r.TopP, r.Reward = t.prompt(row), 1, 1, entry[float32](&t.reward, row)
	if !t.temperature.null(row) {
		r.Temperature = entry[float32](&t.temperature, row)
	}
	if !t.topP.null(row) {
		r.TopP = entry[float32](&t.topP, row)
	}
	r.Truncated = !t.truncated.null(row) && t.truncated.bools.get(row)
	if !t.advantage.null(row) {
		a := entry[float32](&t.advantage, row)
		r.Advantage = &a
	}
	r.Turns = t.turnsOf(row)
	r.Images = t.imagesOf(row)
	if !t.text.null(row) {
		r.Text = string(t.text.bytes(row))
	}
	r.Meta = t.metaOf(row)
	r.Extra = t.extraOf(row)
}

// prompt returns the prompt's id. Rows that follow one another with the same share it.
func (t *table) prompt(row int) string {
	if t.promptID.null(row) {
		return ""
	}
	if id := t.promptID.bytes(row); string(id) != t.lastPrompt {
		t.lastPrompt = string(id)
	}
	return t.lastPrompt
}

// perToken copies the per-token columns into one block of the rollout's own: it keeps nothing else in memory.
func (t *table) perToken(r *rollout.Rollout, row int) error {
	scalar := !t.version.null(row)
	if scalar == !t.versions.null(row) {
		if scalar {
			return &rollout.FieldError{Row: row, Field: "version", Value: "given beside versions", Remedy: "give one of the two"}
		}
		return &rollout.FieldError{Row: row, Field: "versions", Value: "null", Remedy: "give the version of each token, -1 where mask is 0, or one for all as version"}
	}
	versions := t.versions.length(row)
	if scalar {
		versions = t.mask.length(row)
	}
	masks := t.mask.length(row)
	words := t.tokens.length(row) + t.logprobs.length(row) + versions + t.advantages.length(row) + t.values.length(row) + t.refLogprobs.length(row)
	k := block{uncleared(words + (masks+3)/4)}
	r.Tokens = copyWords[int32](&k, &t.tokens, row)
	r.Logprobs = copyWords[float32](&k, &t.logprobs, row)
	r.Versions = copyWords[rollout.Version](&k, &t.versions, row)
	if scalar {
		r.Versions = takeWords[rollout.Version](&k, versions)
	}
	r.Advantages = copyWords[float32](&k, &t.advantages, row)
	r.Values = copyWords[float32](&k, &t.values, row)
	r.RefLogprobs = copyWords[float32](&k, &t.refLogprobs, row)
	if masks > 0 {
		r.Mask = bytesOf(k.free)[:masks:masks]
		start, end := t.mask.list(row)
		copy(r.Mask, t.mask.parts[0].fixed(start, end, 1))
	}
	if scalar {
		version := rollout.Version(entry[int32](&t.version, row))
		for i, m := range r.Mask {
			r.Versions[i] = rollout.NoVersion
			if m != 0 {
				r.Versions[i] = version
			}
		}
	}
	return nil
}

// block is memory that slices are taken of.
type block struct{ free []int32 }

// uncleared returns n words of any content, all of which are to be written. Make would clear them first, for nothing; of what
// gives memory as it is, the standard library shows only the one that builds strings.
func uncleared(n int) []int32 {
	if n == 0 {
		return nil
	}
	var b strings.Builder
	b.Grow(4 * n)
	b.WriteByte(0) // the address is specified from the first byte on
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.StringData(b.String()))), n)
}

// takeWords takes n words; none is nil.
func takeWords[T any](k *block, n int) []T {
	if n == 0 {
		return nil
	}
	head := typed[T](bytesOf(k.free[:n]))
	k.free = k.free[n:]
	return head
}

// copyWords copies a list of a column of four-byte items.
func copyWords[T any](k *block, c *column, row int) []T {
	start, end := c.list(row)
	words := takeWords[T](k, end-start)
	if words != nil {
		copy(bytesOf(words), c.parts[0].fixed(start, end, 4))
	}
	return words
}

func (t *table) turnsOf(row int) []rollout.Turn {
	begin, end := t.turns.list(row)
	if begin == end {
		return nil
	}
	fields := t.turns.parts[0].parts
	turns := make([]rollout.Turn, end-begin)
	for i := range turns {
		at := begin + i
		turns[i].Start, turns[i].End = entry[int32](&fields[0], at), entry[int32](&fields[1], at)
		if !fields[2].null(at) {
			turns[i].Reward = entry[float32](&fields[2], at)
		}
		turns[i].Done = !fields[3].null(at) && fields[3].bools.get(at)
	}
	return turns
}

func (t *table) imagesOf(row int) [][]byte {
	begin, end := t.images.list(row)
	if begin == end {
		return nil
	}
	images := make([][]byte, end-begin)
	for i := range images {
		images[i] = slices.Clone(t.images.parts[0].bytes(begin + i))
	}
	return images
}

func (t *table) metaOf(row int) map[string]string {
	begin, end := t.meta.list(row)
	if begin == end {
		return nil
	}
	pair := t.meta.parts[0].parts
	m := make(map[string]string, end-begin)
	for i := begin; i < end; i++ {
		m[string(pair[0].bytes(i))] = string(pair[1].bytes(i))
	}
	return m
}

func (t *table) extraOf(row int) []byte {
	if len(t.extra) == 0 {
		return nil
	}
	t.scratch = appendExtra(t.scratch[:0], t.extra, t.extraFields, row)
	return append([]byte(nil), t.scratch...)
}
