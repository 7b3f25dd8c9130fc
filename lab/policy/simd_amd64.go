//go:build goexperiment.simd

package policy

import "simd/archsimd"

// SIMD says whether the program was built to compute tensors with vector instructions, where the processor has AVX2:
// on amd64, with GOEXPERIMENT=simd.
const SIMD = true

// clearUpperBits clears the upper halves of the vector registers. While they hold values, which the backend leaves
// there, math.Exp is slow on some processors: 49152 calls, which a draw from as many tokens takes, took 75 ms instead
// of 0.7.
func clearUpperBits() {
	if archsimd.X86.AVX() {
		archsimd.ClearAVXUpperBits()
	}
}
