package design

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// What a rollout takes. The first two are those of rollout.Rollout.Bytes; the others are docs/service.md, Sizing.
const (
	tokenBytes      = 13  // a token: id 4, mask 1, log-prob 4, version 4
	scalarBytes     = 13  // a rollout: temperature, top_p, reward, truncated
	tableOverhead   = 512 // a rollout in a table
	journalOverhead = 100 // a rollout in a journal
)

// maxParts is the most parts of a table.
const maxParts = 256

// planned is the share of a link, a disk and a measured rate that a topology uses: bursts and repeats have the rest.
const planned = 0.5

// Demand is what a fleet asks of the services that hold its rollouts.
type Demand struct {
	GPUs            int      `json:"gpus"`              // that generate, 1 to 1,000,000
	TokensPerSecond float64  `json:"tokens_per_second"` // of completions, by each GPU
	Prompt          int      `json:"prompt"`            // mean tokens
	Completion      int      `json:"completion"`        // mean tokens, of all turns of an episode
	Group           int      `json:"group"`             // rollouts per prompt
	Batch           int      `json:"batch"`             // rollouts per update
	Uses            float64  `json:"uses"`              // draws of each rollout: the replay ratio
	MaxStaleness    int      `json:"max_staleness"`     // versions for which rollouts are kept; unused with a capacity
	Capacity        int      `json:"capacity"`          // rollouts kept; 0: as many as max_staleness asks for
	Columns         []Column `json:"columns"`           // beyond those of every rollout
	Replicas        int      `json:"replicas"`          // copies of each part's log: 1, 3 or 5
	Services        int      `json:"services"`          // 0: as few as suffice
}

// Column is what rollouts carry beyond tokens, mask, log-probs and versions.
type Column struct {
	Name       string  `json:"name"`
	PerToken   float64 `json:"bytes_per_token"`
	PerRollout float64 `json:"bytes_per_rollout"`
	OffLog     bool    `json:"off_log"` // kept in memory by the part's owner alone: too much to copy
}

// ParseColumn reads advantages, values or ref_logprobs; routed_experts=EXPERTS or sampling_mask=IDS of a token; or
// text=BYTES, images=BYTES, meta=BYTES or x_NAME=BYTES of a rollout. The [option.Error] has the key columns.
func ParseColumn(text string) (Column, error) {
	name, value, given := strings.Cut(text, "=")
	n, err := strconv.ParseFloat(value, 64)
	counted := err == nil && n > 0 && n <= 1e12
	switch {
	case !given && slices.Contains([]string{"advantages", "values", "ref_logprobs"}, name):
		return Column{Name: name, PerToken: 4}, nil
	case counted && name == "routed_experts":
		return Column{Name: name, PerToken: 2 * n, OffLog: true}, nil
	case counted && name == "sampling_mask":
		return Column{Name: name, PerToken: 4 * (1 + n)}, nil
	case counted && (name == "text" || name == "meta" || strings.HasPrefix(name, "x_")):
		return Column{Name: name, PerRollout: n}, nil
	case counted && name == "images":
		return Column{Name: name, PerRollout: n, OffLog: true}, nil
	}
	return Column{}, &option.Error{Key: "columns", Value: text, Want: "advantages, values, ref_logprobs, " +
		"routed_experts=EXPERTS and sampling_mask=IDS of a token, or text=, images=, meta= and x_NAME=BYTES of a rollout"}
}

// Machine is what one service runs on.
type Machine struct {
	Memory float64 `json:"memory"` // bytes
	Tables float64 `json:"tables"` // bytes of it that the service keeps for tables
	Link   float64 `json:"link"`   // bytes a second, each way
	Disk   float64 `json:"disk"`   // bytes a second written
}

// Validate reports every value out of its range.
func (d Demand) Validate() error {
	var p option.Problems
	count := func(key string, v, low, high int) { p.Check(v >= low && v <= high, key, v, "%d to %d", low, high) }
	count("gpus", d.GPUs, 1, 1e6)
	p.Check(d.TokensPerSecond > 0 && d.TokensPerSecond <= 1e6, "tokens_per_second", d.TokensPerSecond,
		"above 0, at most 1e6, for each GPU")
	count("prompt", d.Prompt, 0, 1<<24)
	count("completion", d.Completion, 1, 1<<24)
	count("batch", d.Batch, 1, 1e9)
	count("group", d.Group, 1, max(1, d.Batch))
	p.Check(d.Uses >= 1e-3 && d.Uses <= 1e6, "uses", d.Uses, "0.001 to 1e6 draws of each rollout")
	count("max_staleness", d.MaxStaleness, 0, 1e6)
	p.Check(d.Capacity == 0 || d.Capacity >= d.Batch && d.Capacity <= 1e12, "capacity", d.Capacity,
		"the batch (%d) to 1e12 rollouts", d.Batch)
	p.Check(d.Capacity > 0 || d.Uses <= float64(d.MaxStaleness)+1, "uses", d.Uses,
		"at most max_staleness + 1 (%d): what is kept would be less than a batch", d.MaxStaleness+1)
	p.Check(d.Replicas == 1 || d.Replicas == 3 || d.Replicas == 5, "replicas", d.Replicas,
		"1, 3 or 5: two copies of a log stand still when one is lost")
	p.Check(d.Services == 0 || d.Services >= d.Replicas && d.Services <= maxParts, "services", d.Services,
		"%d (a node for each replica) to %d, or 0 for as few as suffice", d.Replicas, maxParts)
	return p.Err()
}

// Validate reports every value out of its range.
func (m Machine) Validate() error {
	var p option.Problems
	positive := func(key string, v float64) {
		p.Check(v > 0 && v <= 1e18, "node_"+key, v, "above 0, at most 1e18 bytes, or bytes a second")
	}
	positive("memory", m.Memory)
	positive("link", m.Link)
	positive("disk", m.Disk)
	p.Check(m.Tables > 0 && m.Tables <= m.Memory, "node_memory", m.Memory, "more: nothing is left for tables")
	return p.Err()
}

// Topology is the services for a fleet. Rates are in bytes a second, unless they are called rollouts.
type Topology struct {
	Demand  Demand  `json:"demand"` // with the capacity filled in
	Machine Machine `json:"machine"`

	Measured []Figure `json:"measured"` // what the rest is computed from

	RolloutsPerSecond float64 `json:"rollouts_per_second"`
	NewPerUpdate      float64 `json:"new_per_update"`
	UpdateSeconds     float64 `json:"update_seconds"`
	RolloutBytes      float64 `json:"rollout_bytes"`  // of payload
	OffLogBytes       float64 `json:"off_log_bytes"`  // of them, in columns that are not copied
	In                float64 `json:"bytes_in"`       // inserted
	Out               float64 `json:"bytes_out"`      // drawn
	Copied            float64 `json:"bytes_copied"`   // from owners to the other replicas
	TableBytes        float64 `json:"table_bytes"`    // in memory, of the whole table
	StoredBytes       float64 `json:"stored_bytes"`   // on all disks
	Services          int     `json:"total_services"` // each on a node of its own
	Parts             int     `json:"parts"`
	PartCapacity      int     `json:"part_capacity"`

	Resources []Resource `json:"resources"`
	Lost      Loss       `json:"lost_service"`
	Warnings  []string   `json:"warnings"`
}

// Figure is something that was measured, and the command that measures it again.
type Figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Command string  `json:"command"`
	Where   string  `json:"where"`
}

// Resource is what the fleet takes of something that each service has so much of.
type Resource struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Total float64 `json:"total"`
	Each  float64 `json:"each"`  // of a service, while as many are lost as may be
	Limit float64 `json:"limit"` // that a service may use
	Needs int     `json:"needs"` // services that this resource alone asks for; 0: more than there can be
}

// Loss is what it costs to lose one service.
type Loss struct {
	Rollouts        int     `json:"rollouts"`         // gone from the draws: until it is back, if its disk is
	OffLogRollouts  int     `json:"off_log_rollouts"` // that go on without the columns that are off the log
	RegenerateAfter float64 `json:"regenerate_seconds"`
	GPUHours        float64 `json:"gpu_hours"` // of generating as many anew
	ReadBack        float64 `json:"read_back_seconds"`
}

// rates are those of one service on two cores that it shares with its clients, by the tokens of a rollout, in bytes a
// second: benchmarks/service/README.md.
var rates = []struct{ tokens, durable, sample float64 }{{256, 0.13e9, 0.57e9}, {4096, 0.45e9, 1.58e9},
	{32768, 0.67e9, 2.07e9}}

// processOverPayload is what the process of a service grew by, of the payload that filled its table.
const processOverPayload = 1.11

// recovery is the rate at which a service that was killed was back: 21,472 rollouts of 512 tokens in 0.47 s.
const recovery = 21_472 * 512 * tokenBytes / 0.47

// rateAt interpolates a measured rate in the logarithm of the length. Beyond what was measured it stays as it is.
func rateAt(tokens float64, rate func(i int) float64) float64 {
	last := len(rates) - 1
	tokens = min(max(tokens, rates[0].tokens), rates[last].tokens)
	i := 0
	for i < last-1 && tokens > rates[i+1].tokens {
		i++
	}
	at := math.Log(tokens/rates[i].tokens) / math.Log(rates[i+1].tokens/rates[i].tokens)
	return rate(i) + at*(rate(i+1)-rate(i))
}

// Topology returns the fewest services that suffice for a demand, or the load of as many as the demand names. With
// replicas they must suffice while one is lost, too.
func (d Demand) Topology(m Machine) (*Topology, error) {
	var p option.Problems
	p.Add(d.Validate(), m.Validate())
	if err := p.Err(); err != nil {
		return nil, err
	}
	t := &Topology{Demand: d, Machine: m, Warnings: []string{}}
	tokens := float64(d.Prompt + d.Completion)
	t.RolloutBytes = tokenBytes*tokens + scalarBytes
	for _, c := range d.Columns {
		bytes := c.PerToken*tokens + c.PerRollout
		t.RolloutBytes += bytes
		if c.OffLog && d.Replicas > 1 {
			t.OffLogBytes += bytes
		}
	}
	t.RolloutsPerSecond = float64(d.GPUs) * d.TokensPerSecond / float64(d.Completion)
	t.NewPerUpdate = float64(d.Batch) / d.Uses
	t.UpdateSeconds = t.NewPerUpdate / t.RolloutsPerSecond
	if d.Capacity == 0 {
		groups := math.Ceil(t.NewPerUpdate * float64(d.MaxStaleness+1) / float64(d.Group))
		t.Demand.Capacity = int(groups) * d.Group
	}
	kept := float64(t.Demand.Capacity)
	t.In = t.RolloutsPerSecond * t.RolloutBytes
	t.Out = t.In * d.Uses
	logged := t.RolloutBytes - t.OffLogBytes
	t.Copied = t.RolloutsPerSecond * logged * float64(d.Replicas-1)
	t.TableBytes = kept * (t.RolloutBytes + tableOverhead)
	stored := float64(d.Replicas) * logged // a rollout, on all disks
	if d.Replicas == 1 {
		stored += journalOverhead
	}
	t.StoredBytes = kept * stored
	durable := rateAt(tokens, func(i int) float64 { return rates[i].durable })
	sample := rateAt(tokens, func(i int) float64 { return rates[i].sample })
	t.Measured = measured(tokens, durable, sample)
	t.Resources = []Resource{
		{Name: "memory", Unit: "B", Total: t.TableBytes, Limit: m.Tables},
		// A copy is counted as another insertion.
		{Name: "processor", Total: (t.In+t.Copied)/durable + t.Out/sample, Limit: planned},
		{Name: "link, in", Unit: "B/s", Total: t.In + t.Copied, Limit: planned * m.Link},
		{Name: "link, out", Unit: "B/s", Total: t.Out + t.Copied, Limit: planned * m.Link},
		{Name: "disk", Unit: "B/s", Total: t.RolloutsPerSecond * stored, Limit: planned * m.Disk},
	}
	if err := t.place(); err != nil {
		return nil, err
	}
	t.lose(logged)
	t.warn(tokens)
	return t, nil
}

func measured(tokens, durable, sample float64) []Figure {
	const service, peers = "benchmarks/service/README.md", "benchmarks/peers/README.md"
	at := fmt.Sprintf(", interpolated for %s tokens", words.Thousands(int(tokens)))
	return []Figure{
		{"durable insertions", durable, "B/s", "make bench-service", service + at},
		{"draws", sample, "B/s", "make bench-service", service + at},
		{"memory over payload", processOverPayload, "", "make bench-peers", peers + ", 512 tokens"},
		{"recovery after a kill", recovery, "B/s", "make bench-peers", peers + ", sync interval, 512 tokens"},
	}
}

// spare is 1 if a service may be lost without a loss of rollouts, and 0 if not. Loads are then those while one is lost.
func (t *Topology) spare() int { return min(t.Demand.Replicas-1, 1) }

// partsEach returns how many parts one of n services owns. Where the others take over those of a lost one, it has
// several, so that several take over.
func (t *Topology) partsEach(n int) int {
	if t.spare() == 0 {
		return 1
	}
	return max(1, min(n-1, 4, maxParts/n))
}

// share returns the part of the fleet's load that a service of n carries at most, when one is lost if one may be.
func (t *Topology) share(n int) float64 {
	parts := t.partsEach(n)
	return float64(parts+t.spare()) / float64(parts*n)
}

// place decides how many services and parts there are.
func (t *Topology) place() error {
	suffice := func(n int, list ...Resource) bool {
		return !slices.ContainsFunc(list, func(r Resource) bool { return r.Total*t.share(n) > r.Limit })
	}
	fewest := func(list ...Resource) int {
		for n := t.Demand.Replicas; n <= maxParts; n++ {
			if suffice(n, list...) {
				return n
			}
		}
		return 0
	}
	for i := range t.Resources {
		t.Resources[i].Needs = fewest(t.Resources[i])
	}
	t.Services = t.Demand.Services
	if t.Services == 0 {
		if t.Services = fewest(t.Resources...); t.Services == 0 {
			return &option.Error{Key: "gpus", Value: t.Demand.GPUs, Want: fmt.Sprintf("larger nodes, fewer columns or "+
				"less to keep: %d services do not suffice, and a table has no more parts", maxParts)}
		}
	}
	t.Parts = t.Services * t.partsEach(t.Services)
	t.PartCapacity = t.Demand.Capacity / t.Parts
	for i := range t.Resources {
		t.Resources[i].Each = t.Resources[i].Total * t.share(t.Services)
	}
	return nil
}

// lose works out what the loss of a service costs. With copies, as many of the others as it had parts read one back.
func (t *Topology) lose(logged float64) {
	share := (t.Demand.Capacity + t.Services - 1) / t.Services
	readers := 1
	if t.spare() == 0 {
		t.Lost.Rollouts = share
	} else {
		readers = t.partsEach(t.Services)
		if t.OffLogBytes > 0 {
			t.Lost.OffLogRollouts = share
		}
	}
	t.Lost.RegenerateAfter = float64(t.Lost.Rollouts) / t.RolloutsPerSecond
	t.Lost.GPUHours = t.Lost.RegenerateAfter * float64(t.Demand.GPUs) / 3600
	t.Lost.ReadBack = float64(share) * logged / recovery / float64(readers)
}

func (t *Topology) warn(tokens float64) {
	add := func(when bool, text string, args ...any) {
		if when {
			t.Warnings = append(t.Warnings, fmt.Sprintf(text, args...))
		}
	}
	d := t.Demand
	for _, r := range t.Resources {
		add(r.Each > r.Limit, "%s does not suffice: a service takes %s and may use %s%s, so %s are needed, not %d.",
			strings.ToUpper(r.Name[:1])+r.Name[1:], r.amount(r.Each), r.amount(r.Limit),
			onlyIf(t.spare() > 0, " while one is lost"), r.needs(), t.Services)
	}
	for _, c := range d.Columns {
		rate := t.RolloutsPerSecond * (c.PerToken*tokens + c.PerRollout)
		add(c.OffLog && d.Replicas > 1, "%s is %s: it stays off the replicated log, where %d copies would move %s "+
			"more. After a service is lost its rollouts are drawn without it.", c.Name, words.Bytes(rate)+"/s", d.Replicas,
			words.Bytes(rate*float64(d.Replicas-1))+"/s")
	}
	add(tokens < rates[0].tokens || tokens > rates[len(rates)-1].tokens, "Rollouts of %s tokens were not measured: the "+
		"rates are those of the nearest length, %.0f.", words.Thousands(int(tokens)),
		min(max(tokens, rates[0].tokens), rates[len(rates)-1].tokens))
	add(t.PartCapacity < d.Group, "A part has room for %d rollouts, less than a group of %d: keep more of them.",
		t.PartCapacity, d.Group)
	add(d.Replicas > 1 && t.In > 0, "A copy counts as one durable insertion. Measured: three nodes on "+
		"one machine of two cores took 118 MB/s in, one service 354 MB/s (docs/scale.md).")
}

func (r Resource) needs() string {
	if r.Needs == 0 {
		return fmt.Sprintf("over %d", maxParts)
	}
	return strconv.Itoa(r.Needs)
}

// amount writes a quantity of the resource.
func (r Resource) amount(v float64) string {
	switch r.Unit {
	case "B":
		return words.Bytes(v)
	case "B/s":
		return words.Bytes(v) + "/s"
	}
	return words.Percent(v, 1)
}
