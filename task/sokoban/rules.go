package sokoban

// Action is one of gym-sokoban's nine, with its numbers.
type Action int

// The actions. A push moves the player too, and is a move where there is no box; a move never moves a box.
const (
	NoOperation Action = iota
	PushUp
	PushDown
	PushLeft
	PushRight
	MoveUp
	MoveDown
	MoveLeft
	MoveRight
)

// The rewards of gym-sokoban.
const (
	rewardStep     = -0.1 // of every step, whatever it does
	rewardOn       = 1    // for a step that brings one box more onto a target
	rewardOff      = -1   // for a step that takes a box off the targets
	rewardComplete = 10   // for the step after which all boxes are on targets
)

// push returns the action that pushes in a direction.
func push(d direction) Action { return PushUp + Action(d) }

// move returns the action that moves in a direction.
func move(d direction) Action { return MoveUp + Action(d) }

// direction of an action that is not NoOperation.
func (a Action) direction() direction { return direction(a-1) % directions }

// pushes reports whether an action may move a box.
func (a Action) pushes() bool { return a >= PushUp && a <= PushRight }

// board is a game in progress.
type board struct {
	*room
	position
}

// act lets an action act and returns its reward and whether all boxes are on targets now. An action that cannot be done
// changes nothing and costs a step.
func (b *board) act(a Action) (reward float64, complete bool) {
	before := b.onTarget(b.position)
	if a != NoOperation {
		b.step(a.direction(), a.pushes())
	}
	after := b.onTarget(b.position)
	reward = rewardStep
	switch {
	case after > before:
		reward += rewardOn
	case after < before:
		reward += rewardOff
	}
	if after == b.room.boxes {
		return reward + rewardComplete, true
	}
	return reward, false
}

// step moves the player by one cell, and with it the box there if it may be pushed and can be.
func (b *board) step(d direction, pushes bool) {
	by := b.offset(d)
	to := b.player + by
	if b.wall[to] {
		return
	}
	if box := b.box(&b.position, to); box >= 0 {
		beyond := to + by
		if !pushes || b.wall[beyond] || b.box(&b.position, beyond) >= 0 {
			return
		}
		b.shift(&b.position, box, beyond)
	}
	b.player = to
}
