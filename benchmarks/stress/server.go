package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/benchmarks/process"
	"github.com/reprise-rl/reprise/client"
)

// server is `reprise serve` in a process that may be killed and started again, always on the same addresses.
type server struct {
	*process.Process // the latest

	program string
	data    string   // folder of its journals
	listen  string   // host:port of Flight
	web     string   // host:port of HTTP
	more    []string // arguments
	limit   int64    // of the process's data, bytes; 0: none
	log     *os.File // of all its processes
}

// newServer finds free ports and makes a folder below dir.
func newServer(program, dir string, more ...string) (s *server, err error) {
	s = &server{program: program, data: filepath.Join(dir, "data"), more: more}
	if s.listen, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	if s.web, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	s.log, err = os.Create(filepath.Join(dir, "serve.log"))
	return s, err
}

// address is the service's address as clients write it.
func (s *server) address() string { return "grpc://" + s.listen }

// start starts a process and waits until it is healthy. It returns how long that took.
func (s *server) start(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	arguments := append([]string{s.program, "serve", "--listen", s.listen, "--http", s.web, "--data",
		s.data}, s.more...)
	if s.limit > 0 {
		arguments = append([]string{"sh", "-c", `ulimit -d "$0" && exec "$@"`, strconv.FormatInt(s.limit>>10, 10)},
			arguments...)
	}
	s.Process, err = process.Start("the service", s.log, arguments[0], arguments[1:]...)
	if err != nil {
		return 0, err
	}
	if err := s.AwaitReady(ctx, s.healthy); err != nil {
		s.Kill()
		return 0, err
	}
	return time.Since(began), nil
}

// healthy asks once whether the service is healthy.
func (s *server) healthy(ctx context.Context) error {
	_, err := fetch(ctx, "http://"+s.web+"/healthz")
	return err
}

// close ends the process if it still runs.
func (s *server) close() {
	if s.Process != nil && s.Alive() {
		s.Kill()
	}
	s.log.Close()
}

// dial connects to the service itself, past the proxy.
func (s *server) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, s.address(), client.Options{})
}

// journals are the folders of the service's journals.
func (s *server) journals() ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(s.data, "tables", "*.journal"))
	if err == nil && len(folders) == 0 {
		err = fmt.Errorf("%s: no journal is there", s.data)
	}
	return folders, err
}

// workspace makes a folder for a service's data. Remove removes it, unless it is to be kept.
func workspace(below, name string, keep bool, out io.Writer) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(below, name); err != nil {
		return "", nil, err
	}
	if keep {
		fmt.Fprintf(out, "keeping everything in %s\n", dir)
		return dir, func() {}, nil
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}

// reading is what was measured of a process at one moment.
type reading struct {
	after       time.Duration // since the load began
	anonymous   float64       // bytes of resident memory that no file backs
	live        float64       // bytes that the last garbage collection found in use
	collections float64       // garbage collections so far
	goroutines  float64
	files       float64 // bytes of its folder
}

// read measures the process.
func (s *server) read(ctx context.Context) (reading, error) {
	var r reading
	text, err := fetch(ctx, "http://"+s.web+"/metrics")
	if err != nil {
		return r, err
	}
	metrics := parseMetrics(text)
	var next, percent float64
	for name, to := range map[string]*float64{
		"go_goroutines": &r.goroutines, "go_gc_duration_seconds_count": &r.collections,
		"go_memstats_next_gc_bytes": &next, "go_gc_gogc_percent": &percent,
	} {
		value, ok := metrics[name]
		if !ok {
			return r, fmt.Errorf("/metrics does not have %s among %d names", name, len(metrics))
		}
		*to = value
	}
	r.live = next / (1 + percent/100)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		return r, err
	}
	if r.anonymous, err = parseStatus(status, "RssAnon:"); err != nil {
		return r, err
	}
	r.files, err = folderSize(s.data)
	return r, err
}

// processorTime is the CPU time that the process has used.
func (s *server) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	if err != nil {
		return 0, err
	}
	return parseStat(string(text))
}

// parseStat returns the user and system time of /proc/PID/stat. The program's name is in parentheses and may hold
// anything.
func parseStat(stat string) (time.Duration, error) {
	const user, system, tick = 11, 12, 10 * time.Millisecond // fields after the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/PID/stat reads %.100q", stat)
	}
	u, err := strconv.Atoi(fields[user])
	if err != nil {
		return 0, err
	}
	k, err := strconv.Atoi(fields[system])
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

// parseStatus returns a line of /proc/PID/status, "RssAnon:   12 kB", in bytes.
func parseStatus(status []byte, name string) (float64, error) {
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == name && f[2] == "kB" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/PID/status has no line %s", name)
}

// folderSize is the size of all files of a folder, in bytes.
func folderSize(dir string) (float64, error) {
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

// mega formats bytes as megabytes.
func mega(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

// fetch gets a page.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // or the idle connection would count among the service's
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", url, answer.Status, text)
	}
	return text, err
}
