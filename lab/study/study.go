// Package study runs named experiments: claims of a source, tried on many configurations and seeds of real runs.
//
// A [Study] has arms, which are configurations by name, and claims about them. [All] lists the studies. A [Runner]
// carries out the runs of all arms and seeds, several at once, and hands what they measured, [Found], to the study,
// whose claims one judge decides. The result is a results.Study with one page of findings, figures and tables.
//
// All studies of a folder share a pool of runs, each under a digest of its configuration. A finished run is never
// repeated, whichever study asks for it; an interrupted run resumes from its checkpoint.
//
// The statistics are those of docs/METHODS.md, Evaluation. The runs of a study begin with three base models, in turn by
// seed, and arms are compared seed by seed: what is found holds for these base models. A run that fails or diverges
// stays in the study and counts as a loss.
package study

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
)

// Study is a named experiment.
type Study struct {
	Name   string // as the command takes it: buffer-size
	Title  string
	Source string   // [ER] fig. 3
	Lead   []string // the question and the method, at the top of the page
	Blocks int      // of three base models each, over which the seeds are divided; 0: one

	PilotRuns int // of each arm of a pilot, on a base model each; 0: three

	// Pilots returns what is chosen before the study's runs; nil: nothing. Their names and stages do not depend on what is
	// chosen.
	Pilots func(Options) []Pilot
	// Arms returns the configurations to run, with unique names. The runner adds the seeds.
	Arms func(Options) []Arm
	// Judge returns what the runs show.
	Judge func(*Found) (Judgement, error)
}

// Options is the size of a study.
type Options struct {
	Seeds int  // of every arm, from 1
	Quick bool // a rehearsal: every arm ends within seconds, and the study makes no claim

	chosen map[string]int // by pilot: the number of the arm; nil: not yet, the first stands for it
}

// Pilot is a choice among arms, made by runs that judge nothing: they have seeds and base models of their own. The arm
// with the highest mean of the measure is chosen.
type Pilot struct {
	Name  string // what is chosen: learning rate without replay
	Arms  []Arm
	of    string // the measure, in words
	by    measure
	stage int // 0, or one more than that of the pilots whose choices the arms build on
}

// choice returns the arm that a pilot chose.
func (o Options) choice(p Pilot) Arm { return p.Arms[o.chosen[p.Name]] }

// Arm is a configuration of a study.
type Arm struct {
	Name   string
	Config run.Config // the runner sets its seed and its name
}

// Found is everything that a study's runs measured.
type Found struct {
	Options
	Arms []Runs // in the study's order

	pilots []Runs // of all stages
}

// Runs is the runs of an arm.
type Runs struct {
	Arm
	Runs   []*results.Run // by ascending seed; a run that failed has no summary, only what it wrote until then
	Failed []string       // "seed 3: why"
}

// Judgement is what a study found.
type Judgement struct {
	Findings []results.Finding
	Sections []results.Section

	claims []claim // of the findings
}

// A block of base models has three, and the seeds of a hundred. Runs are compared on the same base model. The seeds of
// pilots count from beyond those of studies, and so do their base models.
const (
	bases     = 3
	blockSize = 100
	pilotSeed = 1000
)

// baseOf returns the seed of the base model that a run begins with. The runs of seeds 1 to 3n have n runs on each.
func baseOf(seed uint64) uint64 {
	block := (seed - 1) / blockSize * blockSize
	return block + (seed-1-block)%bases + 1
}

// seeds returns those of n runs of each arm, divided over the study's blocks.
func (s Study) seeds(n int) (list []uint64) {
	blocks := max(s.Blocks, 1)
	for b := range blocks {
		list = append(list, upTo((n+blocks-1-b)/blocks, uint64(b*blockSize))...)
	}
	return list
}

// Of returns the runs of an arm, which must be one of the study's.
func (f *Found) Of(name string) Runs { return armOf(f.Arms, name) }

// pilot returns the runs of an arm of a pilot.
func (f *Found) pilot(name string) Runs { return armOf(f.pilots, name) }

func armOf(arms []Runs, name string) Runs {
	i := slices.IndexFunc(arms, func(r Runs) bool { return r.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("study: no arm is called %q", name))
	}
	return arms[i]
}

// of returns the runs of several arms.
func (f *Found) of(arms ...Arm) []Runs {
	list := make([]Runs, len(arms))
	for i, a := range arms {
		list[i] = f.Of(a.Name)
	}
	return list
}

// Seed returns the run of a seed, nil if it wrote nothing.
func (a Runs) Seed(seed uint64) *results.Run {
	i := slices.IndexFunc(a.Runs, func(r *results.Run) bool { return r.Seed == seed })
	if i < 0 {
		return nil
	}
	return a.Runs[i]
}

// seedsOf returns the seeds that any of the arms has, ascending.
func seedsOf(arms ...Runs) []uint64 {
	var list []uint64
	for _, a := range arms {
		for _, r := range a.Runs {
			list = append(list, r.Seed)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// All returns the studies in the order of the documentation.
func All() []Study {
	return append(append(opponents(), imitations()...), publishedMethods(), ingredients(), erSizes(), savings(),
		bufferSize(), pareto(), peaks(), variants(), offPoliciness(), wallTime(), sampling(), mu(), dynamics(), freshness(),
		freshParts(), prompts(), offPolicyGRPO(), corrections(), theory())
}

// ByName returns a study.
func ByName(name string) (Study, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Study{}, fmt.Errorf("study: %s: want one of %s", name, strings.Join(names, ", "))
}

// Folder returns the folder of a study below the folder of all studies.
func Folder(dir, name string) string { return filepath.Join(dir, name) }
