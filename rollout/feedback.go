package rollout

// Feedback is what a trainer measured of one draw in the step that it was drawn for. The zero value of each part says that
// it was not measured.
type Feedback struct {
	ID        ID
	Staleness int32       // of the draw
	Advantage Measurement // that the step used, mean of the absolute values over the policy's tokens
	TDError   Measurement // of a critic, mean of the absolute values over the policy's tokens
	GradNorm  Measurement // Euclidean norm of the loss's gradient with respect to the rollout's logits

	// Of the ratios rho = pi/b of the policy's tokens that counted ([ER] §2.2).
	Tokens       float64 // their number; 0: the ratios were not measured
	RatioSum     float64 // sum of rho
	RatioSquares float64 // sum of rho^2
}

// Measurement is a finite number, at least 0, or nothing: the zero value.
type Measurement struct {
	Value float64
	Known bool
}

// Measured returns a measurement that was made.
func Measured(v float64) Measurement { return Measurement{v, true} }
