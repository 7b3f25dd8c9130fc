package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// pages returns a report of every kind by name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	collapsed := madeComparison(t, 3, 400)
	collapsed.Replay[1] = made{arm: results.ReplayArm, seed: 2, updates: 700, rate: 0.006, cost: madeBatch * 4, collapse: 300}.make()
	collapsed.Baseline[0] = made{arm: results.BaselineArm, seed: 1, updates: 150, rate: 0.006, cost: madeBatch * 6.28}.make()
	running := madeComparison(t, 1, 100)
	running.Compare, running.Replay = nil, nil
	byName := map[string]string{}
	for name, c := range map[string]*results.Comparison{
		"four-seeds": madeComparison(t, 4, 500), "one-seed": madeComparison(t, 1, 500), "collapsed": collapsed, "running-comparison": running,
		"eight-long": madeComparison(t, 8, 5000),
	} {
		var b bytes.Buffer
		if err := Comparison(&b, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	replay := made{arm: results.ReplayArm, seed: 1, updates: 400, rate: 0.006, cost: madeBatch * 4}
	none, few, running1 := replay, replay, replay
	none.noEvals, few.updates, running1.running = true, 5, true
	for name, run := range map[string]*results.Run{
		"run": replay.make(), "no-evaluation": none.make(), "one-evaluation": few.make(), "running": running1.make(),
		"only-begun": {Config: "seed: 1\n"},
	} {
		var b bytes.Buffer
		if err := Run(&b, run); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	dir := t.ArtifactDir() // go test -artifacts keeps them, to be looked at
	for name, text := range byName {
		if err := os.WriteFile(filepath.Join(dir, name+".html"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return byName
}

func TestPages(t *testing.T) {
	pages(t)
	_, _, _, _, _ = xml.NewDecoder, errors.Is, io.EOF, regexp.MustCompile, strings.Contains
}
