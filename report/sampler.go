package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/results"
)

// samplerColumns is how tables that replay drew.
func samplerColumns() []column {
	return []column{
		{"Sampler", ofSampling(func(s *results.Sampling) string { return s.Sampler })},
		{"A draw falls on a", ofSampling(func(s *results.Sampling) string { return s.Unit })},
		{"Priority: base / exponent α", ofPriority(func(p *results.Priority) string { return p.Base + " / " + short(p.Exponent, 0) })},
		{"Age decay τ", decayText},
		{"Effective half-life", halfLifeText},
		{"Entry / draws", ofPriority(func(p *results.Priority) string { return p.Entry + " / " + p.Draws })},
		{"Importance exponent β at the end / largest weight of", ofPriority(func(p *results.Priority) string {
			if p.Normalised == "" {
				return number(p.Beta)
			}
			return number(p.Beta) + " / " + p.Normalised
		})},
		{"Replay updates to each fresh one", ofSampling(func(s *results.Sampling) string {
			if s.Mix == 0 {
				return "–"
			}
			return fmt.Sprint(s.Mix)
		})},
		{"Fresh share of a batch", ofSampling(func(s *results.Sampling) string {
			if s.FreshShare == 0 {
				return "–"
			}
			return shareText(results.Num(s.FreshShare))
		})},
		{"Never drawn, of all inserted", func(a *arm) string {
			return shareText(a.median(func(s *results.Summary) results.Number {
				if s.Sampling == nil {
					return results.Number{}
				}
				return s.Sampling.NeverUsed
			}))
		}},
	}
}

// ofSampling writes what the first run of an arm that has it says, a dash if none has.
func ofSampling(text func(*results.Sampling) string) func(*arm) string {
	return func(a *arm) string {
		for _, s := range a.summaries() {
			if s.Sampling != nil {
				return text(s.Sampling)
			}
		}
		return "–"
	}
}

// ofPriority does the same of a prioritized sampler.
func ofPriority(text func(*results.Priority) string) func(*arm) string {
	return ofSampling(func(s *results.Sampling) string {
		if s.Priority == nil {
			return "–"
		}
		return text(s.Priority)
	})
}

// decayText writes tau, which differs between seeds where it follows the measured ESS.
func decayText(a *arm) string {
	tables := a.priorities()
	if len(tables) == 0 {
		return "–"
	}
	text := "none"
	if tau := medianNumber(tables, func(p *results.Priority) results.Number { return p.AgeDecay }); tau.Known() {
		text = short(tau.Float(), 0) + " versions"
	}
	if tables[0].Auto {
		text += " at the end, for ESS/n " + number(tables[0].TargetESS)
	}
	return text
}

// halfLifeText writes the half-life of a rollout's probability with the formula that gives it.
func halfLifeText(a *arm) string {
	return ofPriority(func(p *results.Priority) string {
		if !p.HalfLife.Known() {
			return "–"
		}
		h, tau := p.HalfLife.Float(), p.AgeDecay.Float()
		text := fmt.Sprintf("%s versions", grouped(h))
		switch {
		case agrees(h, tau/p.Exponent*math.Ln2):
			text += " = (τ/α) ln 2"
		case agrees(h, tau*math.Ln2):
			text += " = τ ln 2"
		}
		return text
	})(a)
}

// agrees reports whether two numbers are the same to what is shown of them.
func agrees(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(b) }

// said keeps the rows in which some arm says something.
func said(rows []factRow) []factRow {
	return slices.DeleteFunc(rows, func(r factRow) bool {
		return !slices.ContainsFunc(r.Values, func(v string) bool { return strings.Trim(v, "–/ ") != "" })
	})
}

// shareText writes a share as per cent, a dash if there is none.
func shareText(n results.Number) string {
	if !n.Known() {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*n.Float())
}
