package study

import (
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/run"
)

// plan is all runs of a study.
type plan struct {
	arms []Arm
	jobs []*job              // in the order in which they are carried out: all arms of a seed before the next seed
	of   map[string][]string // the digests of an arm's runs, by seed
}

// job is one run, whichever arms it belongs to.
type job struct {
	arm    string // the first it belongs to
	seed   uint64
	digest string
	config run.Config
}

func (j *job) String() string { return fmt.Sprintf("arm %s, seed %d", j.arm, j.seed) }

// newPlan makes the arms of a study and lists their runs, each once. It reports every arm that cannot be run.
func newPlan(s Study, o Options) (*plan, error) {
	if o.Seeds < 1 {
		return nil, fmt.Errorf("--seeds: %d: want 1 or more", o.Seeds)
	}
	p := &plan{arms: s.Arms(o), of: make(map[string][]string)}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("study %s: %w", s.Name, err)
	}
	listed := make(map[string]bool)
	for seed := uint64(1); seed <= uint64(o.Seeds); seed++ {
		for _, a := range p.arms {
			j, err := newJob(a, seed)
			if err != nil {
				return nil, fmt.Errorf("study %s: arm %s: %w", s.Name, a.Name, err)
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

// validate holds every arm to what can be run.
func (p *plan) validate() error {
	if len(p.arms) == 0 {
		return errors.New("arms: none: want one or more")
	}
	var errs []error
	names := make(map[string]bool)
	for _, a := range p.arms {
		if a.Name == "" || names[a.Name] {
			errs = append(errs, fmt.Errorf("arm %q: want a name that no other arm has", a.Name))
		}
		names[a.Name] = true
		a.Config.Seed = 1
		if err := a.Config.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("arm %s: %w", a.Name, err))
		}
	}
	return errors.Join(errs...)
}

// newJob returns the run of an arm and seed. It is named after its digest: no arm has it for its own.
func newJob(a Arm, seed uint64) (*job, error) {
	c := a.Config
	c.Seed = seed
	digest, err := c.Digest()
	if err != nil {
		return nil, err
	}
	c.Name = digest
	return &job{arm: a.Name, seed: seed, digest: digest, config: c}, nil
}
