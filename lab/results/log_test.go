package results

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
)

func updateLine(n int) Update {
	return Update{Update: n, Version: n, Clock: 0.1 * float64(n), Compute: float64(n) / 3, Reward: Num(0.3),
		Other: map[string]Number{"b": Num(2), "a": {}}}
}

func writeUpdates(t *testing.T, path string, from, to int, log *Log[Update]) *Log[Update] {
	t.Helper()
	if log == nil {
		var err error
		if log, err = CreateLog[Update](path); err != nil {
			t.Fatal(err)
		}
	}
	for n := from; n <= to; n++ {
		if err := log.Append(updateLine(n)); err != nil {
			t.Fatal(err)
		}
	}
	if log.Lines() != to {
		t.Fatalf("the log counts %d lines, want %d", log.Lines(), to)
	}
	return log
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAResumedLogHasTheSameBytesWhereverItWasCut(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.jsonl")
	if err := writeUpdates(t, whole, 1, 6, nil).Close(); err != nil {
		t.Fatal(err)
	}
	want := mustRead(t, whole)
	for cut := bytes.IndexByte(want, '\n') + 1; cut <= len(want); cut += tests.Count(7, 97) {
		path := filepath.Join(dir, "cut.jsonl")
		if err := os.WriteFile(path, want[:cut], 0o644); err != nil { // as kill -9 may leave it
			t.Fatal(err)
		}
		if got, err := parseUpdates(want[:cut]); err != nil || len(got) != bytes.Count(want[:cut], []byte("\n")) {
			t.Fatalf("cut at %d: read %d lines, error %v", cut, len(got), err)
		}
		log, err := ResumeLog[Update](path, 1)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if err := writeUpdates(t, path, 2, 6, log).Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mustRead(t, path), want) {
			t.Fatalf("cut at %d: the resumed file differs", cut)
		}
	}
}

func TestALogRefusesWhatItCannotResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), MetricsFile)
	log := writeUpdates(t, path, 1, 2, nil)
	defer log.Close()
	if _, err := CreateLog[Update](path); !os.IsExist(err) {
		t.Errorf("creating over an existing file: error %v, want one that says that it exists", err)
	}
	before := mustRead(t, path)
	if _, err := ResumeLog[Update](path, 3); err == nil ||
		!strings.Contains(err.Error(), "has 2 whole lines, the checkpoint was taken after 3") {
		t.Errorf("resuming beyond the end: error %v", err)
	}
	if err := log.Append(Update{Update: 3, Clock: math.NaN()}); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("appending NaN: error %v, want one that names line 3", err)
	}
	if !bytes.Equal(mustRead(t, path), before) || log.Lines() != 2 {
		t.Error("a refused operation changed the file")
	}
}

func TestALineHasItsFieldsInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), EvalFile)
	log, err := CreateLog[Eval](path)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.1
	sum += 0.2 // at run time: constants are exact
	if err := log.Append(Eval{Update: 3, Version: 3, Grid: 1e21, Compute: sum, Problems: 400, Pass1: 0.65, Samples: 8,
		PassAt: []PassRate{{1, 0.5}, {8, 1}}}); err != nil {
		t.Fatal(err)
	}
	log.Close()
	want := `{"update":3,"version":3,"grid":1e+21,"compute":0.30000000000000004,"compute_busy":0,"compute_all":0,"clock":0,` +
		`"problems":400,"pass1":0.65,"samples":8,"pass_at":[{"k":1,"rate":0.5},{"k":8,"rate":1}],"mean_length":null,"truncated":null}` + "\n"
	if got := string(mustRead(t, path)); got != want {
		t.Errorf("wrote\n%swant\n%s", got, want)
	}
}
