package rollout

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
)

// Stream returns a random stream for one purpose. The same (seed, purpose, index) always gives the same numbers;
// streams that differ in any of the three are independent.
func Stream(seed uint64, purpose string, index uint64) *rand.Rand {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], seed)
	binary.LittleEndian.PutUint64(b[8:], index)
	h := fnv.New128a()
	h.Write(b[:])
	h.Write([]byte(purpose))
	s := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:])))
}
