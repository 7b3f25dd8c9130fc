package rollout

import (
	"bytes"
	"sync"
	"unsafe"
	"weak"
)

// Most rollouts are a prompt and one completion of one version. The masks of all of those are parts of one array, zeros
// and then ones, and so are their versions, for each version. Decoded rollouts share these arrays: a token then takes 8
// bytes instead of 13.

// OneTurn returns how many tokens a mask has before a single completion that lasts until its end, -1 if the mask is of
// another form.
func OneTurn(mask []uint8) int {
	prompt := bytes.IndexByte(mask, 1)
	if prompt < 0 || bytes.Count(mask[:prompt], []byte{0}) != prompt ||
		bytes.Count(mask[prompt:], []byte{1}) != len(mask)-prompt {
		return -1
	}
	return prompt
}

// OneVersion returns the version of all tokens after a prompt, if they have one and the prompt has none.
func OneVersion(versions []Version, prompt int) (v Version, ok bool) {
	if prompt >= len(versions) {
		return 0, false
	}
	before, after := memoryOf(versions[:prompt]), memoryOf(versions[prompt:])
	return versions[prompt], bytes.Count(before, []byte{0xff}) == len(before) && // NoVersion
		bytes.Equal(after[4:], after[:len(after)-4])
}

// SharedMask returns the mask of a prompt and a completion of the given tokens. Other rollouts have it too: it must not
// be written to.
func SharedMask(prompt, completion int) []uint8 {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.mask.take(0, 1, prompt, completion)
}

// SharedVersions returns the versions of a prompt and a completion of the given tokens. Other rollouts have them too:
// they must not be written to.
func SharedVersions(prompt, completion int, v Version) []Version {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	steps := shared.versions[v]
	if steps == nil {
		shared.forget()
		steps = new(step[Version])
		shared.versions[v] = steps
	}
	return steps.take(NoVersion, v, prompt, completion)
}

var shared = arrays{versions: make(map[Version]*step[Version])}

// arrays are the arrays that rollouts share. They are only there while a rollout has them.
type arrays struct {
	mu       sync.Mutex
	mask     step[uint8]
	versions map[Version]*step[Version]
	most     int // entries of versions at which those without an array are looked for
}

// forget forgets the versions that no rollout has any more, when there are twice as many as the last time.
func (a *arrays) forget() {
	if len(a.versions) < a.most {
		return
	}
	for v, s := range a.versions {
		if s.first.Value() == nil {
			delete(a.versions, v)
		}
	}
	a.most = 2*len(a.versions) + 64
}

// step is an array of one value, then another.
type step[T any] struct {
	first         weak.Pointer[T]
	before, after int
}

// take returns a slice around the step. It makes a longer array first if needed, and an array of its own where the
// shared one is more than twice as long as what is wanted: a short rollout must not keep the array of a long one.
func (s *step[T]) take(low, high T, before, after int) []T {
	first := s.first.Value()
	if first == nil {
		s.before, s.after = 0, 0
	}
	// A little more than is wanted, so that lengths that vary soon share one array.
	longBefore, longAfter := s.before, s.after
	if before > s.before {
		longBefore = before + before/4
	}
	if after > s.after {
		longAfter = after + after/4
	}
	if longBefore+longAfter > 2*(before+after) {
		return makeStep(low, high, before, after)
	}
	if longBefore > s.before || longAfter > s.after {
		s.before, s.after = longBefore, longAfter
		first = unsafe.SliceData(makeStep(low, high, s.before, s.after))
		s.first = weak.Make(first)
	}
	end := s.before + after
	return unsafe.Slice(first, s.before+s.after)[s.before-before : end : end]
}

func makeStep[T any](low, high T, before, after int) []T {
	array := make([]T, before+after)
	for i := range array {
		if array[i] = high; i < before {
			array[i] = low
		}
	}
	return array
}
