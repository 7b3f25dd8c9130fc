package study

import (
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/rollout/option"
)

// plan is all runs of a study.
type plan struct {
	arms []Arm
	jobs []*job              // in the order of execution: all arms of a seed before the next seed
	of   map[string][]string // the digests of an arm's runs, by seed
}

// job is one run. Arms with the same configuration share it.
type job struct {
	arm    string // the first arm that has this run
	seed   uint64
	digest string
	config run.Config
}

func (j *job) String() string { return fmt.Sprintf("arm %s, seed %d", j.arm, j.seed) }

// newPlan lists the runs of arms, each once. Its error names every arm that cannot be run.
func newPlan(name string, arms []Arm, seeds []uint64) (*plan, error) {
	p := &plan{arms: arms, of: make(map[string][]string)}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("study %s: %w", name, err)
	}
	listed := make(map[string]bool)
	for _, seed := range seeds {
		for _, a := range p.arms {
			j, err := newJob(a, seed)
			if err != nil {
				return nil, fmt.Errorf("study %s: arm %s: %w", name, a.Name, err)
			}
			p.of[a.Name] = append(p.of[a.Name], j.digest)
			if !listed[j.digest] {
				listed[j.digest] = true
				p.jobs = append(p.jobs, j)
			}
		}
	}
	return p, nil
}

// upTo returns n seeds after one.
func upTo(n int, after uint64) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = after + uint64(i) + 1
	}
	return list
}

func (p *plan) validate() error {
	if len(p.arms) == 0 {
		return errors.New("arms: none: want one or more")
	}
	var problems option.Problems
	names := make(map[string]bool)
	for _, a := range p.arms {
		if a.Name == "" || names[a.Name] {
			problems.Add(fmt.Errorf("arm %q: want a name that no other arm has", a.Name))
		}
		names[a.Name] = true
		a.Config.Seed = 1
		if err := a.Config.Validate(); err != nil {
			problems.Add(fmt.Errorf("arm %s: %w", a.Name, err))
		}
	}
	return problems.Err()
}

// newJob returns the run of an arm and seed. Its name is its digest, because several arms may share it. Answers to the
// held-out problems are sampled, as in training; pilots are tried on other problems than the runs that judge.
func newJob(a Arm, seed uint64) (*job, error) {
	c := a.Config
	c.Seed, c.Warmup.Seed = seed, run.BaseSeed(baseOf(seed))
	c.Evaluate.Temperature, c.Evaluate.Problems = c.Generate.Temperature, "judge"
	if seed > pilotSeed {
		c.Evaluate.Problems = "choose"
	}
	digest, err := c.Digest()
	if err != nil {
		return nil, err
	}
	c.Name = digest
	return &job{arm: a.Name, seed: seed, digest: digest, config: c}, nil
}

// found lists the runs of a plan by arm and seed.
func (p *plan) found(all map[string]endedRun, o Options) *Found {
	f := &Found{Options: o}
	for _, a := range p.arms {
		runs := Runs{Arm: a}
		for _, digest := range p.of[a.Name] {
			k := all[digest]
			runs.Runs = append(runs.Runs, k.run)
			if k.failed != "" {
				runs.Failed = append(runs.Failed, fmt.Sprintf("seed %d: %s", k.run.Seed, k.failed))
			}
		}
		f.Arms = append(f.Arms, runs)
	}
	return f
}
