package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSeedAndTheTargetAreReadFromTheirOwnSections(t *testing.T) {
	for _, c := range []struct {
		name, config string
		seed         uint64
		target       float64
	}{
		{"as a run writes it", "name: a\nseed: 3\ntask:\n  operations:\n  - add\nevaluate:\n  every: 5.0\n" +
			"  target: 0.65\n  pass_at:\n  - 1\nbudget:\n  compute: 4.0\n# Draws: unseen\n", 3, 0.65},
		{"nothing", "", 0, 0},
		{"neither key", "name: a\nevaluate:\n  every: 5.0\n", 0, 0},
		{"a target in a later section", "evaluate:\n  every: 5.0\nother:\n  target: 0.5\n", 0, 0},
		{"a target in an earlier section", "other:\n  target: 0.5\nevaluate:\n  every: 5.0\n  target: 0.6\n", 0, 0.6},
		{"a seed in a section", "task:\n  seed: 7\nevaluate:\n  seed: 8\n", 0, 0},
		{"a seed after sections", "task:\n  seed: 7\nseed: 18446744073709551615\n", 1<<64 - 1, 0},
		{"a target at column 0", "target: 0.5\n", 0, 0},
		{"a target deeper in the section", "evaluate:\n  task:\n    target: 0.5\n  list:\n  - target: 0.4\n", 0, 0},
		{"keys four columns in", "evaluate:\n    every: 5.0\n    target: 1e-05\n", 0, 1e-5},
		{"text that looks like keys", "note: |\n  evaluate:\n  target: 0.5\n  seed: 1\n", 0, 0},
		{"keys that begin alike", "seed_of: 1\nevaluate:\n  target_of: 0.5\nevaluated:\n  target: 0.4\n", 0, 0},
		{"comments and empty lines", "# seed: 1\nevaluate:\n\n# target: 0.4\n  # target: 0.5\n  target: 0.6\n", 0, 0.6},
		{"ends of lines of Windows", "seed: 3\r\nevaluate:\r\n  target: 0.6\r\n", 3, 0.6},
	} {
		seed, target, err := SeedAndTarget(c.config)
		if err != nil || seed != c.seed || target != c.target {
			t.Errorf("%s: seed %d and target %g, %v: want %d and %g", c.name, seed, target, err, c.seed, c.target)
		}
	}
	for config, want := range map[string]string{
		"seed: -1\n":                     `config.yaml: seed: "-1": want a whole number`,
		"seed: 18446744073709551616\n":   `config.yaml: seed: "18446744073709551616": want`,
		"seed:\n":                        `config.yaml: seed: "": want`,
		"evaluate:\n  target: 65%\n":     `config.yaml: evaluate.target: "65%": want an accuracy in (0, 1]`,
		"evaluate:\n  target: 1.5\n":     `config.yaml: evaluate.target: "1.5": want`,
		"evaluate:\n  target: .nan\n":    `config.yaml: evaluate.target: ".nan": want`,
		"evaluate:\n  target: -0.5 \n":   `config.yaml: evaluate.target: "-0.5": want`,
		"evaluate:\n  target: [0.5]\n":   `config.yaml: evaluate.target: "[0.5]": want`,
		"evaluate:\n  target: \n    2\n": `config.yaml: evaluate.target: "2": want`,
	} {
		if _, _, err := SeedAndTarget(config); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", config, err, want)
		}
	}
}

func TestARunThatHasNotEndedHasTheSeedOfItsConfiguration(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, MetricsFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{"seed: 3\n": "", "seed: x\n": dir + `: config.yaml: seed: "x": want`} {
		if err := WriteConfig(dir, []byte(config)); err != nil {
			t.Fatal(err)
		}
		if r, err := ReadBegunRun(dir); want == "" && (err != nil || r.Seed != 3) {
			t.Errorf("%s: %+v, %v: want seed 3", config, r, err)
		} else if want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v: want %s", config, err, want)
		}
	}
}
