package report

import (
	"fmt"

	"github.com/reprise-rl/reprise/results"
)

// promptMetrics returns what is shown of prompt replay over the updates.
func promptMetrics() []metric {
	held := func(u *results.Update) results.Number { return u.PromptsHeld }
	replayed := func(u *results.Update) results.Number { return u.PromptShare }
	return []metric{
		{"Prompts held", "by prompt replay", held, some(func(u *results.Update) bool { return u.PromptsHeld.Known() })},
		{"Replayed prompts", "share of new groups", replayed, some(func(u *results.Update) bool { return u.PromptShare.Known() })},
	}
}

// promptHistograms are those of an arm that replays prompts.
func promptHistograms() []counted {
	return []counted{
		{"Replays of a prompt", "times replayed", "% of prompts replayed", "No prompt was replayed.",
			func(s *results.Summary) results.Histogram { return s.PromptReplay.Reuse }, nil},
		{"Pass rates of prompts held", "% of responses correct, at the end", "% of prompts held", "No prompt was held.",
			func(s *results.Summary) results.Histogram { return s.PromptReplay.PassRates }, nil},
	}
}

// replayingPrompts returns the arm with those of its runs alone that have ended and replayed
// prompts.
func (a *arm) replayingPrompts() *arm {
	kept := &arm{label: a.label, role: a.role}
	for _, r := range a.runs {
		if r.Summary != nil && r.Summary.PromptReplay != nil {
			kept.runs = append(kept.runs, r)
		}
	}
	return kept
}

// promptFigures draws prompt replay, nothing if no arm has it.
func promptFigures(arms []*arm) ([]figure, error) {
	figures, _, err := trainingFigures(arms, promptMetrics())
	if err != nil {
		return nil, err
	}
	for _, side := range arms {
		side = side.replayingPrompts()
		if len(side.runs) == 0 {
			continue
		}
		ofArm, err := figuresOf(side, promptHistograms())
		if err != nil {
			return nil, err
		}
		for _, f := range ofArm {
			if len(arms) > 1 {
				f.Title += ", " + side.label
			}
			figures = append(figures, f)
		}
	}
	return figures, nil
}

// promptColumns is how prompts were replayed.
func promptColumns() []column {
	of := func(text func(*results.PromptReplay) string) func(*arm) string {
		return func(a *arm) string {
			if kept := a.replayingPrompts(); len(kept.runs) > 0 {
				return text(kept.runs[0].Summary.PromptReplay)
			}
			return "–"
		}
	}
	return []column{
		{"Prompt replay: share f / band", of(func(p *results.PromptReplay) string {
			return short(p.Fraction, 0) + " / " + short(p.Band, 0)
		})},
		{"Prompt replay: cooldown / most replays", of(func(p *results.PromptReplay) string {
			return fmt.Sprintf("%d versions / %d", p.Cooldown, p.MaxReuse)
		})},
		{"Groups of replayed prompts", func(a *arm) string {
			return shareText(a.replayingPrompts().median(func(s *results.Summary) results.Number {
				p := s.PromptReplay
				return results.Num(float64(p.Replayed) / float64(p.Replayed+p.Fresh))
			}))
		}},
	}
}
