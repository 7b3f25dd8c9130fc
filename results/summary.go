package results

import (
	"runtime/debug"
	"strings"
)

// Format is the version of summary.json and compare.json that this package reads and writes.
const Format = 1

// Summary is summary.json: a run in a page.
type Summary struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	Arm    string `json:"arm,omitempty"` // "baseline" or "replay" in a comparison
	Task   string `json:"task"`
	Seed   uint64 `json:"seed"`
	Ended  string `json:"ended"` // why: "budget" or "interrupted"

	Updates    int   `json:"updates"`
	Version    int   `json:"version"`
	Parameters int64 `json:"parameters"` // of the policy

	Workers   int `json:"workers"`    // W, inference GPUs
	Trainers  int `json:"trainers"`   // T
	BatchSize int `json:"batch_size"` // B, rollouts per update
	Capacity  int `json:"capacity"`   // N, rollouts the table holds

	Clock       float64 `json:"clock"`
	Compute     float64 `json:"compute"`
	ComputeBusy float64 `json:"compute_busy"`
	ComputeAll  float64 `json:"compute_all"`

	RolloutCost         float64 `json:"rollout_cost"`          // mu, configured
	RolloutCostMeasured Number  `json:"rollout_cost_measured"` // (K_train/T)/(K_infer/W)
	ComputeRatio        float64 `json:"compute_ratio"`         // gamma; 1 for the baseline
	NewPerUpdate        Number  `json:"new_per_update"`        // R, measured
	NewPerUpdatePlanned float64 `json:"new_per_update_planned"`
	ReplayRatio         Number  `json:"replay_ratio"`         // measured
	ReplayRatioPlanned  float64 `json:"replay_ratio_planned"` // with unit step, of as many steps to a rollout as there were

	Inserted  uint64            `json:"rollouts_inserted"`
	Used      uint64            `json:"rollouts_used"`
	NeverUsed uint64            `json:"never_used"` // evicted without a use
	Evicted   map[string]uint64 `json:"evicted"`    // by cause

	Pass1First Number `json:"pass1_first"`
	Pass1Last  Number `json:"pass1_last"`
	Pass1Best  Number `json:"pass1_best"`
	Target     Number `json:"target"`    // accuracy fixed before the run
	ToTarget   Reach  `json:"to_target"` // where it was reached
	ToOwnBest  Number `json:"to_98_percent_of_best"`

	RewardFirst Number `json:"reward_first,omitzero"` // mean return of the greedy held-out episodes; of environments only, as what follows
	RewardLast  Number `json:"reward_last,omitzero"`
	Expert      *Bound `json:"expert,omitempty"` // of the task's experts, where it has them
	Random      *Bound `json:"random,omitempty"` // of actions drawn at random, where the task lists them

	Staleness      Histogram `json:"staleness"`       // at use, in versions
	TokenStaleness Histogram `json:"token_staleness"` // at use, mean over the rollout's tokens, rounded down
	Uses           Histogram `json:"uses"`            // at eviction
	UsesPresent    Histogram `json:"uses_present"`    // of the rollouts in the table at the end
	SinceLastUse   Histogram `json:"since_last_use"`  // in updates; first uses are not counted

	Sampling     *Sampling     `json:"sampling,omitempty"`      // of tables that replay
	ESSByAge     []AgeESS      `json:"ess_by_age,omitempty"`    // ascending in age
	PromptReplay *PromptReplay `json:"prompt_replay,omitempty"` // where prompts are replayed

	WorkerTimes  []GPU `json:"worker_times"`
	TrainerTimes []GPU `json:"trainer_times"`

	Build Build `json:"build"`
}

// Histogram counts integers as [value, count] pairs in ascending order of value.
type Histogram [][2]uint64

// Count returns how many values were counted.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, b := range h {
		n += b[1]
	}
	return n
}

// Mean returns the mean of the values counted, nothing if there are none.
func (h Histogram) Mean() Number {
	var sum, n float64
	for _, b := range h {
		sum += float64(b[0]) * float64(b[1])
		n += float64(b[1])
	}
	return Num(sum / n)
}

// Max returns the largest value counted, 0 if there are none.
func (h Histogram) Max() uint64 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1][0]
}

// GPU is what one worker or trainer did with its (virtual) time.
type GPU struct {
	Busy    float64 `json:"busy"`
	Stalled float64 `json:"stalled"` // a worker by a full table, a trainer by one with too little
	Idle    float64 `json:"idle"`    // in synchronous mode: in the others' turn
}

// Build says which program wrote a folder.
type Build struct {
	Go       string `json:"go"`
	Module   string `json:"module,omitempty"` // version of this module
	GoMLX    string `json:"gomlx,omitempty"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a changed working tree
}

// ThisBuild returns what the running program knows of its own build.
func ThisBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{}
	}
	b := Build{Go: info.GoVersion, Module: info.Main.Version}
	for _, d := range info.Deps {
		if strings.HasSuffix(d.Path, "/gomlx/gomlx") {
			b.GoMLX = d.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
