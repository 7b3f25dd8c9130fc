package pipeline

// Spent is how a GPU's time went so far, in the time one trainer takes for one rollout. The three add
// up to the clock.
type Spent struct {
	Busy    float64 // generating, or stepping
	Stalled float64 // a worker with a group that finds no room; a trainer waiting for rollouts
	Idle    float64 // in synchronous mode: while it is the others' turn
}

// Activity is what a GPU is doing.
type Activity uint8

// The activities that an account tells apart.
const (
	Idle Activity = iota
	Busy
	Stalled
)

// Account is the time of one GPU: what it spent until Since, and what it has been doing from then on.
// The zero value is idle since time 0.
type Account struct {
	Past  Spent
	Since float64
	Doing Activity
}

// At returns how the time was spent until now, which is not before Since.
func (a Account) At(now float64) Spent {
	s, d := a.Past, now-a.Since
	switch a.Doing {
	case Busy:
		s.Busy += d
	case Stalled:
		s.Stalled += d
	default:
		s.Idle += d
	}
	return s
}

// turn ends the present activity and begins another.
func (a *Account) turn(now float64, to Activity) {
	if a.Doing != to {
		*a = Account{Past: a.At(now), Since: now, Doing: to}
	}
}
