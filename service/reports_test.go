package service

import (
	"errors"
	"fmt"
	"testing"
)

func TestARepeatedReportCountsOnceWhileItIsRemembered(t *testing.T) {
	var r reports
	counted := make(map[string]int)
	report := func(id string) error {
		return r.once(id, func() error { counted[id]++; return nil })
	}
	for i := range 3 * rememberedReports {
		for _, id := range []string{fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint(max(i-rememberedReports+1, 0)), ""} {
			if err := report(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, n := range counted {
		if id != "" && n != 1 {
			t.Fatalf("report %s was counted %d times", id, n)
		}
	}
	if counted[""] != 3*rememberedReports || len(counted) != 3*rememberedReports+1 || len(r.known) != rememberedReports {
		t.Errorf("%d reports without an id, %d ids, %d remembered", counted[""], len(counted)-1, len(r.known))
	}
	if report("0"); counted["0"] != 2 {
		t.Errorf("the oldest report, long forgotten, was counted %d times", counted["0"])
	}
}

func TestAReportThatFailedMayBeRepeated(t *testing.T) {
	var r reports
	failed, n := errors.New("failed"), 0
	if err := r.once("a", func() error { return failed }); err != failed {
		t.Fatal(err)
	}
	if err := r.once("a", func() error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%v after %d", err, n)
	}
}
