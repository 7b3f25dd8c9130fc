package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Ranges of a noise profile: more entries than the age of any rollout that is worth keeping, and variances that can be added up and divided.
const (
	mostProfile   = 1_000_000
	mostVariance  = 1e300
	leastVariance = 1 / mostVariance // at staleness 0
)

// readProfile reads the variances of a rollout's gradient at staleness 0, 1, 2, … from a file.
func readProfile(path string) ([]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	variances, err := parseProfile(text)
	if err != nil {
		return nil, fmt.Errorf("--profile %s: %w", path, err)
	}
	return variances, nil
}

// parseProfile reads variances: a JSON array of numbers, or a number on each line, where empty lines and what follows a # do not
// count. It reports every number that is none at once.
func parseProfile(text []byte) ([]float64, error) {
	list, where, err := numbersOf(text)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("no numbers: want the variance at staleness 0, 1, 2, … as a JSON array, or on a line each")
	}
	if len(list) > mostProfile {
		return nil, fmt.Errorf("%d numbers: want at most %d", len(list), mostProfile)
	}
	var problems []error
	for i, v := range list {
		switch {
		case !(v >= 0 && v <= mostVariance):
			problems = append(problems, fmt.Errorf("%s: %v: want a variance, 0 to %v", where(i), v, mostVariance))
		case i == 0 && v < leastVariance:
			problems = append(problems, fmt.Errorf("%s: %v: want at least %v at staleness 0: fresh rollouts have noise too", where(i), v, leastVariance))
		}
		if len(problems) == 10 {
			break
		}
	}
	return list, errors.Join(problems...)
}

// numbersOf returns the numbers of a profile, and how to say where the i-th of them stands.
func numbersOf(text []byte) ([]float64, func(i int) string, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		var list []*float64
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, nil, fmt.Errorf("%w: want a JSON array of numbers, [1, 1.2, 1.3]", err)
		}
		numbers := make([]float64, len(list))
		for i, v := range list {
			if v == nil {
				return nil, nil, fmt.Errorf("staleness %d: null: want a variance, 0 to %v", i, mostVariance)
			}
			numbers[i] = *v
		}
		return numbers, func(i int) string { return fmt.Sprintf("staleness %d", i) }, nil
	}
	var numbers []float64
	var lines []int
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		v, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %.40q: want one number on each line, or a JSON array", i+1, line)
		}
		numbers, lines = append(numbers, v), append(lines, i+1)
	}
	return numbers, func(i int) string { return fmt.Sprintf("line %d, staleness %d", lines[i], i) }, nil
}
