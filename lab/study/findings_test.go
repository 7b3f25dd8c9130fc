package study

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
)

var writeFindings = flag.Bool("write-findings", false, "write docs/findings.md anew")

// archives returns the archives of the documentation by study, for the studies that have one, in the order of All.
func archives(t *testing.T) (list []*results.Archive) {
	t.Helper()
	for _, s := range All() {
		if a := archiveOf(t, s.Name); a != nil {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		t.Fatal("docs/studies has no archive of a study")
	}
	return list
}

// archiveOf returns the archive of a study; nil if the documentation has none.
func archiveOf(t *testing.T, name string) *results.Archive {
	t.Helper()
	a, err := results.ReadArchive(filepath.Join("..", "..", "docs", "studies", name+".json.gz"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return a
}

// docs/findings.md is what the judges say of the archives.
func TestFindingsAreThoseOfTheArchives(t *testing.T) {
	var text strings.Builder
	text.WriteString("# Findings\n\nGenerated from the archives in docs/studies " +
		"(`go test ./lab/study -run Findings -write-findings`).\n`bin/reprise report docs/studies/NAME.json.gz --out " +
		"NAME.html` judges the runs again and draws their page.\n[studies.md](studies.md) says how studies work and what " +
		"follows from these.\n")
	for _, a := range archives(t) {
		s, err := FromArchive(a)
		if err != nil {
			t.Fatal(err)
		}
		writeFinding(&text, s)
	}
	path := filepath.Join("..", "..", "docs", "findings.md")
	if *writeFindings {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text.String() {
		t.Errorf("docs/findings.md is not what the archives say, %v: write it with go test ./lab/study -run Findings "+
			"-write-findings", err)
	}
}

// writeFinding writes what a study was, its claims with their figures and verdicts, and below them how each was judged.
func writeFinding(w *strings.Builder, s *results.Study) {
	fmt.Fprintf(w, "\n## %s\n\n%s", s.Name, words.WrapAt(120, "", fmt.Sprintf("%s %s of %s. The times of all runs, "+
		"pilots included, add up to %s on %s; %d ran at once.", s.Sheet.Title,
		words.Plural(s.Seeds*len(s.Arms), "run"), words.Plural(len(s.Arms), "arm"),
		duration(time.Duration(s.Seconds*float64(time.Second))), machineFact(s.Machine), s.AtOnce)))
	var judged strings.Builder
	number := 0
	for _, check := range []bool{false, true} {
		begun := false
		for _, f := range s.Sheet.Findings {
			if f.Check != check {
				continue
			}
			if !begun {
				fmt.Fprintf(w, "\n| | %s | figure | verdict |\n|---|---|---|---|\n",
					map[bool]string{true: "check, by arithmetic or the clock", false: "claim"}[check])
				begun = true
			}
			number++
			cell := strings.NewReplacer("|", `\|`)
			fmt.Fprintf(w, "| %d | %s | %s | **%s** |\n", number, cell.Replace(f.Claim), cell.Replace(f.Figure), f.Verdict)
			found := f.Found
			if f.Verdict == results.Inconclusive || f.Verdict == results.Untested {
				found = join(found, f.Why)
			}
			fmt.Fprint(&judged, words.WrapAt(120, fmt.Sprintf("%d. ", number), fmt.Sprintf("*%s.* %s", f.Source, found)))
		}
	}
	fmt.Fprintf(w, "\n<details><summary>Sources, and all figures</summary>\n\n%s\n</details>\n", judged.String())
}

// A reader takes in a table at a glance: the figures of every run, model and rule stand below it.
func TestNoCellOfTheFindingsIsAParagraph(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "findings.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for row := range strings.Lines(string(text)) {
		if !strings.HasPrefix(row, "|") {
			continue
		}
		rows++
		for cell := range strings.SplitSeq(row, " | ") {
			if n := len(strings.Fields(cell)); n > 40 {
				t.Errorf("a cell of %d words, want at most 40: %s", n, cell)
			}
		}
	}
	if rows < 50 {
		t.Errorf("%d rows: want the claims of all studies", rows)
	}
}
