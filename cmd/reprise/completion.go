package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/lab/study"
	"github.com/reprise-rl/reprise/lab/task/catalog"
)

// completionCommand prints what makes a shell complete verbs, flags and values: it runs this program with the line so
// far in COMP_LINE, which [completes] answers.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Scripts that have PROGRAM for the program's path. Where it proposes nothing, shells propose files. Zsh runs bash's.
const (
	completeInBash = "complete -o default -C PROGRAM reprise\n"
	completeInZsh  = "autoload -U +X bashcompinit && bashcompinit\n" + completeInBash
	completeInFish = `function __complete_reprise
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    PROGRAM
end
complete -c reprise -a "(__complete_reprise)"
`
)

// Run prints the script.
func (c *completionCommand) Run() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	script := map[string]string{"bash": completeInBash, "zsh": completeInZsh, "fish": completeInFish}[c.Shell]
	word := shellWord(program)
	if c.Shell != "fish" {
		word = shellWord(word) // bash reads it again
	}
	_, err = fmt.Print(strings.ReplaceAll(script, "PROGRAM", word))
	return err
}

// completes answers a shell that asks for completions, and reports whether one does.
func completes(parser *kong.Kong) bool {
	line := os.Getenv("COMP_LINE")
	if line == "" {
		return false
	}
	if n, err := strconv.Atoi(os.Getenv("COMP_POINT")); err == nil && n >= 0 && n < len(line) {
		line = line[:n] // up to the cursor
	}
	words := append(strings.Fields(line), "")
	words, last := words[:max(1, len(words)-1)], ""
	if n := len(words); n > 1 && !strings.HasSuffix(line, " ") {
		words, last = words[:n-1], words[n-1]
	}
	for _, word := range completions(parser.Model.Node, words[1:], last) {
		fmt.Println(word)
	}
	return true
}

// completions returns what the last word of a command line may become, after the words before it. It is none where the
// shell proposes files.
func completions(at *kong.Node, before []string, last string) (list []string) {
	flags := slices.Clone(at.Flags)
	var value *kong.Value // of the flag before
	positional := 0
	for _, word := range before {
		switch child := childNamed(at, word); {
		case value != nil:
			value = nil
		case strings.HasPrefix(word, "-"):
			value = valueAfter(flags, word)
		case child != nil:
			at, positional, flags = child, 0, append(flags, child.Flags...)
		default:
			positional++
		}
	}
	switch {
	case value != nil:
		list = valuesOf(value)
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				list = append(list, "--"+f.Name)
			}
		}
	case positional < len(at.Positional):
		list = valuesOf(at.Positional[positional])
	default:
		for _, c := range at.Children {
			if !c.Hidden {
				list = append(list, c.Name)
			}
		}
	}
	return slices.DeleteFunc(list, func(word string) bool { return !strings.HasPrefix(word, last) })
}

func childNamed(at *kong.Node, name string) *kong.Node {
	if i := slices.IndexFunc(at.Children, func(c *kong.Node) bool { return c.Name == name }); i >= 0 {
		return at.Children[i]
	}
	return nil
}

// valueAfter returns the value that follows on a flag as it was typed, nil if none does.
func valueAfter(flags []*kong.Flag, word string) *kong.Value {
	for _, f := range flags {
		if (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) && !f.IsBool() && !f.IsCounter() {
			return f.Value
		}
	}
	return nil
}

// valuesOf returns what a value may be, nil if that is not known. The tag predictor names a list.
func valuesOf(v *kong.Value) (names []string) {
	switch v.Tag.Get("predictor") {
	case "task":
		return catalog.Names()
	case "method":
		for _, m := range configs.Methods() {
			if m.Needs == "" {
				names = append(names, m.Name)
			}
		}
		return names
	case "study":
		for _, s := range study.All() {
			names = append(names, s.Name)
		}
		return append(names, allStudies)
	}
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
