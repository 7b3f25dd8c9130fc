package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
)

// What a transfer does. The floor and Redis fetch for a sample and store for an insert.
const (
	sample = "sample"
	insert = "insert"
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

// Result is all figures of a measurement.
type Result struct {
	When      time.Time  `json:"when"`
	Machine   Machine    `json:"machine"`
	Rounds    int        `json:"rounds"`
	Seconds   float64    `json:"seconds"` // of each contender, over all rounds
	Redis     string     `json:"redis,omitempty"`
	Transfers []Transfer `json:"transfers"`
	Draws     []Draws    `json:"draws,omitempty"`
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
	OfFloor  float64 `json:"of_floor"`    // bandwidth as a share of the raw socket's in the same round
	P50Ratio float64 `json:"p50_x_floor"` // p50 as a multiple of the raw socket's in the same round
}

// Durable is the figures of many clients that insert into a durable table at once.
type Durable struct {
	Tokens   int     `json:"tokens"`
	Group    int     `json:"group"` // rollouts in an insertion
	Clients  int     `json:"clients"`
	Bytes    int64   `json:"bytes"` // of an insertion's payload
	Rollouts float64 `json:"rollouts_per_s"`
	GBs      float64 `json:"gb_per_s"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	OfDisk   float64 `json:"of_disk"` // bandwidth as a share of the disk's best with new files in the same round

	OfRewriting float64 `json:"of_rewriting"` // the same, with rewritten files
}

// Disk is the disk's own sequential bandwidth with one block size.
type Disk struct {
	Rewrite bool    `json:"rewrite,omitempty"` // of a file with allocated blocks
	Block   int     `json:"block_bytes"`
	GBs     float64 `json:"gb_per_s"`
	P50     float64 `json:"p50_us"`
}

// Target is a figure that the service must reach.
type Target struct {
	Name string  `json:"name"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	Most bool    `json:"at_most,omitempty"` // Want is an upper bound
	Unit string  `json:"unit,omitempty"`
	Met  bool    `json:"met"`
}

func newTarget(name string, got, want float64, unit string) Target {
	return Target{Name: name, Want: want, Got: got, Unit: unit, Met: got >= want}
}

func newBound(name string, got, want float64, unit string) Target {
	return Target{Name: name, Want: want, Got: got, Most: true, Unit: unit, Met: got <= want}
}

// find returns a transfer's figures, if it was measured.
func (r *Result) find(what, who, over string, tokens int) (Transfer, bool) {
	for _, t := range r.Transfers {
		if t.What == what && t.Who == who && t.Over == over && t.Tokens == tokens {
			return t, true
		}
	}
	return Transfer{}, false
}

// judge fills in the targets of everything that was measured, those of transfers over TCP.
func (r *Result) judge() {
	r.Targets = nil
	if t, ok := r.find(sample, goClient, tcp, 4096); ok {
		r.Targets = append(r.Targets, newTarget("sample, 4,096 tokens, of the raw socket", t.OfFloor, 0.5, "share"))
	}
	if t, ok := r.find(insert, goClient, tcp, 4096); ok {
		r.Targets = append(r.Targets, newTarget("insert, 4,096 tokens, of the raw socket", t.OfFloor, 0.4, "share"))
	}
	if t, ok := r.find(sample, noPrefetch, tcp, 256); ok {
		r.Targets = append(r.Targets, newBound("sample without prefetch, 256 tokens, p50 in that of the raw socket",
			t.P50Ratio, 3, "times"))
	}
	for _, what := range []string{sample, insert} {
		if t, ok := r.find(what, python, tcp, 4096); ok {
			r.Targets = append(r.Targets, newTarget(what+" by the Python client, 4,096 tokens", t.GBs, 0.5, "GB/s"))
		}
	}
	for _, d := range r.Draws {
		if d.How != plainDraw {
			r.Targets = append(r.Targets, newBound(fmt.Sprintf("%s, draws %s from %s rollouts, p50 in that of plain ones", d.Who,
				d.How, words.Thousands(d.Held)), d.OfPlain, drawsMost, "times"))
		}
	}
	for _, d := range r.Durable {
		switch d.Tokens {
		case durableShort:
			r.Targets = append(r.Targets, newTarget("durable insertions, 1,000 tokens", d.Rollouts, 20000,
				"rollouts/s"))
		case durableLong:
			r.Targets = append(r.Targets, newTarget("durable insertions, 32,768 tokens, of the disk", d.OfDisk, 0.6,
				"share"))
		}
	}
}

// Machine is the machine of a measurement.
type Machine struct {
	Processor string `json:"processor,omitempty"`
	Cores     int    `json:"cores"`
	System    string `json:"system"`
	Go        string `json:"go"`
}

func thisMachine() Machine {
	m := Machine{Processor: processor(), Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(release))
	}
	return m
}

// processor is the processor's name, "" if the system does not say.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// print writes the result as tables.
func (r *Result) print(w io.Writer) error {
	p := &page{w: w}
	p.say("%s, %d cores, %s, %s", orDash(r.Machine.Processor), r.Machine.Cores, r.Machine.System, r.Machine.Go)
	p.say("%s; medians of %d rounds, %.3g s for each line\n", r.When.Format("2006-01-02 15:04"), r.Rounds, r.Seconds)
	for i := 0; i < len(r.Transfers); {
		end := i + 1
		for end < len(r.Transfers) && sameTable(r.Transfers[i], r.Transfers[end]) {
			end++
		}
		p.transfers(r.Transfers[i:end])
		i = end
	}
	p.draws(r.Draws)
	p.durable(r)
	p.targets(r.Targets)
	for _, reason := range r.LeftOut {
		p.say("not measured: %s", reason)
	}
	return p.err
}

func sameTable(a, b Transfer) bool {
	return a.What == b.What && a.Over == b.Over && a.Tokens == b.Tokens
}

// page writes text and keeps the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// table writes columns, the first aligned to the left and the others to the right.
func (p *page) table(lines [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 2, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, l := range lines {
		width = max(width, len(l[0]))
	}
	for _, l := range lines {
		fmt.Fprintf(w, "  %-*s\t%s\t\n", width, l[0], strings.Join(l[1:], "\t"))
	}
	w.Flush()
	p.say("%s", text.String())
}

func (p *page) transfers(list []Transfer) {
	t := list[0]
	p.say("%s %s x %s tokens, %.4g MB, over %s", t.What, words.Whole(float64(t.Batch)), words.Whole(float64(t.Tokens)),
		float64(t.Bytes)/1e6, t.Over)
	lines := [][]string{{"", "GB/s", "rollouts/s", "p50 us", "p99 us", "of floor", "p50 x floor"}}
	for _, t := range list {
		lines = append(lines, []string{t.Who, fmt.Sprintf("%.2f", t.GBs), words.Whole(t.Rollouts), words.Whole(t.P50),
			words.Whole(t.P99),
			words.Percent(t.OfFloor, 0), fmt.Sprintf("%.2f", t.P50Ratio)})
	}
	p.table(lines)
}

func (p *page) draws(list []Draws) {
	for i := 0; i < len(list); {
		d, end := list[i], i
		lines := [][]string{{"", "rollouts/s", "p50 us", "p50 x plain"}}
		for ; end < len(list) && list[end].Held == d.Held; end++ {
			x := list[end]
			lines = append(lines, []string{x.Who + ", " + x.How, words.Whole(x.Rollouts), words.Whole(x.P50),
				fmt.Sprintf("%.2f", x.OfPlain)})
		}
		p.say("draws of %d x %d tokens, from %s rollouts, over tcp", d.Batch, d.Tokens, words.Thousands(d.Held))
		p.table(lines)
		i = end
	}
}

func (p *page) durable(r *Result) {
	if len(r.Durable) == 0 {
		return
	}
	p.say("insertions acknowledged after fdatasync (sync: always), many clients at once")
	lines := [][]string{{"", "GB/s", "rollouts/s", "p50 us", "p99 us", "of new files", "of rewriting"}}
	for _, d := range r.Durable {
		lines = append(lines, []string{
			fmt.Sprintf("%d clients, %d x %s tokens", d.Clients, d.Group, words.Whole(float64(d.Tokens))),
			fmt.Sprintf("%.2f", d.GBs), words.Whole(d.Rollouts), words.Whole(d.P50), words.Whole(d.P99),
			words.Percent(d.OfDisk, 0),
			words.Percent(d.OfRewriting, 0)})
	}
	for _, d := range r.Disk {
		name := "the disk, new files"
		if d.Rewrite {
			name = "the disk, rewriting"
		}
		lines = append(lines, []string{fmt.Sprintf("%s, blocks of %d MiB", name, d.Block>>20),
			fmt.Sprintf("%.2f", d.GBs), "", words.Whole(d.P50), "", "", ""})
	}
	p.table(lines)
}

func (p *page) targets(list []Target) {
	if len(list) == 0 {
		return
	}
	p.say("targets")
	var lines [][]string
	for _, t := range list {
		bound, met := "at least", "met"
		if t.Most {
			bound = "at most"
		}
		if !t.Met {
			met = "MISSED"
		}
		lines = append(lines, []string{t.Name, amount(t.Got, t.Unit), bound + " " + amount(t.Want, t.Unit), met})
	}
	p.table(lines)
}

func amount(v float64, unit string) string {
	switch unit {
	case "share":
		return words.Percent(v, 0)
	case "times":
		return fmt.Sprintf("%.2f", v)
	case "rollouts/s":
		return words.Whole(v) + "/s"
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
