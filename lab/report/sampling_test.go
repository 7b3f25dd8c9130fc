package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/lab/results"
)

// samplingPages returns reports of runs and comparisons with prioritized and prompt replay.
func samplingPages(t *testing.T) map[string]string {
	t.Helper()
	replay := made{arm: results.ReplayArm, seed: 1, updates: 400, rate: 0.006, cost: madeBatch * 4}
	uniform := replay.make()
	uniform.Summary.Sampling = &results.Sampling{Sampler: "distinct", Unit: "rollout", NeverUsed: results.Num(0.11)}
	for i := range uniform.Updates {
		uniform.Updates[i].NeverDrawn, uniform.Updates[i].WeightMin = results.Num(0.2), results.Num(1)
	}
	running := replay
	running.running = true
	compared := madeComparison(t, 4, 300)
	for _, run := range compared.Replay {
		withPrompts(prioritized(run, true, true))
	}
	byName := map[string]string{}
	for name, run := range map[string]*results.Run{
		"prioritized": prioritized(replay.make(), false, false), "auto": prioritized(replay.make(), true, true),
		"prompts": withPrompts(replay.make()), "uniform": uniform, "old": replay.make(),
		"running": withPrompts(prioritized(running.make(), true, false)),
	} {
		var b bytes.Buffer
		if err := renderRun(&b, run); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	var b bytes.Buffer
	if err := renderComparison(&b, compared); err != nil {
		t.Fatal(err)
	}
	byName["compared"] = b.String()
	keep(t, "sampling-", byName)
	return byName
}

func TestPagesShowHowBatchesWereDrawn(t *testing.T) {
	text := samplingPages(t)
	t.Run("are self-contained and small", func(t *testing.T) { areSelfContained(t, text) })
	t.Run("have well-formed plots that follow the style sheet", func(t *testing.T) { haveSoundPlots(t, text) })
	t.Run("are well-formed", func(t *testing.T) { areWellFormed(t, text) })
	t.Run("where the numbers are there, and only there", func(t *testing.T) {
		weights := []string{">Importance weights, mean<", ">Importance weights, least<", ">ESS of the weights<"}
		byAge := []string{`id="sampling"`, ">Priority against age", ">ESS by age<"}
		prompts := []string{`id="prompts"`, ">Prompts held<", ">Replayed prompts<"}
		ended := []string{">Replays of a prompt", ">Pass rates of prompts held"}
		divergence := []string{">D2(π‖b) = −ln(ESS/n)<", ">ESS by rollout<"}
		all := joinedLists(weights, byAge, prompts, ended, divergence,
			[]string{">Fresh share<", "<figcaption>Age decay τ<", ">Never drawn<", ">Sampler</th>",
				">Effective half-life</th>"})
		for name, want := range map[string][]string{
			"prioritized": joinedLists(weights, byAge, divergence,
				[]string{">Never drawn<", ">Sampler</th>", ">Effective half-life</th>"}),
			"auto": joinedLists(weights, byAge, divergence,
				[]string{">Never drawn<", ">Fresh share<", "<figcaption>Age decay τ<", ">Sampler</th>",
					">Effective half-life</th>"}),
			"prompts": joinedLists(prompts, ended),
			"uniform": {`id="sampling"`, ">Never drawn<", ">Sampler</th>"},
			"old":     nil,
			"running": joinedLists(weights, prompts, divergence,
				[]string{`id="sampling"`, ">Never drawn<", "<figcaption>Age decay τ<"}),
			"compared": all,
		} {
			for _, part := range all {
				wanted := false
				for _, w := range want {
					wanted = wanted || w == part
				}
				if got := strings.Contains(text[name], part); got != wanted {
					t.Errorf("%s has %q: %v, want %v", name, part, got, wanted)
				}
			}
			if strings.Contains(text[name], "<dd></dd>") || strings.Contains(text[name], `class="empty"></p>`) {
				t.Errorf("%s has an empty place", name)
			}
		}
	})
	t.Run("in the words of METHODS", func(t *testing.T) {
		for name, want := range map[string][]string{
			"prioritized": {"578 versions = (τ/α) ln 2", "The half-life, 578 versions, lies beyond the oldest held.",
				"τ: 500 versions."},
			"auto": {"21 versions = (τ/α) ln 2", "The half-life is 20.8 versions.", ">half-life 20.8<",
				"18 versions at the end, set for an ESS/n of 0.8 over all ages (dotted)", ">25.0%</td>"},
			"prompts": {">0.75 / 0.3</td>", ">5 versions / 10</td>", ">70.0%</td>"},
		} {
			for _, w := range want {
				if !strings.Contains(text[name], w) {
					t.Errorf("%s does not say %q", name, w)
				}
			}
		}
	})
}

func TestAgesShareBarsAndKeepTheirSums(t *testing.T) {
	one := &results.Priority{ByAge: []results.AgePriority{{Age: 0, Count: 1, Base: 2, Probability: 0.75},
		{Age: 95, Count: 3, Base: 1, Probability: 0.25}}}
	two := &results.Priority{ByAge: []results.AgePriority{{Age: 1, Count: 4, Base: 7, Probability: 1}}}
	bars, width := ageBars([]*results.Priority{one, two, {}})
	// 96 ages in 48 bars of two; the empty table counts for nothing
	want := []ageBar{{0, 0.875, 5. / 8, 6}, {47, 0.125, 3. / 8, 1}}
	if width != 2 || len(bars) != 2 || bars[0] != want[0] || bars[1] != want[1] {
		t.Errorf("bars %v of %d versions, want %v of 2", bars, width, want)
	}
	if bars, _ := ageBars(nil); bars != nil {
		t.Errorf("no table has bars %v", bars)
	}
}

func TestTheMedianESSIsTakenBinByBin(t *testing.T) {
	got := medianESS([][]results.AgeESS{{{Age: 2, Last: 3, ESS: 0.4}, {Age: 0, Last: 0, ESS: 1}},
		{{Age: 2, Last: 3, ESS: 0.6}}, {{Age: 2, Last: 3, ESS: 0.9}}})
	if len(got) != 2 || got[0].ESS != 1 || got[1].ESS != 0.6 {
		t.Errorf("median %v, want 1 at age 0 and 0.6 at ages 2 to 3", got)
	}
	if p := essPoints(got)[1]; p.X != 2.5 {
		t.Errorf("ages 2 to 3 stand at %v, want 2.5", p.X)
	}
}

// areWellFormed reads whole pages as XML would be read, HTML's entities allowed.
func areWellFormed(t *testing.T, text map[string]string) {
	for name, text := range text {
		_, body, _ := strings.Cut(text, "<body>")
		body = strings.ReplaceAll(body, figures.Script, "") // not XML
		d := xml.NewDecoder(strings.NewReader("<body>" + strings.TrimSuffix(strings.TrimSpace(body), "</html>")))
		d.Entity = xml.HTMLEntity
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}

func joinedLists(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func hexOf(t *testing.T, digits string) uint32 {
	t.Helper()
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}
