package run

import (
	"math"
	"testing"
)

func TestTheErrorOfAMeanOfGroupsIsThatOfARatio(t *testing.T) {
	c, more := make(clusters), make(clusters)
	c.add(1, 1)
	c.add(2, 5)
	more.add(1, 3)
	c.join(more)
	// Sums 4 and 5 of 2 and 1 values lie 2 below and above what the mean, 3, makes of them: sqrt(2/1 (4 + 4))/3.
	if mean, e := c.mean(); mean != 3 || math.Abs(e-4.0/3) > 1e-15 {
		t.Errorf("the mean is %v ± %v, want 3 ± 4/3", mean, e)
	}
	if mean, e := more.mean(); mean != 3 || !math.IsNaN(e) {
		t.Errorf("of one group the mean is %v ± %v, want 3 and no error", mean, e)
	}
}
