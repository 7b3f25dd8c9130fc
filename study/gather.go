package study

import (
	"fmt"

	"github.com/reprise-rl/reprise/results"
)

// gather reads what a plan's runs came to.
func gather(p *plan, pool pool, o Options) (*Found, error) {
	read := make(map[string]*results.Run)
	failed := make(map[string]string)
	for _, j := range p.jobs {
		dir := pool.folder(j.digest)
		r, err := results.ReadRun(dir)
		if err != nil {
			return nil, err
		}
		why, err := failure(dir)
		if err != nil {
			return nil, err
		}
		if why != "" {
			failed[j.digest] = fmt.Sprintf("seed %d: %s", j.seed, why)
		}
		r.Seed = j.seed
		read[j.digest] = r
	}
	f := &Found{Options: o}
	for _, a := range p.arms {
		runs := Runs{Arm: a}
		for _, digest := range p.of[a.Name] {
			runs.Runs = append(runs.Runs, read[digest])
			if why := failed[digest]; why != "" {
				runs.Failed = append(runs.Failed, why)
			}
		}
		f.Arms = append(f.Arms, runs)
	}
	return f, nil
}
