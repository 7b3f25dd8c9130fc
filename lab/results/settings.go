package results

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Settings returns the values of the text of a config.yaml by their keys with dots, as they are written. It reads YAML
// as runs write it: a key a line, the keys of a section at one indentation. The lines of a list or of longer text
// belong to their key. A section has no value.
func Settings(config string) map[string]string {
	type level struct {
		depth int
		key   string
	}
	values := make(map[string]string)
	var above []level // the sections that a line is in, and the key before it
	list := -1        // depth of the list or text that lines belong to; -1: none
	for line := range strings.Lines(config) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		depth := len(line) - len(strings.TrimLeft(line, " "))
		key, value, found := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		item := strings.HasPrefix(text, "- ") || text == "-"
		if n := len(above); n > 0 && (depth > list && list >= 0 || item && depth >= above[n-1].depth || !found || key == "") {
			last := above[n-1]
			if values[last.key] = strings.TrimSpace(values[last.key] + " " + text); list < 0 {
				list = last.depth
			}
			if item {
				list = depth
			}
			continue
		}
		if !found || key == "" || item {
			continue
		}
		list = -1
		for len(above) > 0 && above[len(above)-1].depth >= depth {
			above = above[:len(above)-1]
		}
		if n := len(above); n > 0 {
			section := above[n-1].key
			if values[section] == "" {
				delete(values, section)
			}
			key = section + "." + key
		}
		values[key] = value
		above = append(above, level{depth, key})
		if strings.HasPrefix(value, "|") || strings.HasPrefix(value, ">") {
			list = depth
		}
	}
	return values
}

// SeedAndTarget returns seed and evaluate.target of the text of a config.yaml, and 0 for a key that it lacks.
func SeedAndTarget(config string) (seed uint64, target float64, err error) {
	values := Settings(config)
	if value, given := values["seed"]; given {
		if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("%s: seed: %q: want a whole number, 0 or more", ConfigFile, value)
		}
	}
	if value, given := values["evaluate.target"]; given {
		if target, err = strconv.ParseFloat(value, 64); err != nil || !(target >= 0 && target <= 1) {
			return 0, 0, fmt.Errorf("%s: evaluate.target: %q: want an accuracy in (0, 1], or 0 for none", ConfigFile,
				value)
		}
	}
	return seed, target, nil
}

// Difference is a setting in which arms differ.
type Difference struct {
	Key    string
	Values []string // of the arms, "–" of one that lacks it
}

// Differences returns the settings in which arms differ, each taken from its first run, by key. It leaves out what does
// not decide what a run learns: names, seeds, checkpoints and engines.
func Differences(arms []NamedRuns) (list []Difference) {
	all := make([]map[string]string, len(arms))
	keys := make(map[string]bool)
	for i, a := range arms {
		if len(a.Runs) > 0 {
			all[i] = Settings(a.Runs[0].Config)
		}
		for key := range all[i] {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		section, _, _ := strings.Cut(key, ".")
		if slices.Contains([]string{"name", "seed", "checkpoint", "live", "baseline"}, section) {
			continue
		}
		d := Difference{Key: key}
		same := true
		for _, settings := range all {
			value, given := settings[key]
			if !given {
				value = "–"
			}
			d.Values = append(d.Values, value)
			same = same && SameSetting(value, d.Values[0])
		}
		if !same {
			list = append(list, d)
		}
	}
	return list
}

// SameSetting reports whether two values are the same, as 1 and 1.0 are.
func SameSetting(a, b string) bool {
	x, badX := strconv.ParseFloat(a, 64)
	y, badY := strconv.ParseFloat(b, 64)
	return a == b || badX == nil && badY == nil && x == y
}
