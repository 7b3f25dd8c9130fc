package design

import "fmt"

// neighbours returns the configurations one GPU away to either side, each with the capacity that is best for it, the next split that runs
// where that one does not, and those with half and twice the capacity. Those that the theory does not reach or the limits exclude
// are left out.
func (t Theory) neighbours(f Fleet, s share, n int) []Neighbour {
	var all []Neighbour
	for _, step := range []int{-1, 1} {
		all = append(all, t.beside(f, s.split.Trainers, step)...)
	}
	for _, c := range []struct {
		change string
		n      int
	}{{"half the capacity", n / 2}, {"twice the capacity", 2 * n}} {
		at := c.n / s.split.Trainers * s.split.Trainers
		if at >= s.low && at <= s.high {
			all = append(all, Neighbour{Change: c.change, Configuration: s.at(at)})
		}
	}
	return all
}

// beside returns the split with step more trainers, and if that does not run, the next one that does.
func (t Theory) beside(f Fleet, trainers, step int) []Neighbour {
	change := "one GPU more generates"
	if step > 0 {
		change = "one GPU more trains"
	}
	var found []Neighbour
	for next := trainers + step; next >= 1 && next < f.GPUs && next <= f.Batch; next += step {
		runs := f.Batch%next == 0
		first := next == trainers+step
		if !runs && !first {
			continue
		}
		s := t.share(f, next)
		if n, _, ok := s.best(); ok {
			x := Neighbour{Change: change, Configuration: s.at(n)}
			if !first {
				x.Change = fmt.Sprintf("the next split that runs, %d + %d", s.split.Workers, s.split.Trainers)
			}
			if !runs {
				x.Refused = fmt.Sprintf("a batch of %d is no multiple of %d trainers", f.Batch, next)
			}
			found = append(found, x)
		}
		if runs {
			break
		}
	}
	return found
}
