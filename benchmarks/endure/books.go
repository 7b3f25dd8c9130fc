package main

import (
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/wire"
)

// balance returns how the books of a table fail to balance (invariant 11), nil if they do.
func balance(s *wire.TableStatistics) error {
	var errs []error
	evicted := uint64(0)
	for _, n := range s.Evicted {
		evicted += n
	}
	if s.Inserted != uint64(s.Present)+evicted {
		errs = append(errs, fmt.Errorf("inserted %d is not present %d + evicted %d", s.Inserted, s.Present, evicted))
	}
	if s.Drawn != s.Acknowledged+s.Returned+s.OnLease {
		errs = append(errs, fmt.Errorf("drawn %d is not acknowledged %d + returned %d + on lease %d", s.Drawn, s.Acknowledged, s.Returned, s.OnLease))
	}
	if uses := uint64(s.UsesPresent.Sum() + s.UsesAtEviction.Sum()); s.Acknowledged != uses {
		errs = append(errs, fmt.Errorf("acknowledged %d is not the sum of uses %d", s.Acknowledged, uses))
	}
	if n := s.UsesPresent.Count(); n != uint64(s.Present) {
		errs = append(errs, fmt.Errorf("the uses of %d rollouts are counted, %d are present", n, s.Present))
	}
	return errors.Join(errs...)
}
