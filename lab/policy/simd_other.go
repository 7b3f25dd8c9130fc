//go:build !(goexperiment.simd && amd64)

package policy

// SIMD says whether the program was built to compute tensors with vector instructions, where the processor has AVX2:
// on amd64, with GOEXPERIMENT=simd.
const SIMD = false

// clearUpperBits does nothing where the backend uses no wide vector registers.
func clearUpperBits() {}
