package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// reading is what was measured of a process at one moment.
type reading struct {
	after      time.Duration // since the load began
	anonymous  float64       // bytes of resident memory that no file stands behind; mapped journals are not among them
	resident   float64       // bytes
	heap       float64       // bytes in use, garbage included
	live       float64       // bytes that the last collection of garbage found in use
	collected  float64       // collections so far
	goroutines float64
	files      float64 // bytes of its folder
}

// read measures the process of a server.
func (s *server) read(ctx context.Context) (reading, error) {
	var r reading
	text, err := fetch(ctx, "http://"+s.web+"/metrics")
	if err != nil {
		return r, err
	}
	metrics := parseMetrics(text)
	var next, percent float64
	for name, to := range map[string]*float64{
		"go_goroutines": &r.goroutines, "go_memstats_heap_inuse_bytes": &r.heap, "go_gc_duration_seconds_count": &r.collected,
		"go_memstats_next_gc_bytes": &next, "go_gc_gogc_percent": &percent,
	} {
		value, ok := metrics[name]
		if !ok {
			return r, fmt.Errorf("/metrics does not have %s: %d names are there", name, len(metrics))
		}
		*to = value
	}
	r.live = next / (1 + percent/100)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.command.Process.Pid))
	if err != nil {
		return r, err
	}
	for name, to := range map[string]*float64{"RssAnon:": &r.anonymous, "VmRSS:": &r.resident} {
		if *to, err = memoryOf(status, name); err != nil {
			return r, err
		}
	}
	r.files, err = sizeOf(s.data)
	return r, err
}

// processorTime is how much of the processors' time the process has taken, in ticks of 10 ms.
func (s *server) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	return ticksOf(string(text))
}

// ticksOf returns the time in user and system mode of a line of /proc/PID/stat; the program's name stands in parentheses and
// may hold anything.
func ticksOf(stat string) (time.Duration, error) {
	const user, system, tick = 11, 12, 10 * time.Millisecond // fields after the name
	after := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(after) <= system {
		return 0, fmt.Errorf("/proc/PID/stat reads %.100q", stat)
	}
	u, err := strconv.Atoi(after[user])
	if err != nil {
		return 0, err
	}
	k, err := strconv.Atoi(after[system])
	return time.Duration(u+k) * tick, err
}

// parseMetrics returns the metrics without labels of Prometheus's text format, by name.
func parseMetrics(text []byte) map[string]float64 {
	metrics := make(map[string]float64)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || strings.HasPrefix(name, "#") || strings.Contains(name, "{") {
			continue
		}
		if x, err := strconv.ParseFloat(value, 64); err == nil {
			metrics[name] = x
		}
	}
	return metrics
}

// memoryOf returns a line of /proc/PID/status, "RssAnon:   12 kB", in bytes.
func memoryOf(status []byte, name string) (float64, error) {
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == name && f[2] == "kB" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/PID/status has no line %s", name)
}

// sizeOf is how large all files of a folder are together.
func sizeOf(dir string) (float64, error) {
	total := 0.0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // files come and go
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += float64(info.Size())
		}
		return nil
	})
	return total, err
}

// mega writes bytes as megabytes.
func mega(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }
