package configs

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bare is the configuration that methods are laid over if none is named.
//
//go:embed bare.yaml
var Bare []byte

//go:embed methods/*.yaml
var files embed.FS

// Method is a published way to replay, reuse or reschedule rollouts.
type Method struct {
	Name   string
	Title  string // what it does
	Source string // where it was published
	Read   string // what of that we read
	Here   string // what differs here, and what is ours because the source gives none
	Needs  string // what has to be built before it is a configuration; "": it is one
	Text   []byte // the keys that it sets, with what is above as comments
}

// Methods returns all methods by name: those that are configurations, and those that are not yet.
func Methods() []Method {
	entries, err := files.ReadDir("methods")
	if err != nil {
		panic(err) // it is embedded
	}
	list := missing()
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("methods", e.Name()))
		if err != nil {
			panic(err)
		}
		list = append(list, parseMethod(strings.TrimSuffix(e.Name(), ".yaml"), text))
	}
	slices.SortFunc(list, func(a, b Method) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// parseMethod reads the comments that a method's file begins with: the title, and lines "Source:", "Read:" and "Here:",
// each with lines that go on with it.
func parseMethod(name string, text []byte) Method {
	m := Method{Name: name, Text: text}
	into := &m.Title
	for line := range strings.Lines(string(text)) {
		comment, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "# ")
		if !ok {
			break
		}
		for head, field := range map[string]*string{"Source: ": &m.Source, "Read: ": &m.Read, "Here: ": &m.Here} {
			if rest, ok := strings.CutPrefix(comment, head); ok {
				comment, into = rest, field
			}
		}
		*into = strings.TrimSpace(*into + " " + strings.TrimSpace(comment))
	}
	return m
}

// MethodByName returns a method that is a configuration.
func MethodByName(name string) (Method, error) {
	all := Methods()
	i := slices.IndexFunc(all, func(m Method) bool { return m.Name == name })
	if i >= 0 && all[i].Needs == "" {
		return all[i], nil
	}
	if i >= 0 {
		return Method{}, fmt.Errorf("%s (%s) is not a configuration yet: it needs %s", name, all[i].Source, all[i].Needs)
	}
	var names []string
	for _, m := range all {
		if m.Needs == "" {
			names = append(names, m.Name)
		}
	}
	return Method{}, fmt.Errorf("%s: want one of %s", name, strings.Join(names, ", "))
}

// missing are methods that are no configurations yet.
func missing() []Method {
	return []Method{
		{Name: "dots", Title: "DOTS with replay: prompts by predicted difficulty.", Source: "arXiv 2506.05316",
			Needs: "a predictor of difficulty; the score takes one that is reported"},
		{Name: "rrl", Title: "RRL: promising states of early training are explored again.", Source: "arXiv 2504.14363",
			Needs: "a score of unfinished answers, by which states are chosen"},
		{Name: "spec-rl", Title: "SPEC-RL: old rollouts as drafts, verified by the present policy.",
			Source: "arXiv 2509.23232", Needs: "the draft's whole distribution, for an exact rule, and costs by token"},
	}
}
