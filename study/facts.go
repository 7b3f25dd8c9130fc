package study

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/results"
)

// sheet writes the study's page.
func (r Runner) sheet(s *results.Study, f *Found, pool pool, j Judgement) results.Sheet {
	sheet := results.Sheet{
		Kind: "Study", Title: r.Study.title(), Lead: slices.Clone(r.Study.Lead), Findings: j.Findings, Sections: j.Sections,
		Facts: r.facts(s, f, pool),
	}
	if s.Quick {
		sheet.Kind = "Rehearsal of a study"
		sheet.Lead = append(sheet.Lead, "This is a rehearsal: its budgets are cut so that every run ends within seconds. It shows that the study works and makes no claim.")
	}
	return sheet
}

// facts are what a reader needs to believe the study, or to repeat it.
func (r Runner) facts(s *results.Study, f *Found, pool pool) []results.Fact {
	runs := f.distinct()
	list := []results.Fact{
		{Name: "Source", Text: r.Study.Source},
		{Name: "Seeds", Text: fmt.Sprintf("%s of each of %s", seeds(s.Seeds), count(len(s.Arms), "arm"))},
		{Name: "Intervals", Text: intervalsFact(s.Seeds)},
		{Name: "Runs", Text: r.runsFact(s, runs, pool)},
		{Name: "Configuration", Text: "config.yaml in each run's folder; the table of arms has where they differ"},
		{Name: "Commit", Text: builds(s, runs)},
		{Name: "Machine", Text: machineFact(s.Machine)},
		{Name: "Time", Text: fmt.Sprintf("ended %s; the last call took %s; summed over the runs, those of earlier calls and other studies included, %s; %d at once",
			s.Ended.Format("2006-01-02 15:04 MST"), span(s.Ended.Sub(s.Began)), span(time.Duration(s.Seconds*float64(time.Second))), s.AtOnce)},
	}
	if r.Command != "" {
		list = append(list, results.Fact{Name: "Command", Text: r.Command})
	}
	return list
}

func seeds(n int) string {
	if n == 1 {
		return "1"
	}
	return fmt.Sprintf("1 to %d", n)
}

// intervalsFact says how much an interval of so many seeds is worth. Up to five, an end of the bootstrap distribution of the median has more
// than the 2.5% that an interval leaves out, so that it reaches from the least value to the greatest; of n values the median of all seeds
// there could be lies outside those with probability 2^(1-n).
func intervalsFact(seeds int) string {
	switch {
	case seeds < claimSeeds:
		return fmt.Sprintf("none: they are given from %d seeds on", claimSeeds)
	case seeds <= 5:
		return fmt.Sprintf("95%% bootstrap intervals of the median; of %d seeds such an interval reaches from the least value to the greatest, and misses the true median 1 time in %d: "+
			"of as many findings without any effect, one is settled by chance", seeds, 1<<(seeds-1))
	default:
		return fmt.Sprintf("95%% bootstrap intervals of the median of %d seeds: of twenty findings without any effect, about one is settled by chance", seeds)
	}
}

// large is the size of a study's runs from which on its page tells it.
const large = 1 << 30

func (r Runner) runsFact(s *results.Study, runs []*results.Run, pool pool) string {
	failed := 0
	var bytes int64
	for _, r := range runs {
		if r.Summary == nil {
			failed++
		}
		bytes += size(r.Dir)
	}
	text := fmt.Sprintf("%s in %s", count(len(runs), "run"), pool.dir)
	if failed > 0 {
		text += fmt.Sprintf(", of which %d ended with an error", failed)
	}
	if bytes >= large {
		text += fmt.Sprintf("; they take %.1f GB, most of it checkpoints", float64(bytes)/1e9)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// builds names the programs that made the runs, and the one that judged them where it is another.
func builds(s *results.Study, runs []*results.Run) string {
	var list []string
	for _, r := range runs {
		if r.Summary == nil {
			continue
		}
		if b := commit(r.Summary.Build); !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	text := "runs by " + strings.Join(list, " and ")
	judge := commit(s.Build)
	switch {
	case len(list) == 0:
		return "judged by " + judge
	case len(list) == 1 && list[0] == judge:
		return judge
	}
	return text + "; judged by " + judge
}

// commit names a build.
func commit(b results.Build) string {
	text := "a build that does not know its commit"
	if b.Revision != "" {
		text = b.Revision
		if len(text) > 12 {
			text = text[:12]
		}
	}
	if b.Modified {
		text += " with changes"
	}
	return text + " (" + b.Go + ")"
}

func machineFact(m results.Machine) string {
	text := fmt.Sprintf("%s, %s", m.System, count(m.Cores, "core"))
	if m.CPU != "" {
		text = m.CPU + ", " + text
	}
	return text
}

// span writes a duration in whole seconds, or in minutes from an hour on.
func span(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}
