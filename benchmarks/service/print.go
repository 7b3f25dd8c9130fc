package service

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Write prints the result as a person reads it.
func (r *Result) Write(w io.Writer) error {
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

// page keeps the first error of writing.
type page struct {
	w   io.Writer
	err error
}

func (p *page) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// table prints lines of columns, the first to the left and the others to the right.
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
	p.say("%s %s x %s tokens, %.4g MB, over %s", t.What, whole(float64(t.Batch)), whole(float64(t.Tokens)), float64(t.Bytes)/1e6, t.Over)
	lines := [][]string{{"", "GB/s", "rollouts/s", "p50 us", "p99 us", "of floor", "p50 x floor"}}
	for _, t := range list {
		lines = append(lines, []string{t.Who, fmt.Sprintf("%.2f", t.GBs), whole(t.Rollouts), whole(t.P50), whole(t.P99),
			share(t.OfFloor), fmt.Sprintf("%.2f", t.P50Ratio)})
	}
	p.table(lines)
}

func (p *page) durable(r *Result) {
	if len(r.Durable) == 0 {
		return
	}
	p.say("insertions acknowledged after fdatasync (sync: always), many clients at once")
	lines := [][]string{{"", "GB/s", "rollouts/s", "p50 us", "p99 us", "of new files", "of rewriting"}}
	for _, d := range r.Durable {
		lines = append(lines, []string{
			fmt.Sprintf("%d clients, %d x %s tokens", d.Clients, d.Group, whole(float64(d.Tokens))),
			fmt.Sprintf("%.2f", d.GBs), whole(d.Rollouts), whole(d.P50), whole(d.P99), share(d.OfDisk), share(d.OfRewriting)})
	}
	for _, d := range r.Disk {
		name := "the disk, new files"
		if d.Rewrite {
			name = "the disk, rewriting"
		}
		lines = append(lines, []string{fmt.Sprintf("%s, blocks of %d MiB", name, d.Block>>20),
			fmt.Sprintf("%.2f", d.GBs), "", whole(d.P50), "", "", ""})
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
		return share(v)
	case "times":
		return fmt.Sprintf("%.2f", v)
	case "rollouts/s":
		return whole(v) + "/s"
	}
	return fmt.Sprintf("%.2f %s", v, unit)
}

func share(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// whole is a number rounded, with commas between thousands.
func whole(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
