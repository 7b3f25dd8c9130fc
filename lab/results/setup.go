package results

import (
	"fmt"
	"strconv"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
)

// Setup is what one side of a comparison has to work with, and how long it took. What is not known is none.
type Setup struct {
	Name              string
	Workers, Trainers Number // inference and training GPUs
	Batch             Number // rollouts
	Budget            Number // of compute; none if updates are counted
	Updates           Number // to be made; none if compute is counted
	Spent             Number // compute so far, median over runs
	Clock             Number // virtual time so far, median over runs
	Wall              Number // seconds so far, median over runs
}

// PlannedSetup returns the setup that settings plan.
func PlannedSetup(name string, settings map[string]string) Setup {
	number := func(key string) Number {
		v, err := strconv.ParseFloat(settings[key], 64)
		if err != nil {
			return Number{}
		}
		return Num(v)
	}
	s := Setup{Name: name, Workers: number("pipeline.workers"), Trainers: number("pipeline.trainers"),
		Batch: number("pipeline.batch")}
	if updates := number("budget.updates"); updates.Float() > 0 {
		s.Updates = updates
	}
	if compute := number("budget.compute"); compute.Float() > 0 { // in updates of a queue, B(1 + mu)
		s.Budget = Num(compute.Float() * s.Batch.Float() * (1 + number("pipeline.rollout_cost").Float()))
	}
	return s
}

// Setups returns the setups of a comparison of arms.
func Setups(arms []NamedRuns) (list []Setup) {
	for _, a := range arms {
		var settings map[string]string
		if len(a.Runs) > 0 {
			settings = Settings(a.Runs[0].Config)
		}
		s := PlannedSetup(a.Name, settings)
		var spent, clock, wall []float64
		for _, r := range a.Runs {
			if n := len(r.Updates); n > 0 {
				spent, clock = append(spent, r.Updates[n-1].Compute), append(clock, r.Updates[n-1].Clock)
			}
			if n := len(r.Timings); n > 0 {
				wall = append(wall, r.Timings[n-1].Elapsed)
			}
		}
		s.Spent, s.Clock, s.Wall = RangeOf(spent).Median, RangeOf(clock).Median, RangeOf(wall).Median
		list = append(list, s)
	}
	return list
}

// GPUs writes the GPUs as 5+1, inference and training.
func (s Setup) GPUs() string {
	if !s.Workers.Known() || !s.Trainers.Known() {
		return "–"
	}
	return fmt.Sprintf("%g+%g", s.Workers.Float(), s.Trainers.Float())
}

// BudgetText writes the budget.
func (s Setup) BudgetText() string {
	switch {
	case s.Budget.Known() && s.Updates.Known():
		return fmt.Sprintf("%s of compute, at most %s updates", words.Amount(s.Budget.Float()),
			words.Whole(s.Updates.Float()))
	case s.Budget.Known():
		return words.Amount(s.Budget.Float()) + " of compute"
	case s.Updates.Known():
		return words.Whole(s.Updates.Float()) + " updates"
	}
	return "–"
}

// WallText writes the time on the clock of the machine.
func (s Setup) WallText() string {
	if !s.Wall.Known() {
		return "–"
	}
	return words.Span(time.Duration(s.Wall.Float() * float64(time.Second)))
}

// String says what the side has, and how long it took if it has begun.
func (s Setup) String() string {
	text := fmt.Sprintf("%s: %s GPUs (inference + training), batches of %s, %s", s.Name, s.GPUs(),
		words.Whole(s.Batch.Float()), s.BudgetText())
	if s.Clock.Known() {
		text += fmt.Sprintf("; virtual clock %s", words.Amount(s.Clock.Float()))
	}
	if s.Wall.Known() {
		text += ", wall clock " + s.WallText()
	}
	return text
}
