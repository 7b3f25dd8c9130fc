package design

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/reprise-rl/reprise/internal/words"
)

// Text returns the topology as text: what was given, what was measured, and what is computed from both.
func (t *Topology) Text() string {
	var w strings.Builder
	lines := func(heading string, lines []Line) {
		fmt.Fprintf(&w, "%s\n", heading)
		for _, l := range lines {
			w.WriteString(words.Wrap(fmt.Sprintf("  %-22s ", l.Name), l.Text))
		}
	}
	lines("given", t.given())
	var figures []Line
	for _, f := range t.Measured {
		value := words.Amount(f.Value)
		if f.Unit == "B/s" {
			value = words.Bytes(f.Value) + "/s"
		}
		figures = append(figures, named(f.Name, "%s; %s (%s)", value, f.Command, f.Where))
	}
	lines("\nmeasured, with one service on two cores that it shares with its clients", figures)
	lines("\ncomputed", t.computed())
	w.WriteString("\n")
	t.writeResources(&w)
	lines("\ntopology", t.topology())
	lines("\nwhen a service is lost", t.loss())
	if len(t.Warnings) > 0 {
		w.WriteString("\nwarnings\n")
		for _, warning := range t.Warnings {
			w.WriteString(words.Wrap("  - ", warning))
		}
	}
	return w.String()
}

func (t *Topology) given() []Line {
	d, m := t.Demand, t.Machine
	var columns []string
	for _, c := range d.Columns {
		bytes, per := c.PerToken, "token"
		if c.PerRollout > 0 {
			bytes, per = c.PerRollout, "rollout"
		}
		columns = append(columns, fmt.Sprintf("%s, %s a %s%s", c.Name, words.Bytes(bytes), per,
			onlyIf(c.OffLog && d.Replicas > 1, ", off the log")))
	}
	if columns == nil {
		columns = []string{"none beyond tokens, mask, log-probs and versions"}
	}
	return []Line{
		named("generators", "%s, each %s tokens/s", words.Plural(d.GPUs, "GPU"), words.Amount(d.TokensPerSecond)),
		named("rollouts", "%s + %s tokens, in groups of %d", words.Thousands(d.Prompt), words.Thousands(d.Completion),
			d.Group),
		named("columns", "%s", strings.Join(columns, "; ")),
		named("updates", "batches of %s; each rollout is drawn %s on average", words.Thousands(d.Batch), times(d.Uses)),
		named("a node", "%s of memory, %s of it for tables; a link of %s Gb/s each way; %s/s to disk",
			words.Bytes(m.Memory), words.Bytes(m.Tables), words.Amount(m.Link*8/1e9), words.Bytes(m.Disk)),
		named("planned with", "%s of links, disks and processors; all of the memory for tables",
			words.Percent(planned, 0)),
	}
}

func times(n float64) string {
	if n == 1 {
		return "once"
	}
	return words.Amount(n) + " times"
}

func (t *Topology) computed() []Line {
	copied := "nothing: one copy of the log"
	if n := t.Demand.Replicas - 1; n > 0 {
		copied = fmt.Sprintf("%s/s to the other %d copies of the log", words.Bytes(t.Copied), n)
	}
	return []Line{
		named("new rollouts", "%s/s of %s (%d bytes a token, columns, and %d)", words.Amount(t.RolloutsPerSecond),
			words.Bytes(t.RolloutBytes), tokenBytes, scalarBytes),
		named("inserted", "%s/s", words.Bytes(t.In)),
		named("drawn", "%s/s, all columns", words.Bytes(t.Out)),
		named("copied", "%s", copied),
		named("an update", "every %s s, with %s new rollouts", words.Amount(t.UpdateSeconds), words.Whole(t.NewPerUpdate)),
		named("the table", "%s rollouts, the last %s updates' worth; %s in memory with %d bytes of overhead each (by "+
			"what was measured a process grows by %s), %s on disks", words.Thousands(t.Demand.Capacity),
			words.Amount(float64(t.Demand.Capacity)/t.NewPerUpdate), words.Bytes(t.TableBytes), tableOverhead,
			words.Bytes(processOverPayload*t.RolloutBytes*float64(t.Demand.Capacity)), words.Bytes(t.StoredBytes)),
	}
}

func (t *Topology) writeResources(w *strings.Builder) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "  \tin all\ta service%s\tmay use\tservices needed\t\n", onlyIf(t.spare() > 0, ", one lost"))
	for _, r := range t.Resources {
		fmt.Fprintf(table, "  %-9s\t%s\t%s\t%s\t%s\t\n", r.Name, r.amount(r.Total), r.amount(r.Each), r.amount(r.Limit),
			r.needs())
	}
	table.Flush()
	w.WriteString(text.String())
}

func (t *Topology) topology() []Line {
	d := t.Demand
	journal := "one copy: a journal on the node's own disk"
	if d.Replicas > 1 {
		journal = fmt.Sprintf("%d copies of each part's log, on different nodes", d.Replicas)
	}
	least := (d.Batch + t.PartCapacity - 1) / max(1, t.PartCapacity)
	own := "scope own or global: one part has room for a batch"
	if least > 1 {
		own = fmt.Sprintf("scope own from %s on, whose share of a batch one part has room for; with fewer, global",
			words.Plural(least, "trainer"))
	}
	return []Line{
		named("services", "%d, each on a node of its own", t.Services),
		named("parts", "%d of %s rollouts", t.Parts, words.Thousands(t.PartCapacity)),
		named("replicas", "%s", journal),
		named("draws", "%s", own),
	}
}

func (t *Topology) loss() []Line {
	l, left := t.Lost, t.Services-1
	if t.spare() == 0 {
		return []Line{
			named("lost", "%s rollouts, %s of the table, until the service is back with its disk; for good without it",
				words.Thousands(l.Rollouts), words.Percent(float64(l.Rollouts)/float64(t.Demand.Capacity), 0)),
			named("to make them anew", "%s s of the fleet, %s GPU hours", words.Amount(l.RegenerateAfter),
				words.Amount(l.GPUHours)),
			named("to read them back", "%s s after its process is started again", words.Amount(l.ReadBack)),
			named("meanwhile", "%s", meanwhile(left)),
		}
	}
	lines := []Line{
		named("lost", "no rollout that was acknowledged"),
		named("to read its parts back", "%s s, by %s, after its lease has run out", words.Amount(l.ReadBack),
			words.Plural(t.partsEach(t.Services), "other service")),
		named("meanwhile", "%s", meanwhile(left)),
	}
	if l.OffLogRollouts > 0 {
		lines = append(lines, named("without columns", "%s rollouts, until newer ones have replaced them",
			words.Thousands(l.OffLogRollouts)))
	}
	return lines
}

// meanwhile says who goes on with the given number of services left.
func meanwhile(left int) string {
	if left == 0 {
		return "generators and trainers wait"
	}
	return fmt.Sprintf("new groups go to the other %d, and trainers draw from them", left)
}
