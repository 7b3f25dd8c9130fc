package replay

import (
	"fmt"
	"math"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// checkAdvantages compares the advantages of draws with what draw_advantage says, looking at everything for each.
func (m *model) checkAdvantages(b *rollout.Batch) string {
	for _, d := range b.Draws {
		var rewards []float64
		switch m.o.DrawAdvantage {
		case AdvantageStored:
			return ""
		case AdvantageRegrouped, AdvantageSplit:
			for _, other := range b.Draws {
				apart := m.o.DrawAdvantage == AdvantageSplit && other.Fresh != d.Fresh
				if other.Rollout.PromptID == d.Rollout.PromptID && !apart {
					rewards = append(rewards, float64(other.Rollout.Reward))
				}
			}
		case AdvantageBaseline:
			for _, u := range m.present(b.Shard) {
				if u.items[0].r.PromptID == d.Rollout.PromptID && !u.waits {
					rewards = append(rewards, float64(u.items[0].r.Reward))
				}
			}
		}
		mean, variance, n := 0.0, 0.0, float64(len(rewards))
		for _, r := range rewards {
			mean += r / n
		}
		for _, r := range rewards {
			variance += (r - mean) * (r - mean) / n
		}
		want := float64(d.Rollout.Reward) - mean
		switch m.o.Advantage {
		case "leave_one_out":
			want *= n / max(1, n-1)
		case "group":
			want /= math.Sqrt(variance + 1e-8)
		}
		if math.Abs(want-float64(d.Advantage)) > 1e-5*(1+math.Abs(want)) {
			return fmt.Sprintf("rollout %d of reward %v among %v has advantage %v, by definition %v", d.ID,
				d.Rollout.Reward, rewards, d.Advantage, want)
		}
	}
	return ""
}

func TestADrawAdvantageThatCannotWorkIsRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"draw_advantage: fresh: want stored, regroup, split or baseline": {DrawAdvantage: "fresh"},
		"draw_advantage: split: want stored with advantage gae":          {DrawAdvantage: AdvantageSplit, Advantage: "gae"},
		"draw_advantage: regroup: want stored with unit step":            {DrawAdvantage: AdvantageRegrouped, Unit: UnitStep},
		"draw_advantage: baseline: want another with unit group ":        {DrawAdvantage: AdvantageBaseline, Sampler: FIFO},
		"draw_advantage: baseline: want another with unit group a": {DrawAdvantage: AdvantageBaseline, Unit: UnitGroup,
			GroupSize: 2},
	} {
		if _, err := New(o); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
