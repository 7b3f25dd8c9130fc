package main

import (
	"fmt"
	"math"

	"github.com/reprise-rl/reprise/replay"
)

// arm returns what a sampler's arm showed.
func (s *simulated) arm(sampler replay.Sampler) simArm {
	for _, a := range s.Arms {
		if a.Sampler == string(sampler) {
			return a
		}
	}
	return simArm{}
}

// inWords says what the schedule shows.
func (s *simulated) inWords() []string {
	queue, buffer := s.arm(replay.FIFO), s.arm(replay.Distinct)
	words := []string{
		fmt.Sprintf("With the queue, first in first out, trainers wait %.1f%% of the time and workers %.1f%%. %s; lengths, latencies and transfers make the difference. With the buffer trainers wait %.1f%% and workers %.1f%%.",
			100*queue.TrainersStalled, 100*queue.WorkersStalled, s.expected(), 100*buffer.TrainersStalled, 100*buffer.WorkersStalled),
		fmt.Sprintf("An update with the buffer takes %.3f times as long as one with the queue, on the same GPUs, which work %.3f times as much for it. It trains on rollouts used %.2f times, %d versions old in the median and %d at most; the queue's are %d and %d.",
			queue.Speed/buffer.Speed, buffer.ComputeBusy/queue.ComputeBusy, buffer.ReplayRatio, buffer.Staleness.Median, buffer.Staleness.Max, queue.Staleness.Median, queue.Staleness.Max),
	}
	if buffer.NeverUsed >= 0.05 {
		words = append(words, fmt.Sprintf("%.0f%% of the rollouts leave the buffer unused: draws are random, and a rollout is used %.2f times in the mean. Sampler unseen draws the unused first.",
			100*buffer.NeverUsed, buffer.ReplayRatio))
	}
	if buffer.ReplayRatio < 0.95 {
		words = append(words, "Workers make more than trainers use: fewer of them would cost less per update.")
	}
	return words
}

// expected says what W/T and mu alone would have a queue do: with lengths that are alike the trainers wait where workers are too few, the
// workers where they are too many.
func (s *simulated) expected() string {
	feeds := float64(s.Workers) / float64(s.Trainers) * s.Pace
	at := fmt.Sprintf("W/T = %.4g", feeds)
	if s.Pace < 1 {
		at = fmt.Sprintf("W/T, %.4g without what stragglers lose,", feeds)
	}
	switch ratio := feeds / s.RolloutCost; {
	case ratio < 0.9995:
		return fmt.Sprintf("%s at mu = %.4g alone makes trainers wait %.1f%%", at, s.RolloutCost, 100*(1-ratio))
	case ratio > 1.0005:
		return fmt.Sprintf("%s at mu = %.4g alone makes workers wait %.1f%%", at, s.RolloutCost, 100*(1-1/ratio))
	}
	return fmt.Sprintf("%s just feeds the trainers at mu = %.4g", at, s.RolloutCost)
}

// warn says what to mind in the figures.
func (s *simulated) warn(of schedules) (list []string) {
	if d := s.Delay / s.updateTime(); d > 4 {
		list = append(list, fmt.Sprintf("%.3g updates pass from the beginning of a group until it may enter: rollouts are that old before anybody can use them. A larger batch (--batch) or smaller groups (--group) make them younger", d))
	}
	if settled := of.settled(); s.Skipped < settled {
		remedy := fmt.Sprintf("Give --rollouts %d", roundUp(2*settled))
		if 2*settled > mostSimRollouts {
			remedy = "A smaller --capacity, or fewer workers, would show more"
		}
		list = append(list, fmt.Sprintf("the figures show the schedule's beginning: by about %s rollouts the buffer, of %s, is full and twice the time has passed that a group takes to enter. %s",
			grouped(settled), grouped(of.capacity), remedy))
	}
	for _, a := range s.Arms {
		if a.Updates < 20 {
			list = append(list, fmt.Sprintf("%d updates were measured with the %s: shares and quantiles are rough. Give more --rollouts", a.Updates, a.Name))
			break
		}
	}
	// At n updates in flight the transfers of n-1 may overlap the update under way.
	if n := float64(s.InFlight); n > 0 && s.WeightTransfer > (n-1)*s.updateTime() {
		list = append(list, fmt.Sprintf("trainers wait for weights to reach the workers: they travel %.4g, and %d in flight leave them %.4g. --in-flight %d would not",
			s.WeightTransfer, s.InFlight, (n-1)*s.updateTime(), s.enoughInFlight()))
	}
	return list
}

// roundUp rounds up to two digits and zeros.
func roundUp(n int) int {
	unit := 1
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// enoughInFlight is how many updates in flight keep trainers from waiting for transfers.
func (s *simulated) enoughInFlight() int {
	return 1 + int(math.Ceil(s.WeightTransfer/s.updateTime()))
}
