package rollout

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

const rolloutFormat = 1

// AppendBinary appends the rollout's binary form: equal rollouts give equal bytes. An absent and an
// empty slice are the same; an absent Advantage is not 0, which encoding/gob by itself would make it.
func (r *Rollout) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, rolloutFormat)
	b = appendText(b, r.PromptID)
	b = appendWords(b, r.Tokens, func(t int32) uint32 { return uint32(t) })
	b = binary.AppendUvarint(b, uint64(len(r.Mask)))
	b = append(b, r.Mask...)
	b = appendWords(b, r.Logprobs, math.Float32bits)
	b = appendWords(b, r.Versions, func(v Version) uint32 { return uint32(v) })
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
	b = appendWords(b, r.Advantages, math.Float32bits)
	b = appendWords(b, r.Values, math.Float32bits)
	b = appendWords(b, r.RefLogprobs, math.Float32bits)
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
	return b, nil
}

// MarshalBinary returns the rollout's binary form.
func (r *Rollout) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, r.Bytes()+32))
}

// UnmarshalBinary reads what MarshalBinary wrote. It checks the form, not the content: see
// [Rollout.Validate].
func (r *Rollout) UnmarshalBinary(b []byte) error {
	d := &decoder{b: b}
	d.format("rollout", rolloutFormat)
	x := Rollout{PromptID: d.string("prompt_id")}
	x.Tokens = words(d, "tokens", func(w uint32) int32 { return int32(w) })
	x.Mask = slices.Clone(emptyNil(d.take("mask", d.length("mask", 1))))
	x.Logprobs = words(d, "logprobs", math.Float32frombits)
	x.Versions = words(d, "versions", func(w uint32) Version { return Version(w) })
	x.Temperature, x.TopP, x.Reward = d.float32("temperature"), d.float32("top_p"), d.float32("reward")
	x.Truncated = d.bool("truncated")
	x.Turns = d.turns()
	if d.bool("advantage") {
		a := d.float32("advantage")
		x.Advantage = &a
	}
	x.Advantages = words(d, "advantages", math.Float32frombits)
	x.Values = words(d, "values", math.Float32frombits)
	x.RefLogprobs = words(d, "ref_logprobs", math.Float32frombits)
	for n := d.length("images", 1); n > 0 && d.err == nil; n-- {
		x.Images = append(x.Images, []byte(d.string("image")))
	}
	x.Text = d.string("text")
	if n := d.length("meta", 2); n > 0 {
		x.Meta = make(map[string]string, n)
		for ; n > 0 && d.err == nil; n-- {
			k := d.string("meta key")
			x.Meta[k] = d.string("meta value")
		}
	}
	if err := d.finish("rollout"); err != nil {
		return err
	}
	*r = x
	return nil
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

func appendWords[T any](b []byte, s []T, bits func(T) uint32) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	for _, x := range s {
		b = binary.LittleEndian.AppendUint32(b, bits(x))
	}
	return b
}
