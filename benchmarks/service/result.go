package service

import "time"

// Sample and Insert are what a transfer does; the floor and Redis fetch for the one, store for the other.
const (
	Sample = "sample"
	Insert = "insert"
)

// Names of contenders.
const (
	rawSocket  = "raw socket"
	goClient   = "service"
	noPrefetch = "service, no prefetch"
	durable    = "service, durable"
	python     = "service, Python"

	pythonPadded = "service, Python, padded"
)

// Result is everything that a measurement came to.
type Result struct {
	When      time.Time  `json:"when"`
	Machine   Machine    `json:"machine"`
	Rounds    int        `json:"rounds"`
	Seconds   float64    `json:"seconds"` // of each contender, over all rounds
	Redis     string     `json:"redis,omitempty"`
	Transfers []Transfer `json:"transfers"`
	Durable   []Durable  `json:"durable,omitempty"`
	Disk      []Disk     `json:"disk,omitempty"`
	Targets   []Target   `json:"targets"`
	LeftOut   []string   `json:"left_out,omitempty"` // what was not measured, and why
}

// Transfer is one contender's figures for blocks of one size over one transport.
type Transfer struct {
	What     string  `json:"what"` // sample or insert
	Who      string  `json:"who"`
	Over     string  `json:"over"`   // tcp or unix
	Tokens   int     `json:"tokens"` // of each rollout
	Batch    int     `json:"batch"`  // rollouts
	Bytes    int64   `json:"bytes"`  // of payload, in a batch
	GBs      float64 `json:"gb_per_s"`
	Rollouts float64 `json:"rollouts_per_s"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	OfFloor  float64 `json:"of_floor"`    // bytes per second, of the raw socket's in the same round
	P50Ratio float64 `json:"p50_x_floor"` // p50, in that of the raw socket in the same round
}

// Durable is what many clients that insert into a durable table at once came to.
type Durable struct {
	Tokens   int     `json:"tokens"`
	Group    int     `json:"group"` // rollouts in an insertion
	Clients  int     `json:"clients"`
	Bytes    int64   `json:"bytes"` // of an insertion's payload
	Rollouts float64 `json:"rollouts_per_s"`
	GBs      float64 `json:"gb_per_s"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	OfDisk   float64 `json:"of_disk"` // bytes per second, of the best of the disk's with new files in the same round

	OfRewriting float64 `json:"of_rewriting"` // the same, of the best with files written over
}

// Disk is the disk's own sequential bandwidth with blocks of one size.
type Disk struct {
	Rewrite bool    `json:"rewrite,omitempty"` // over blocks that the file had already
	Block   int     `json:"block_bytes"`
	GBs     float64 `json:"gb_per_s"`
	P50     float64 `json:"p50_us"`
}

// Target is something that the service is held to.
type Target struct {
	Name string  `json:"name"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	Most bool    `json:"at_most,omitempty"` // want is an upper bound
	Unit string  `json:"unit,omitempty"`
	Met  bool    `json:"met"`
}

func newTarget(name string, got, want float64, unit string) Target {
	return Target{Name: name, Want: want, Got: got, Unit: unit, Met: got >= want}
}

func newBound(name string, got, want float64, unit string) Target {
	return Target{Name: name, Want: want, Got: got, Most: true, Unit: unit, Met: got <= want}
}

// find returns a transfer's figures, and whether it was measured.
func (r *Result) find(what, who, over string, tokens int) (Transfer, bool) {
	for _, t := range r.Transfers {
		if t.What == what && t.Who == who && t.Over == over && t.Tokens == tokens {
			return t, true
		}
	}
	return Transfer{}, false
}

// judge fills in the targets that can be told from what was measured. Those of transfers are over TCP.
func (r *Result) judge() {
	r.Targets = nil
	if t, ok := r.find(Sample, goClient, TCP, 4096); ok {
		r.Targets = append(r.Targets, newTarget("sample, 4,096 tokens, of the raw socket", t.OfFloor, 0.5, "share"))
	}
	if t, ok := r.find(Insert, goClient, TCP, 4096); ok {
		r.Targets = append(r.Targets, newTarget("insert, 4,096 tokens, of the raw socket", t.OfFloor, 0.4, "share"))
	}
	if t, ok := r.find(Sample, noPrefetch, TCP, 256); ok {
		r.Targets = append(r.Targets, newBound("sample without prefetch, 256 tokens, p50 in that of the raw socket", t.P50Ratio, 3, "times"))
	}
	for _, what := range []string{Sample, Insert} {
		if t, ok := r.find(what, python, TCP, 4096); ok {
			r.Targets = append(r.Targets, newTarget(what+" by the Python client, 4,096 tokens", t.GBs, 0.5, "GB/s"))
		}
	}
	for _, d := range r.Durable {
		switch d.Tokens {
		case durableShort:
			r.Targets = append(r.Targets, newTarget("durable insertions, 1,000 tokens", d.Rollouts, 20000, "rollouts/s"))
		case durableLong:
			r.Targets = append(r.Targets, newTarget("durable insertions, 32,768 tokens, of the disk", d.OfDisk, 0.6, "share"))
		}
	}
}
