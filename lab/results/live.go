package results

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/reprise-rl/reprise/internal/words"
)

// LiveFile is in the folder of a run on the real clock, from its beginning on: a [Live], written anew every second.
const LiveFile = "live.json"

// Live is what a run on the real clock measured of its engines and its trainer, and what was predicted.
type Live struct {
	Format   int     `json:"format"`
	Seconds  float64 `json:"seconds"` // of the real clock, from the first rollout on
	Engines  int     `json:"engines"`
	Rollouts int64   `json:"rollouts"` // inserted
	Used     uint64  `json:"used"`     // rollouts trained on, every use counted

	EngineSeconds  float64 `json:"engine_seconds"`  // in which an engine had completions to make, over all engines
	TrainerSeconds float64 `json:"trainer_seconds"` // in updates
	GateSeconds    float64 `json:"gate_seconds"`    // in which the gate kept workers from starting

	// RolloutCost is mu: the seconds of an engine per rollout over those of the trainer per rollout it trained on.
	RolloutCost Number `json:"rollout_cost"`

	Measured  Pace         `json:"measured"`
	Predicted []Prediction `json:"predicted"` // by the schedule without a model
	Restarts  Restarts     `json:"restarts"`  // of processes that ended and were not asked to
	Failures  int64        `json:"failures"`  // requests to engines that were repeated
	TooOld    int64        `json:"too_old"`   // rollouts that left the table at once
}

// Restarts counts the starts of each process after its first.
type Restarts map[string]int

// Names returns the processes in order.
func (r Restarts) Names() []string { return slices.Sorted(maps.Keys(r)) }

// Pace is how engines and trainer keep up with each other.
type Pace struct {
	EnginesStalled Number `json:"engines_stalled"` // share of the time in which an engine had nothing to do
	TrainerStalled Number `json:"trainer_stalled"` // share of the time in which the trainer waited for rollouts
	ReplayRatio    Number `json:"replay_ratio"`
	Staleness      Number `json:"staleness"` // mean of the draws, in versions
	MostStale      Number `json:"most_stale"`
}

// Prediction is the pace of the schedule without a model at a rollout cost.
type Prediction struct {
	By          string `json:"by"` // configured or measured
	RolloutCost Number `json:"rollout_cost"`
	Pace
}

// WriteLive writes live.json.
func WriteLive(dir string, l *Live) error {
	l.Format = Format
	return writeJSON(filepath.Join(dir, LiveFile), l)
}

// ReadLive reads live.json. Without one the error wraps fs.ErrNotExist.
func ReadLive(dir string) (*Live, error) {
	l := new(Live)
	return l, readJSON(filepath.Join(dir, LiveFile), l, Format)
}

// Columns and Rows are the pace as a table: measured, and predicted at each rollout cost.
func (l *Live) Columns() []string {
	list := []string{"", "Measured"}
	for _, f := range l.Predicted {
		list = append(list, "Predicted at "+f.By+" μ")
	}
	return list
}

// Rows are the rows under Columns.
func (l *Live) Rows() [][]string {
	share := func(n Number) string { return formatKnown(n, 100, "%.0f%%") }
	plain := func(n Number) string { return formatKnown(n, 1, "%.2f") }
	rows := [][]string{{"Rollout cost μ", plain(l.RolloutCost)}}
	for _, f := range l.Predicted {
		rows[0] = append(rows[0], plain(f.RolloutCost))
	}
	for _, q := range []struct {
		name  string
		value func(Pace) string
	}{
		{"Engines idle", func(p Pace) string { return share(p.EnginesStalled) }},
		{"Trainer waiting", func(p Pace) string { return share(p.TrainerStalled) }},
		{"Replay ratio", func(p Pace) string { return plain(p.ReplayRatio) }},
		{"Mean staleness, versions", func(p Pace) string { return plain(p.Staleness) }},
		{"Greatest staleness", func(p Pace) string { return formatKnown(p.MostStale, 1, "%.0f") }},
	} {
		row := []string{q.name, q.value(l.Measured)}
		for _, f := range l.Predicted {
			row = append(row, q.value(f.Pace))
		}
		rows = append(rows, row)
	}
	return rows
}

// formatKnown formats a number times a factor, "–" if there is none.
func formatKnown(n Number, factor float64, format string) string {
	if !n.Known() {
		return "–"
	}
	return fmt.Sprintf(format, factor*n.Float())
}

// Costs says in a sentence what a rollout costs.
func (l *Live) Costs() string {
	return fmt.Sprintf("An engine takes %.3g s for a rollout, the trainer %.3g s for each that it trains on.",
		l.EngineSeconds/float64(max(l.Rollouts, 1)), l.TrainerSeconds/float64(max(l.Used, 1)))
}

// Troubles says what did not go smoothly, a sentence each.
func (l *Live) Troubles() (list []string) {
	for _, name := range l.Restarts.Names() {
		list = append(list, fmt.Sprintf("%s was started again %s.", name, words.Plural(l.Restarts[name], "time")))
	}
	if l.Failures > 0 {
		list = append(list, fmt.Sprintf("Requests to engines that failed and were repeated: %d.", l.Failures))
	}
	if l.TooOld > 0 {
		list = append(list, fmt.Sprintf("Rollouts older than the table allows, which left at once: %d.", l.TooOld))
	}
	return list
}
