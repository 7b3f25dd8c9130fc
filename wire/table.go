package wire

import (
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
)

// Table defines a table of the service: in a configuration file, in the body of [CreateTable], in a journal.
type Table struct {
	Name           string `json:"name"` // letters, digits, - _ and ., at most 128
	replay.Options `yaml:",inline"`

	Limiter *Limiter         `json:"limiter,omitempty"` // samples per insert [none]
	Gate    *Gate            `json:"gate,omitempty"`    // staleness gate for generators [none]
	Prompts *prompts.Options `json:"prompts,omitempty"` // prompt replay [none]
	// columns of your own, carried untouched: names that begin with x_, and types such as float32 or list<int64> [none]
	Columns []Column `json:"columns,omitempty"`
}

// Limiter holds the draws per inserted rollout near a ratio. With d = inserted x samples_per_insert - drawn, counted
// from when the limiter began, insertions wait while d would exceed samples_per_insert x min_size + error_buffer, and
// samples wait while it would fall below samples_per_insert x min_size - error_buffer (Reverb's SampleToInsertRatio,
// Cassirer et al. 2021). min_size is the table's. Draws that went back are not counted.
type Limiter struct {
	SamplesPerInsert float64 `json:"samples_per_insert" range:"(0, 2147483647]"` // draws per rollout
	// draws that either side may run ahead, at least those of one batch or insertion
	ErrorBuffer float64 `json:"error_buffer" range:"(0, 2e18]"`
}

// Gate bounds how many rollouts may be started, so that they are not too stale when they are drawn: at version v, (v -
// v0 + max_staleness + 1) x rollouts_per_update since the table was created at v0 (AReaL's rule, Fu et al. 2025). A
// queue's room bounds it too.
type Gate struct {
	// new rollouts that one update takes: batch / replay ratio
	RolloutsPerUpdate float64 `json:"rollouts_per_update" range:"(0, 2147483647]"`
	// of the rollouts started, in versions
	MaxStaleness int `json:"max_staleness" range:"[0, 2147483647]"`
	// until a grant that was not used goes back, and others may start its groups
	GrantSeconds float64 `json:"grant_seconds,omitempty" default:"600" range:"[0, 31622400]"`
}

// Column is a column of the user's own.
type Column struct {
	Name string `json:"name"` // begins with x_
	Type string `json:"type"` // see [ExtraFields]: float32, list<int64>, utf8
}
