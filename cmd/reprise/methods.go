package main

import (
	"fmt"
	"io"
	"os"

	"github.com/reprise-rl/reprise/configs"
	"github.com/reprise-rl/reprise/internal/words"
)

// methodsCommand lists the published methods of replay, or shows one.
type methodsCommand struct {
	Name string `arg:"" optional:"" predictor:"method" help:"Name of a method, to print its keys. Without one, list the methods."`
	JSON bool   `name:"json" help:"Print the list as JSON."`
}

// listedMethod is a method in the list as JSON.
type listedMethod struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Source string `json:"source"`
	Read   string `json:"read,omitempty"`
	Here   string `json:"here,omitempty"`
	Needs  string `json:"needs,omitempty"` // before it is a configuration
}

// Run prints the list, or the file of a method.
func (c *methodsCommand) Run() error {
	if c.Name == "" {
		return c.list(os.Stdout)
	}
	m, err := configs.MethodByName(c.Name)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(m.Text)
	return err
}

func (c *methodsCommand) list(w io.Writer) error {
	all, widest := configs.Methods(), 0
	if c.JSON {
		var list []listedMethod
		for _, m := range all {
			list = append(list, listedMethod{m.Name, m.Title, m.Source, m.Read, m.Here, m.Needs})
		}
		return printJSON(list)
	}
	for _, m := range all {
		widest = max(widest, len(m.Name))
	}
	line := func(m configs.Method, text string) {
		fmt.Fprint(w, words.Wrap(fmt.Sprintf("%-*s  ", widest, m.Name), text))
	}
	for _, m := range all {
		if m.Needs == "" {
			line(m, m.Title+" ("+m.Source+")")
		}
	}
	fmt.Fprintln(w, "\nNot yet, and what each needs:")
	for _, m := range all {
		if m.Needs != "" {
			line(m, m.Title+" ("+m.Source+") Needs "+m.Needs+".")
		}
	}
	_, err := fmt.Fprintln(w, "\nreprise train --method NAME runs one, and reprise methods NAME prints its keys.")
	return err
}
