package sim

// mix returns a well-spread digest of its arguments in order: the finalizer of splitmix64, chained.
func mix(xs ...uint64) uint64 {
	var h uint64
	for _, x := range xs {
		h ^= x
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// unit returns a number in [0, 1) from the upper bits of a digest.
func unit(h uint64) float32 { return float32(h>>40) / (1 << 24) }
