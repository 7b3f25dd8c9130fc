package study

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
)

// Study is a named experiment.
type Study struct {
	Name   string // of the command: buffer-size
	Title  string
	Source string   // [ER] fig. 3
	Lead   []string // what is asked and how it is tried, for the top of the page

	// Arms returns the configurations to run; the seeds are the runner's. Names are unique.
	Arms func(Options) []Arm
	// Judge says what the runs show.
	Judge func(*Found) (Judgement, error)
}

// Options is how large a study is made.
type Options struct {
	Seeds int  // of every arm, from 1
	Quick bool // a rehearsal: budgets cut so that every arm ends within seconds; it makes no claim
}

// Arm is a configuration of a study.
type Arm struct {
	Name   string
	Config run.Config // its seed and name are the runner's
}

// Found is what a study's runs came to.
type Found struct {
	Options
	Arms []Runs // in the study's order
}

// Runs is the runs of an arm.
type Runs struct {
	Arm
	Runs   []*results.Run // by ascending seed; those that failed have no summary, and what they wrote until then
	Failed []string       // "seed 3: why"
}

// Judgement is what a study found.
type Judgement struct {
	Findings []results.Finding
	Sections []results.Section
}

// Of returns the runs of an arm. The arm is one of the study.
func (f *Found) Of(name string) Runs {
	i := slices.IndexFunc(f.Arms, func(r Runs) bool { return r.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("study: no arm is called %q", name))
	}
	return f.Arms[i]
}

// Seed returns the run of a seed, nil if it wrote nothing.
func (r Runs) Seed(seed uint64) *results.Run {
	i := slices.IndexFunc(r.Runs, func(x *results.Run) bool { return x.Seed == seed })
	if i < 0 {
		return nil
	}
	return r.Runs[i]
}

// All returns the studies in the order of the documentation.
func All() []Study {
	return []Study{
		savings(), bufferSize(), pareto(), variants(), offPoliciness(), wallTime(), sampling(), mu(), dynamics(),
		freshness(), prompts(), offPolicyGRPO(),
		theory(),
	}
}

// ByName returns a study.
func ByName(name string) (Study, error) {
	all := All()
	i := slices.IndexFunc(all, func(s Study) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		return Study{}, fmt.Errorf("study: %s: want one of %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// Folder returns the folder of a study below the folder of all.
func Folder(dir, name string) string { return filepath.Join(dir, name) }
