package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Table defines a table of the service: in a configuration file, in the body of [CreateTable], in a journal. The names are
// those of replay.Options; zero is their default.
type Table struct {
	Name string `json:"name" yaml:"name"` // letters, digits, - _ and ., at most 128

	Capacity          int     `json:"capacity,omitempty" yaml:"capacity"`             // rollouts
	CapacityBytes     int64   `json:"capacity_bytes,omitempty" yaml:"capacity_bytes"` // of payload
	Retention         string  `json:"retention,omitempty" yaml:"retention"`
	PositiveFraction  float64 `json:"positive_fraction,omitempty" yaml:"positive_fraction"`
	PositiveThreshold float32 `json:"positive_threshold,omitempty" yaml:"positive_threshold"`
	Sampler           string  `json:"sampler,omitempty" yaml:"sampler"`
	MaxStaleness      int     `json:"max_staleness,omitempty" yaml:"max_staleness"` // versions
	MaxUses           int     `json:"max_uses,omitempty" yaml:"max_uses"`
	MinSize           int     `json:"min_size,omitempty" yaml:"min_size"` // rollouts
	Unit              string  `json:"unit,omitempty" yaml:"unit"`
	GroupSize         int     `json:"group_size,omitempty" yaml:"group_size"` // of every group; 0: groups may differ
	StepReturns       int     `json:"step_returns,omitempty" yaml:"step_returns"`
	StepDiscount      float64 `json:"step_discount,omitempty" yaml:"step_discount"`
	Shards            int     `json:"shards,omitempty" yaml:"shards"`
	Advantage         string  `json:"advantage,omitempty" yaml:"advantage"`
	Vocab             int     `json:"vocab,omitempty" yaml:"vocab"`           // token ids are below; 0: not checked
	MaxTokens         int     `json:"max_tokens,omitempty" yaml:"max_tokens"` // of one rollout, prompt included; 0: not bounded
	Seed              uint64  `json:"seed,omitempty" yaml:"seed"`
	LeaseSeconds      float64 `json:"lease_seconds,omitempty" yaml:"lease_seconds"` // after which a batch goes back unacknowledged

	Priority *Priority `json:"priority,omitempty" yaml:"priority"` // of sampler prioritized
	Limiter  *Limiter  `json:"limiter,omitempty" yaml:"limiter"`
	Gate     *Gate     `json:"gate,omitempty" yaml:"gate"`
	Prompts  *Prompts  `json:"prompts,omitempty" yaml:"prompts"` // prompt replay beside the table; nil: none
	Columns  []Column  `json:"columns,omitempty" yaml:"columns"` // of the user's own, carried untouched
}

// Priority is replay.Prioritization.
type Priority struct {
	Base          string   `json:"base,omitempty" yaml:"base"`
	Epsilon       float64  `json:"epsilon,omitempty" yaml:"epsilon"`
	Exponent      float64  `json:"exponent,omitempty" yaml:"exponent"`   // alpha
	AgeDecay      Versions `json:"age_decay,omitempty" yaml:"age_decay"` // tau; "inf": none
	Decay         string   `json:"decay,omitempty" yaml:"decay"`
	TargetESS     float64  `json:"target_ess,omitempty" yaml:"target_ess"`
	Draws         string   `json:"draws,omitempty" yaml:"draws"` // stratified or independent
	Entry         string   `json:"entry,omitempty" yaml:"entry"`
	Beta          float64  `json:"beta,omitempty" yaml:"beta"` // of the importance weights; 0: all weights are 1
	BetaVersions  int      `json:"beta_versions,omitempty" yaml:"beta_versions"`
	Normalisation string   `json:"normalisation,omitempty" yaml:"normalisation"`
}

// Limiter holds the draws per inserted rollout near a ratio: with d = inserted x SamplesPerInsert - drawn, counted from
// when the limiter began, insertions wait while d would exceed SamplesPerInsert x MinSize + ErrorBuffer, and samples while it would fall
// below SamplesPerInsert x MinSize - ErrorBuffer (Reverb's SampleToInsertRatio, Cassirer et al. 2021). MinSize is the
// table's. Draws that went back are not counted.
type Limiter struct {
	SamplesPerInsert float64 `json:"samples_per_insert" yaml:"samples_per_insert"` // > 0
	ErrorBuffer      float64 `json:"error_buffer" yaml:"error_buffer"`             // draws, at least what one batch or insertion moves d by
}

// Gate says how many rollouts may be started so that they are not too stale once their turn comes: at version v as many as
// (v - v0 + MaxStaleness + 1) x RolloutsPerUpdate since the table was at v0, when it was created (AReaL's rule, Fu et al. 2025). A queue's room bounds it too.
type Gate struct {
	RolloutsPerUpdate float64 `json:"rollouts_per_update" yaml:"rollouts_per_update"` // new rollouts that one update takes: batch / replay ratio
	MaxStaleness      int     `json:"max_staleness" yaml:"max_staleness"`             // versions, >= 0
	GrantSeconds      float64 `json:"grant_seconds,omitempty" yaml:"grant_seconds"`   // after which what was granted and not inserted goes back; 0: 600
}

// Prompts is prompts.Options; zero fields are literal, but for a Fraction of 0, which stands for all defaults.
type Prompts struct {
	Fraction float64 `json:"fraction" yaml:"fraction"`
	Band     float64 `json:"band" yaml:"band"`
	Cooldown int     `json:"cooldown" yaml:"cooldown"`
	MaxReuse int     `json:"max_reuse" yaml:"max_reuse"`
}

// Column is a column of the user's own.
type Column struct {
	Name string `json:"name" yaml:"name"` // begins with x_
	Type string `json:"type" yaml:"type"` // see [ExtraFields]: float32, list<int64>, utf8
}

// Versions is a number of versions that may be infinite: in JSON and YAML a number or "inf".
type Versions float64

// MarshalJSON writes a number, or "inf".
func (v Versions) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(v), 1) {
		return []byte(`"inf"`), nil
	}
	return json.Marshal(float64(v))
}

// UnmarshalJSON reads a number or "inf".
func (v *Versions) UnmarshalJSON(b []byte) error { return v.read(string(b)) }

// UnmarshalYAML reads a number or inf.
func (v *Versions) UnmarshalYAML(b []byte) error { return v.read(strings.TrimSpace(string(b))) }

func (v *Versions) read(text string) error {
	if text == `"inf"` || text == "inf" || text == ".inf" {
		*v = Versions(math.Inf(1))
		return nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%s is no number of versions: give a number, or inf for no decay", text)
	}
	*v = Versions(x)
	return nil
}
