package study

import (
	"slices"
	"testing"
)

func TestArmsOfEveryStudyAreValidAndNamedOnce(t *testing.T) {
	valid := make(map[string]bool) // by digest: studies share arms, and validation makes the task
	for _, s := range All() {
		for _, quick := range []bool{false, true} {
			o := Options{Seeds: 12, Quick: quick}
			names := make(map[string]bool)
			arms := s.Arms(o)
			if s.Pilots != nil {
				for _, p := range s.Pilots(o) {
					for _, a := range p.Arms {
						if i := slices.IndexFunc(arms, func(b Arm) bool { return a.Name == b.Name }); i < 0 {
							arms = append(arms, a)
						}
					}
				}
			}
			for _, a := range arms {
				j, err := newJob(a, 1)
				if err == nil && !valid[j.digest] {
					err, valid[j.digest] = a.Config.Validate(), true
				}
				if err != nil {
					t.Errorf("%s (quick %t), %s: %v", s.Name, quick, a.Name, err)
				}
				if names[a.Name] {
					t.Errorf("%s has two arms called %q", s.Name, a.Name)
				}
				names[a.Name] = true
			}
			t.Logf("%s: %d arms", s.Name, len(names))
		}
	}
}

func TestStudiesShareTheRunsOfEqualArms(t *testing.T) {
	digests := make(map[string]string) // by arm, of whichever study
	distinct, asked := make(map[string]bool), 0
	for _, s := range studiesOfER() {
		if s.Name == savings().Name { // its arms are chosen, and may be chosen to be another study's
			continue
		}
		for _, a := range s.Arms(Options{Seeds: 12}) {
			if a.Name == ratedQueueName || a.Name == tunedQueueName { // chosen too
				continue
			}
			j, err := newJob(a, 1)
			if err != nil {
				t.Fatal(err)
			}
			if before, ok := digests[a.Name]; ok && before != j.digest {
				t.Errorf("%s: %q is another configuration than in the studies before", s.Name, a.Name)
			}
			digests[a.Name], distinct[j.digest], asked = j.digest, true, asked+1
		}
	}
	if len(distinct) != len(digests) {
		t.Errorf("%d names stand for %d configurations", len(digests), len(distinct))
	}
	if got, most := len(distinct), 3*asked/5; got > most {
		t.Errorf("%d arms are %d configurations, want %d at most", asked, got, most)
	}
}

func TestTheLaboratorysNumbersFitTogether(t *testing.T) {
	for _, s := range append(labSplits(), queueSplit()) {
		if labBatch%s.trainers != 0 || labBatch/s.trainers%labGroup != 0 {
			t.Errorf("a batch of %d is not divided into whole groups of %d by %d trainers", labBatch,
				labGroup, s.trainers)
		}
		for _, n := range append(labCapacities(), theoryCapacity) {
			if n%s.trainers != 0 {
				t.Errorf("capacity %d is not divided by %d trainers", n, s.trainers)
			}
		}
	}
	if !slices.Contains(labRates(), labRate) || !slices.Contains(labCapacities(), labCapacity) ||
		!slices.Contains(labCapacities(), variantsCapacity) {
		t.Error("the base is no cell of the grid")
	}
	if !slices.IsSorted(labRates()) || !slices.IsSorted(labCapacities()) || !slices.IsSorted(delays()) ||
		delays()[0] != 1 {
		t.Error("levels do not ascend")
	}
	c := labBase(Options{})
	if w, n := c.BaselineArm().Pipeline.Workers, c.BaselineArm().Pipeline.Trainers; (split{w, n}) != queueSplit() {
		t.Errorf("without replay (%d,%d) stalls least, not %s", w, n, queueSplit())
	}
	short := shortArm(Options{}).Config
	updates, mu := short.Budget.Compute*unit(short)/bufferUnit(short), short.Pipeline.RolloutCost
	held := pointOf(cell{split{4, 4}, theoryCapacity}, mu).X
	for _, c := range labGrid() {
		if x := pointOf(c, mu).X; x > held-2 || x > updates-2 {
			t.Errorf("the short run of %.0f updates holds rollouts of %.0f versions, %s of %.0f", updates, held, c, x)
		}
	}
	steps := float64(labCompute) / labEvery
	if steps != float64(int(steps)) || steps < 8 {
		t.Errorf("a budget of %v is evaluated at %v steps", labCompute, steps)
	}
}
