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

func writeFinding(w *strings.Builder, s *results.Study) {
	fmt.Fprintf(w, "\n## %s\n\n%s %s of %s. The times of all\n"+
		"runs, pilots included, add up to %s on %s; %d ran at once.\n", s.Name,
		s.Sheet.Title, words.Plural(s.Seeds*len(s.Arms), "run"), words.Plural(len(s.Arms), "arm"),
		duration(time.Duration(s.Seconds*float64(time.Second))), machineFact(s.Machine), s.AtOnce)
	for _, check := range []bool{false, true} {
		begun := false
		for _, f := range s.Sheet.Findings {
			if f.Check != check {
				continue
			}
			if !begun {
				fmt.Fprintf(w, "\n| source | %s | found | verdict |\n|---|---|---|---|\n",
					map[bool]string{true: "check, by arithmetic or the clock", false: "claim"}[check])
				begun = true
			}
			found := f.Found
			if f.Verdict == results.Inconclusive || f.Verdict == results.Untested {
				found = join(found, f.Why)
			}
			cell := strings.NewReplacer("|", `\|`)
			fmt.Fprintf(w, "| %s | %s | %s | **%s** |\n", f.Source, cell.Replace(f.Claim), cell.Replace(found), f.Verdict)
		}
	}
}
