package rollout_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/reprise-rl/reprise/rollout"
)

// aForm returns the mask and versions of a rollout: of one turn and one version, or nearly.
func aForm(random *rand.Rand) (mask []uint8, versions []rollout.Version) {
	prompt, completion, v := random.IntN(40), 1+random.IntN(40), rollout.Version(random.IntN(5))
	for i := range prompt + completion {
		if i < prompt {
			mask, versions = append(mask, 0), append(versions, rollout.NoVersion)
		} else {
			mask, versions = append(mask, 1), append(versions, v)
		}
	}
	i := random.IntN(len(mask))
	switch random.IntN(5) {
	case 0:
		mask[i] ^= 1
	case 1:
		mask[i] = 7
	case 2:
		versions[i]++
	case 3:
		versions[i] = rollout.NoVersion
	}
	return mask, versions
}

// Whatever mask and versions a rollout has, it is read back with the same; those of one turn share memory.
func TestSharedMasksAndVersionsAreTheSame(t *testing.T) {
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			random := rollout.Stream(1, "shared", uint64(worker))
			var held []*rollout.Rollout
			for range 3000 {
				mask, versions := aForm(random)
				r := &rollout.Rollout{Tokens: make([]int32, len(mask)), Mask: mask, Versions: versions}
				form, err := r.MarshalBinary()
				if err != nil {
					t.Error(err)
				}
				back := new(rollout.Rollout)
				if err := back.UnmarshalBinary(form); err != nil {
					t.Error(err)
				}
				held = append(held[max(0, len(held)-20):], back)
				if !slices.Equal(back.Mask, mask) || !slices.Equal(back.Versions, versions) {
					t.Errorf("%v, %v came back as %v, %v", mask, versions, back.Mask, back.Versions)
				}
				prompt := rollout.OneTurn(mask)
				if want := slices.Index(mask, 1); prompt >= 0 && (prompt != want || slices.Contains(mask[prompt:], 0)) {
					t.Errorf("%v is of one turn after %d tokens", mask, prompt)
				}
				if len(back.Mask) != cap(back.Mask) || len(back.Versions) != cap(back.Versions) {
					t.Error("an append would write to another rollout's memory")
				}
			}
		})
	}
	all.Wait()
}

func TestRolloutsOfOneTurnShareMemory(t *testing.T) {
	first, second := rollout.SharedVersions(30, 50, 12), rollout.SharedVersions(10, 40, 12)
	if unsafe.SliceData(first[30:]) != unsafe.SliceData(second[10:]) {
		t.Error("two rollouts of one version have arrays of their own")
	}
	a, b := rollout.SharedMask(3000, 4000), rollout.SharedMask(2500, 3000)
	if unsafe.SliceData(a[3000:]) != unsafe.SliceData(b[2500:]) {
		t.Error("two rollouts of one turn have masks of their own")
	}
	runtime.KeepAlive(first)
}

// A short rollout does not keep the array of a long one.
func TestAShortRolloutHasAnArrayOfItsOwn(t *testing.T) {
	long := rollout.SharedVersions(1000, 9000, 13)
	short := rollout.SharedVersions(10, 90, 13)
	if len(short) != 100 || short[9] != rollout.NoVersion || short[10] != 13 || cap(short) != 100 {
		t.Errorf("the short rollout has %v", short)
	}
	if unsafe.SliceData(long[990:]) == unsafe.SliceData(short) {
		t.Error("100 tokens keep the array of 10,000")
	}
	if again := rollout.SharedVersions(900, 8000, 13); unsafe.SliceData(again[900:]) != unsafe.SliceData(long[1000:]) {
		t.Error("the long array is not shared any more")
	}
	runtime.KeepAlive(long)
}

// What no rollout has any more is not kept, however many versions there were.
func TestSharedMemoryIsFreed(t *testing.T) {
	live := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	for v := range rollout.Version(2000) {
		if got := rollout.SharedVersions(1000, 9000, v); got[999] != rollout.NoVersion || got[1000] != v {
			t.Fatalf("version %d has %d, %d", v, got[999], got[1000])
		}
	}
	if after := live(); after > before+4<<20 { // 2000 of them are 100 MB
		t.Errorf("%d bytes are held by nobody's versions", after-before)
	}
}
