package rollout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"unsafe"
)

// The first byte of a rollout's binary form. What engineFormat adds follows the rest; a rollout without it is written
// in rolloutFormat, which older builds read too. In compactFormat flags follow.
const (
	rolloutFormat = 2
	engineFormat  = 3 // with SamplingMask and RoutedExperts
	compactFormat = 4
)

// The flags of compactFormat.
const (
	withEngine byte = 1 << iota // SamplingMask and RoutedExperts follow the rest
	oneTurn                     // Mask is that of a prompt and one completion: the prompt's tokens are counted instead
	oneVersion                  // and Versions are one for the completion, none for the prompt: it alone is written
)

// AppendBinary appends the rollout's binary form. Equal rollouts give equal bytes. An empty slice is read back as nil.
// Unlike encoding/gob, the form keeps a nil Advantage apart from one of 0.
func (r *Rollout) AppendBinary(b []byte) ([]byte, error) {
	if r.fromEngine() {
		return r.appendFields(append(b, engineFormat), withEngine), nil
	}
	return r.appendFields(append(b, rolloutFormat), 0), nil
}

// AppendCompact appends another binary form, which UnmarshalBinary reads too. It takes 8 bytes a token where a prompt
// has one completion of one version, instead of 13. Journals have it; AppendBinary keeps its bytes, because digests are
// made of them.
func (r *Rollout) AppendCompact(b []byte) []byte {
	flags := byte(0)
	if r.fromEngine() {
		flags |= withEngine
	}
	if prompt := OneTurn(r.Mask); prompt >= 0 && len(r.Mask) == len(r.Tokens) {
		flags |= oneTurn
		if _, one := OneVersion(r.Versions, prompt); one && len(r.Versions) == len(r.Tokens) {
			flags |= oneVersion
		}
	}
	return r.appendFields(append(b, compactFormat, flags), flags)
}

// fromEngine reports whether the rollout has what engineFormat adds.
func (r *Rollout) fromEngine() bool {
	return len(r.SamplingMask.Ends)+len(r.SamplingMask.IDs)+len(r.RoutedExperts) > 0
}

func (r *Rollout) appendFields(b []byte, flags byte) []byte {
	b = appendText(b, r.PromptID)
	b = appendWords(b, r.Tokens)
	if flags&oneTurn != 0 {
		b = binary.AppendUvarint(b, uint64(OneTurn(r.Mask)))
	} else {
		b = binary.AppendUvarint(b, uint64(len(r.Mask)))
		b = append(b, r.Mask...)
	}
	b = appendWords(b, r.Logprobs)
	if flags&oneVersion != 0 {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Versions[len(r.Versions)-1]))
	} else {
		b = appendWords(b, r.Versions)
	}
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
	b = append(b, r.Extra...)
	if flags&withEngine != 0 {
		b = appendWords(b, r.SamplingMask.Ends)
		b = appendWords(b, r.SamplingMask.IDs)
		b = appendWords(b, r.RoutedExperts)
	}
	return b
}

// MarshalBinary returns the rollout's binary form.
func (r *Rollout) MarshalBinary() ([]byte, error) {
	return r.AppendBinary(make([]byte, 0, r.Bytes()+32))
}

// UnmarshalBinary reads what MarshalBinary wrote. It checks the form; [Rollout.Validate] checks the content. The
// per-token slices share one block of memory that is not part of b; Mask and Versions may be those of other rollouts
// too ([SharedMask]).
func (r *Rollout) UnmarshalBinary(b []byte) error {
	d := &decoder{b: b}
	flags := d.flags()
	x, raw := Rollout{PromptID: d.string("prompt_id")}, perToken{}
	raw.tokens = d.words("tokens")
	prompt, completion := 0, len(raw.tokens)/4
	if flags&oneTurn != 0 {
		prompt, completion = d.turn(completion)
		x.Mask = SharedMask(prompt, completion)
	} else {
		raw.mask = d.take("mask", d.length("mask", 1))
	}
	raw.logprobs = d.words("logprobs")
	if flags&oneVersion != 0 {
		x.Versions = SharedVersions(prompt, completion, Version(d.uint32("version")))
	} else {
		raw.versions = d.words("versions")
	}
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
	if extra := d.take("extra", d.length("extra", 1)); len(extra) > 0 {
		x.Extra = slices.Clone(extra)
	}
	if flags&withEngine != 0 {
		raw.maskEnds, raw.maskIDs = d.words("sampling_mask"), d.words("ids of sampling_mask")
		raw.routedExperts = d.take("routed_experts", 2*d.length("routed_experts", 2))
	}
	if err := d.finish("rollout"); err != nil {
		return err
	}
	raw.copyTo(&x)
	*r = x
	return nil
}

// perToken holds the per-token slices of a rollout in their binary form.
type perToken struct {
	tokens, mask, logprobs, versions, advantages, values, refLogprobs []byte
	maskEnds, maskIDs, routedExperts                                  []byte
}

// copyTo copies the slices into the rollout. The experts and the mask go last in the block because their lengths may
// not be multiples of four.
func (p *perToken) copyTo(r *Rollout) {
	p.share(r)
	n := len(p.tokens) + len(p.mask) + len(p.logprobs) + len(p.versions)
	n += len(p.advantages) + len(p.values) + len(p.refLogprobs)
	k := newBlock(n + len(p.maskEnds) + len(p.maskIDs) + len(p.routedExperts))
	r.Tokens, r.Logprobs = takeWords[int32](&k, p.tokens), takeWords[float32](&k, p.logprobs)
	if r.Versions == nil {
		r.Versions = takeWords[Version](&k, p.versions)
	}
	r.Advantages, r.Values = takeWords[float32](&k, p.advantages), takeWords[float32](&k, p.values)
	r.RefLogprobs = takeWords[float32](&k, p.refLogprobs)
	r.SamplingMask.Ends, r.SamplingMask.IDs = takeWords[int32](&k, p.maskEnds), takeWords[int32](&k, p.maskIDs)
	r.RoutedExperts = takeWords[uint16](&k, p.routedExperts)
	if r.Mask == nil {
		r.Mask = k.take(p.mask)
	}
}

// share sets the mask and versions that need no copy.
func (p *perToken) share(r *Rollout) {
	prompt, n := OneTurn(p.mask), len(p.mask)
	if prompt < 0 {
		return
	}
	r.Mask, p.mask = SharedMask(prompt, n-prompt), nil
	if len(p.versions) != 4*n {
		return
	}
	v := p.versions[4*prompt:][:4]
	outside := bytes.Count(p.versions[:4*prompt], []byte{0xff}) == 4*prompt // NoVersion
	if outside && bytes.Equal(p.versions[4*prompt:len(p.versions)-4], p.versions[4*prompt+4:]) {
		r.Versions, p.versions = SharedVersions(prompt, n-prompt, Version(binary.LittleEndian.Uint32(v))), nil
	}
}

// flags reads the number of the form, and the flags of compactFormat or those that another form stands for.
func (d *decoder) flags() byte {
	switch d.format("rollout", rolloutFormat, engineFormat, compactFormat) {
	case engineFormat:
		return withEngine
	case compactFormat:
		if b := d.take("flags", 1); len(b) > 0 {
			if b[0] > withEngine|oneTurn|oneVersion || b[0]&oneVersion != 0 && b[0]&oneTurn == 0 {
				d.fail("flags are %b", b[0])
			}
			return b[0]
		}
	}
	return 0
}

// turn reads how many of a rollout's tokens are the prompt, and returns how many are the completion.
func (d *decoder) turn(tokens int) (prompt, completion int) {
	n := d.uvarint("prompt")
	if d.err == nil && n >= uint64(tokens) {
		d.fail("a prompt of %d tokens does not leave one of %d", n, tokens)
	}
	if d.err != nil {
		return 0, 0
	}
	return int(n), tokens - int(n)
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

// decoder reads the binary forms of this package. It keeps the first error and then returns zeros, so that callers
// check once, in finish. What it allocates is bounded by the size of the input.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// take returns the next n bytes of the input itself.
func (d *decoder) take(what string, n int) []byte {
	if d.err == nil && n > len(d.b) {
		d.fail("%s needs %d bytes, %d are left", what, n, len(d.b))
	}
	if d.err != nil {
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

// format reads the number of the form and refuses any that is not wanted.
func (d *decoder) format(what string, want ...byte) byte {
	b := d.take("format", 1)
	if d.err != nil {
		return 0
	}
	if !slices.Contains(want, b[0]) {
		d.fail("%s format %d is unknown, want %d", what, b[0], want)
	}
	return b[0]
}

func (d *decoder) uvarint(what string) uint64 {
	if d.err != nil {
		return 0
	}
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("%s is cut off or too large", what)
		return 0
	}
	d.b = d.b[n:]
	return x
}

// length reads the number of entries that follow, each at least size bytes.
func (d *decoder) length(what string, size int) int {
	n := d.uvarint(what)
	if d.err == nil && n > uint64(len(d.b)/size) {
		d.fail("%d %s do not fit the %d bytes left", n, what, len(d.b))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) uint32(what string) uint32 {
	if b := d.take(what, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) float32(what string) float32 { return math.Float32frombits(d.uint32(what)) }

func (d *decoder) bool(what string) bool {
	b := d.take(what, 1)
	if b != nil && b[0] > 1 {
		d.fail("%s is %d, neither 0 nor 1", what, b[0])
	}
	return b != nil && b[0] == 1
}

func (d *decoder) string(what string) string { return string(d.take(what, d.length(what, 1))) }

// words reads the length and then the bytes of a slice of 4-byte entries.
func (d *decoder) words(what string) []byte { return d.take(what, 4*d.length(what, 4)) }

// finish returns the first error. Leftover bytes are one.
func (d *decoder) finish(what string) error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes are left over", len(d.b))
	}
	if d.err != nil {
		return fmt.Errorf("reading a %s: %w", what, d.err)
	}
	return nil
}

// word is an entry of a per-token slice, four bytes or two.
type word interface{ ~int32 | ~float32 | ~uint16 }

func sizeOf[T word]() int { return int(unsafe.Sizeof(*new(T))) }

// littleEndian reports whether memory has the byte order of the binary form, so that words can be copied without a
// swap.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// memoryOf returns the memory of a slice of words as bytes.
func memoryOf[T word](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), sizeOf[T]()*len(s))
}

// wordsOf returns memory, aligned for T, as words.
func wordsOf[T word](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}

// appendWords appends the length of a slice and its words.
func appendWords[T word](b []byte, s []T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	at := len(b)
	b = append(b, memoryOf(s)...)
	if !littleEndian() {
		swapWords(b[at:], sizeOf[T]())
	}
	return b
}

// swapWords converts words of four bytes or two in place between the byte order of memory and that of the binary form.
// It is needed on big-endian machines only; elsewhere it changes nothing.
func swapWords(b []byte, size int) {
	for ; len(b) >= size; b = b[size:] {
		if size == 2 {
			binary.LittleEndian.PutUint16(b, binary.NativeEndian.Uint16(b))
		} else {
			binary.LittleEndian.PutUint32(b, binary.NativeEndian.Uint32(b))
		}
	}
}

// block is the memory of a rollout's per-token slices, one allocation.
type block struct{ free []byte }

// newBlock returns a block of at least n bytes, aligned to four.
func newBlock(bytes int) block {
	return block{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint32, (bytes+3)/4)))), (bytes+3)/4*4)}
}

// take copies bytes into the block. No bytes give nil.
func (k *block) take(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	n := copy(k.free, b)
	head := k.free[:n:n]
	k.free = k.free[n:]
	return head
}

// takeWords copies words of the binary form into the block, whose next free byte must be aligned for T. No words give
// nil.
func takeWords[T word](k *block, b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	head := k.take(b)
	if !littleEndian() {
		swapWords(head, sizeOf[T]())
	}
	return wordsOf[T](head)
}
