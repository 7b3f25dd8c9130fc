package rollout

// Feedback is what a trainer measured of one draw in the step that it was drawn for. What was not measured is NaN,
// or 0 tokens.
type Feedback struct {
	ID        ID
	Staleness int32   // of the draw
	Advantage float64 // that the step used, mean of the absolute values over the policy's tokens: at least 0
	TDError   float64 // of a critic, mean of the absolute values over the policy's tokens: at least 0
	GradNorm  float64 // Euclidean norm of the loss's gradient with respect to the rollout's logits: at least 0

	// Of the ratios rho = pi/b of the policy's tokens that counted ([ER] §2.2).
	Tokens       float64 // their number
	RatioSum     float64 // sum of rho
	RatioSquares float64 // sum of rho^2
}
