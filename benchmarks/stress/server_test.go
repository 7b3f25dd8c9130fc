package main

import (
	"testing"
	"time"
)

func TestMetricsAndProcFilesAreParsed(t *testing.T) {
	metrics := parseMetrics([]byte("# HELP go_goroutines x\ngo_goroutines 17\nreprise_x{table=\"a b\"} 3\n" +
		"go_memstats_heap_inuse_bytes 1.5e+06\n"))
	if metrics["go_goroutines"] != 17 || metrics["go_memstats_heap_inuse_bytes"] != 1.5e6 || len(metrics) != 2 {
		t.Errorf("metrics are %v", metrics)
	}
	got, err := parseStatus([]byte("VmRSS:\t  20 kB\nRssAnon:\t     12 kB\n"), "RssAnon:")
	if err != nil || got != 12*1024 {
		t.Errorf("RssAnon is %v, %v", got, err)
	}
	if got, err := parseStat("17 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"); err != nil || got != 2*time.Second {
		t.Errorf("processor time is %v, %v, want 2s", got, err)
	}
	if _, err := parseStatus([]byte("VmRSS:\t  20 kB\n"), "RssAnon:"); err == nil {
		t.Error("a missing line was parsed")
	}
}
