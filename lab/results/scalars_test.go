package results

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// flat lists the numbers of a line as its JSON has them, by key.
func flat(t *testing.T, line any) map[string]float64 {
	t.Helper()
	text, err := encode(line, "")
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for key, v := range keys {
		switch v := v.(type) {
		case float64:
			all[key] = v
		case map[string]any: // other, mismatch
			for name, n := range v {
				if n != nil {
					all[name] = n.(float64)
				}
			}
		case []any: // pass_at
			for _, p := range v {
				rate := p.(map[string]any)
				all["pass_at_"+Num(rate["k"].(float64)).String()] = rate["rate"].(float64)
			}
		}
	}
	delete(all, "update")
	return all
}

func TestScalarsAreTheNumbersOfTheLine(t *testing.T) {
	u := Update{Update: 3, Version: 3, Clock: 4.5, Used: 7, Loss: Num(-0.25), ReplayRatio: Num(1.5),
		ESS: Num(math.NaN()), WorkerBusy: Num(0), Success: Num(1), TableSize: 9,
		Other: map[string]Number{"bound": Num(2), "none": {}}}
	e := Eval{Update: 3, Pass1: 0.5, Samples: 4, PassAt: []PassRate{{1, 0.25}, {4, 0.75}}, Truncated: Num(0.1),
		Mismatch: MismatchOf([]float64{0, math.Log(2), math.Log(0.5)})}
	for _, c := range []struct {
		line interface{ Scalars() []Scalar }
		want []string // some of the names
	}{
		{u, []string{"progress/clock", "progress/rollouts_used", "train/loss", "train/bound", "replay/replay_ratio",
			"replay/table_size", "gpus/worker_busy", "episodes/success"}},
		{e, []string{"eval/pass1", "eval/pass_at_1", "eval/pass_at_4", "eval/truncated", "eval/compute",
			"eval/k_mean"}},
	} {
		got := make(map[string]float64)
		var names []string
		for _, s := range c.line.Scalars() {
			_, key, _ := strings.Cut(s.Name, "/")
			got[key] = s.Value
			names = append(names, s.Name)
		}
		if want := flat(t, c.line); !maps.Equal(got, want) || len(got) != len(names) {
			t.Errorf("scalars %v, the line has %v", got, want)
		}
		for _, name := range c.want {
			if !slices.Contains(names, name) {
				t.Errorf("%s is not among %v", name, names)
			}
		}
	}
}
