package rollout

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// rolloutFormat is the binary form that is written. Format 1 had no Extra; it is still read.
const rolloutFormat = 2

// AppendBinary appends the rollout's binary form: equal rollouts give equal bytes. An absent and an
// empty slice are the same; an absent Advantage is not 0, which encoding/gob by itself would make it.
func (r *Rollout) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, rolloutFormat)
	b = appendText(b, r.PromptID)
	b = appendWords(b, r.Tokens)
	b = binary.AppendUvarint(b, uint64(len(r.Mask)))
	b = append(b, r.Mask...)
	b = appendWords(b, r.Logprobs)
	b = appendWords(b, r.Versions)
	b = appendFloat(b, r.Temperature)
	b = appendFloat(b, r.TopP)
	b = appendFloat(b, r.Reward)
	b = appendBool(b, r.Truncated)
	b = binary.AppendUvarint(b, uint64(len(r.Turns)))
	for _, t := range r.Turns {
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Start))
		b = binary.LittleEndian.AppendUint32(b, uint32(t.End))
		b = appendFloat(b, t.Reward)
		b = appendBool(b, t.Done)
	}
	b = appendBool(b, r.Advantage != nil)
	if r.Advantage != nil {
		b = appendFloat(b, *r.Advantage)
	}
	b = appendWords(b, r.Advantages)
	b = appendWords(b, r.Values)
	b = appendWords(b, r.RefLogprobs)
	b = binary.AppendUvarint(b, uint64(len(r.Images)))
	for _, image := range r.Images {
		b = binary.AppendUvarint(b, uint64(len(image)))
		b = append(b, image...)
	}
	b = appendText(b, r.Text)
	b = binary.AppendUvarint(b, uint64(len(r.Meta)))
	for _, k := range slices.Sorted(maps.Keys(r.Meta)) {
		b = appendText(b, k)
		b = appendText(b, r.Meta[k])
	}
	b = binary.AppendUvarint(b, uint64(len(r.Extra)))
	return append(b, r.Extra...), nil
}

// MarshalBinary returns the rollout's binary form.
func (r *Rollout) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, r.Bytes()+32))
}

// UnmarshalBinary reads what MarshalBinary wrote, of this version or an earlier one. It checks the form, not the content: see
// [Rollout.Validate]. The per-token slices share one block of memory, which nothing else does; it is no part of b.
func (r *Rollout) UnmarshalBinary(b []byte) error {
	d := &decoder{b: b}
	format := d.format("rollout", 1, rolloutFormat)
	x, raw := Rollout{PromptID: d.string("prompt_id")}, perToken{}
	raw.tokens = d.words("tokens")
	raw.mask = d.take("mask", d.length("mask", 1))
	raw.logprobs, raw.versions = d.words("logprobs"), d.words("versions")
	x.Temperature, x.TopP, x.Reward = d.float32("temperature"), d.float32("top_p"), d.float32("reward")
	x.Truncated = d.bool("truncated")
	x.Turns = d.turns()
	if d.bool("advantage") {
		a := d.float32("advantage")
		x.Advantage = &a
	}
	raw.advantages, raw.values, raw.refLogprobs = d.words("advantages"), d.words("values"), d.words("ref_logprobs")
	for n := d.length("images", 1); n > 0 && d.err == nil; n-- {
		x.Images = append(x.Images, []byte(d.string("image")))
	}
	x.Text = d.string("text")
	x.Meta = d.meta()
	if format > 1 {
		x.Extra = slices.Clone(emptyNil(d.take("extra", d.length("extra", 1))))
	}
	if err := d.finish("rollout"); err != nil {
		return err
	}
	raw.copyTo(&x)
	*r = x
	return nil
}

// perToken is the per-token slices of a rollout as they stand in its binary form.
type perToken struct{ tokens, mask, logprobs, versions, advantages, values, refLogprobs []byte }

// copyTo gives the rollout copies. The mask comes last, as its length may be odd.
func (p *perToken) copyTo(r *Rollout) {
	k := newBlock(len(p.tokens) + len(p.mask) + len(p.logprobs) + len(p.versions) + len(p.advantages) + len(p.values) + len(p.refLogprobs))
	r.Tokens, r.Logprobs, r.Versions = takeWords[int32](&k, p.tokens), takeWords[float32](&k, p.logprobs), takeWords[Version](&k, p.versions)
	r.Advantages, r.Values = takeWords[float32](&k, p.advantages), takeWords[float32](&k, p.values)
	r.RefLogprobs = takeWords[float32](&k, p.refLogprobs)
	r.Mask = k.take(p.mask)
}

func (d *decoder) meta() map[string]string {
	n := d.length("meta", 2)
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for ; n > 0 && d.err == nil; n-- {
		k := d.string("meta key")
		m[k] = d.string("meta value")
	}
	return m
}

func (d *decoder) turns() []Turn {
	var turns []Turn
	for n := d.length("turns", turnBytes); n > 0 && d.err == nil; n-- {
		start, end := int32(d.uint32("turn start")), int32(d.uint32("turn end"))
		turns = append(turns, Turn{Start: start, End: end, Reward: d.float32("turn reward"), Done: d.bool("turn done")})
	}
	return turns
}

func emptyNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFloat(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

func appendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}
