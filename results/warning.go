package results

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// warnings says what keeps arms from being compared as they stand: METHODS.md asks that they share
// task, evaluation set, seeds, warm start and compute.
func warnings(arms []NamedRuns) []string {
	var w []string
	if names := tasks(arms); len(names) > 1 {
		w = append(w, fmt.Sprintf("The arms were trained on different tasks (%s): their accuracies are not of one thing.", strings.Join(names, ", ")))
	}
	if sizes := problems(arms); len(sizes) > 1 {
		w = append(w, fmt.Sprintf("The arms were evaluated on sets of different sizes (%s problems): they are not compared.", joined(sizes, strconv.Itoa)))
	}
	if targets := distinct(arms, func(s *Summary) Number { return s.Target }); len(targets) > 1 {
		w = append(w, fmt.Sprintf("The runs have different targets (%s): compute to target is left out.", joined(targets, targetText)))
	}
	w = append(w, seedWarnings(arms)...)
	w = append(w, runWarnings(arms)...)
	return append(w, reachWarning(arms)...)
}

// seedWarnings tells of seeds that an arm has twice or not in common with the first, and of a warm
// start that is not shared.
func seedWarnings(arms []NamedRuns) []string {
	var w []string
	for i, a := range arms {
		row := seeded(a)
		known, unknown := 0, 0
		for _, r := range a.Runs {
			if _, ok := r.seed(); ok {
				known++
			} else {
				unknown++
			}
		}
		if known > len(row) {
			w = append(w, fmt.Sprintf("%s has a seed more than once: the first run of each is compared.", a.Name))
		}
		if unknown > 0 {
			w = append(w, fmt.Sprintf("%s has %d of %d runs whose seed is not known: they are drawn, not compared.", a.Name, unknown, len(a.Runs)))
		}
		if i == 0 {
			continue
		}
		base := seeded(arms[0])
		if !slices.Equal(sortedSeeds(base), sortedSeeds(row)) {
			w = append(w, fmt.Sprintf("%s and %s have different seeds: only those in common are compared.", arms[0].Name, a.Name))
		}
		for _, seed := range sortedSeeds(row) {
			if b := base[seed]; b != nil && !sameStart(b, row[seed]) {
				w = append(w, fmt.Sprintf("%s and %s begin at different accuracies on seed %d: they do not share a warm start.", arms[0].Name, a.Name, seed))
				break
			}
		}
	}
	return w
}

// sameStart reports whether two runs' evaluations before the first update agree, where both have
// one.
func sameStart(a, b *Run) bool {
	if len(a.Evals) == 0 || len(b.Evals) == 0 || a.Evals[0].Update > 0 || b.Evals[0].Update > 0 || a.Evals[0].Problems != b.Evals[0].Problems {
		return true
	}
	return a.Evals[0].Pass1 == b.Evals[0].Pass1
}

// runWarnings tells of runs that have not ended, and of folders that stand in two arms.
func runWarnings(arms []NamedRuns) []string {
	var w []string
	where := make(map[string]string)
	for _, a := range arms {
		for i, r := range a.Runs {
			at := 0
			if n := len(r.Updates); n > 0 {
				at = r.Updates[n-1].Update
			}
			switch {
			case r.Summary == nil:
				w = append(w, fmt.Sprintf("%s has not ended: it failed, was killed or still runs; last seen at update %d.", describeRun(a, i), at))
			case r.Summary.Ended == "interrupted":
				w = append(w, fmt.Sprintf("%s was interrupted at update %d.", describeRun(a, i), at))
			}
			if other, seen := where[r.Dir]; seen && r.Dir != "" {
				w = append(w, fmt.Sprintf("%s stands in %s and in %s.", r.Dir, other, a.Name))
			}
			where[r.Dir] = a.Name
		}
	}
	return w
}

// reachWarning tells of arms that were given less compute than others.
func reachWarning(arms []NamedRuns) []string {
	if len(arms) == 0 {
		return nil
	}
	longest, shortest := arms[0], arms[0]
	for _, a := range arms {
		if furthest(a) > furthest(longest) {
			longest = a
		}
		if furthest(a) < furthest(shortest) {
			shortest = a
		}
	}
	if furthest(shortest) >= 0.95*furthest(longest) {
		return nil
	}
	return []string{fmt.Sprintf("%s goes to %.4g of compute, %s to %.4g: differences are taken at the last step that both came to.",
		shortest.Name, furthest(shortest), longest.Name, furthest(longest))}
}

func targetText(n Number) string {
	if !n.Known() {
		return "none"
	}
	return strconv.FormatFloat(n.Float(), 'g', 4, 64)
}

// joined lists values as words.
func joined[T any](values []T, text func(T) string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = text(v)
	}
	return strings.Join(list, ", ")
}
