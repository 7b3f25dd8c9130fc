//go:build !(goexperiment.simd && amd64)

package policy

// clearUpperBits does nothing where the backend uses no wide vector registers.
func clearUpperBits() {}
