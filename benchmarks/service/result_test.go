package main

import (
	"strings"
	"testing"
	"time"
)

// measured is a result as a run could leave it.
func measured() *Result {
	transfer := func(what, who string, tokens int, gbs, ofFloor, p50 float64) Transfer {
		return Transfer{What: what, Who: who, Over: tcp, Tokens: tokens, Batch: 64, Bytes: 3408896, GBs: gbs,
			Rollouts: 1234.5,
			P50:      1100, P99: 12345.6, OfFloor: ofFloor, P50Ratio: p50}
	}
	r := &Result{
		When: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Machine: Machine{"a processor", 2, "linux/amd64",
			"go1.27.1"}, Rounds: 5, Seconds: 2,
		Transfers: []Transfer{
			transfer(sample, rawSocket, 4096, 3, 1, 1), transfer(sample, goClient, 4096, 1.56, 0.52, 1.9),
			transfer(sample, python, 4096, 0.4, 0.13, 8), transfer(insert, goClient, 4096, 1.1, 0.39, 2.5),
			transfer(sample, noPrefetch, 256, 0.5, 0.3, 2.9),
		},
		Durable: []Durable{
			{Tokens: durableShort, Group: 16, Clients: 16, Rollouts: 21000, GBs: 0.27, OfDisk: 0.2},
			{Tokens: durableLong, Group: 16, Clients: 16, Rollouts: 1900, GBs: 0.8, OfDisk: 0.61},
		},
		Disk:    []Disk{{false, 4 << 20, 1.2, 3300}, {true, 16 << 20, 4.2, 3300}},
		LeftOut: []string{"redis: redis-server is not installed"},
	}
	r.judge()
	return r
}

func TestTargetsAreHeldAgainstWhatWasMeasured(t *testing.T) {
	want := []struct {
		name string
		met  bool
	}{
		{"sample, 4,096", true}, {"insert, 4,096", false}, {"without prefetch", true}, {"Python",
			false}, {"1,000 tokens", true}, {"of the disk", true},
	}
	r := measured()
	if len(r.Targets) != len(want) {
		t.Fatalf("%d targets: want %d", len(r.Targets), len(want))
	}
	for i, target := range r.Targets {
		if !strings.Contains(target.Name, want[i].name) || target.Met != want[i].met {
			t.Errorf("%+v: want %+v", target, want[i])
		}
	}
	r.Transfers[4].P50Ratio = 3.01
	r.judge()
	if r.Targets[2].Met {
		t.Error("an upper bound that was exceeded counts as met")
	}
}

func TestWhatWasNotMeasuredHasNoTarget(t *testing.T) {
	r := measured()
	r.Transfers, r.Durable = nil, nil
	r.judge()
	if len(r.Targets) != 0 {
		t.Errorf("%+v", r.Targets)
	}
}

func TestThePageShowsEverythingThatWasMeasured(t *testing.T) {
	var page strings.Builder
	if err := measured().print(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a processor, 2 cores, linux/amd64, go1.27.1", "medians of 5 rounds",
		"sample 64 x 4,096 tokens, 3.409 MB, over tcp", "insert 64 x 4,096", "sample 64 x 256",
		"raw socket", "1.56", "1,234", "12,346", "52%", "16 clients, 16 x 32,768 tokens", "61%",
		"the disk, new files, blocks of 4 MiB", "the disk, rewriting, blocks of 16 MiB",
		"at least 50%", "at most 3.00", "21,000/s", "MISSED", "not measured: redis: redis-server is not installed",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing in\n%s", want, page.String())
		}
	}
	if n := strings.Count(page.String(), "over tcp"); n != 3 {
		t.Errorf("%d tables: want 3, one for each kind and length:\n%s", n, page.String())
	}
}
