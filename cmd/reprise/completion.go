package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/posener/complete"
	"github.com/willabides/kongplete"

	"github.com/reprise-rl/reprise/lab/study"
	"github.com/reprise-rl/reprise/lab/task/catalog"
)

// completionCommand prints what makes a shell complete verbs, flags and values: it runs this program with the line so
// far in COMP_LINE, which [complete] answers.
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
	_, err = fmt.Print(strings.ReplaceAll(script, "PROGRAM", shellWord(program)))
	return err
}

// completes answers a shell that asks for completions, and reports whether one does.
func completes(parser *kong.Kong) bool {
	if os.Getenv("COMP_LINE") == "" {
		return false
	}
	kongplete.Complete(parser, kongplete.WithExitFunc(func(int) {}), kongplete.WithPredictors(map[string]complete.Predictor{
		"task": complete.PredictSet(catalog.Names()...),
		"study": complete.PredictFunc(func(complete.Args) (names []string) {
			for _, s := range study.All() {
				names = append(names, s.Name)
			}
			return append(names, allStudies)
		}),
	}))
	return true
}
