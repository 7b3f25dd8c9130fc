// Package docs runs the commands and code in README.md and the guides and compares their output.
//
// A document is its fenced blocks, in order:
//
//   - Lines after "$ " are commands, and what follows them is their output. "^C" interrupts the service.
//   - sh is commands without output. A plain block is the output of the block before it.
//   - python runs in one interpreter for each document, go is compiled and run as the body of main.
//   - Code copied from examples/ is not run; it has tests there.
//   - A block that begins with a comment that names a file ("# my.yaml") is written to that file.
//
// "$ cat FILE" writes the file that it shows. In an output … stands for anything, and a line may be broken where
// there is a space. A command whose output has a line that begins with "reprise: " must fail, every other must succeed.
// `reprise serve` and `board` go on in the background until "^C", the next one, or the document's end; their ports are
// replaced by free ones. In a comment before a block:
//
//   - <!-- run: skip, REASON --> executes nothing.
//   - <!-- run: long --> shortens every `reprise train` unless the form is long, and then compares no output.
//   - <!-- run: hours --> shortens training and studies in the long form, and is skipped in the short one.
//   - <!-- run: shape --> takes any number for a number, any duration for a duration, and compares no
//     spacing.
//   - <!-- run: needs NAME --> skips unless there is a program, Python module, or folder of shared/data of that name.
//   - <!-- before: CODE --> is Python or Go that a reader has: it runs before the block, in its scope.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is one fenced block.
type block struct {
	doc      string
	line     int // of its fence
	language string
	text     string
	modes    []string
	before   string // hidden code
}

// mode returns what follows a mode of a block, and whether the block has it.
func (b block) mode(name string) (string, bool) {
	for _, m := range b.modes {
		if m == name || strings.HasPrefix(m, name+" ") || strings.HasPrefix(m, name+", ") {
			return strings.TrimLeft(m[len(name):], ", "), true
		}
	}
	return "", false
}

var modes = regexp.MustCompile(`^(skip, .*|long|hours|shape|needs \S+)$`)

// A comment of ours at the end of the text above a block.
var comment = regexp.MustCompile(`(?s)^<!-- (run|before): (.*?) *-->\n*$`)

// parse returns the fenced blocks of a document, and an error for a mode or a fence that it does not know.
func parse(doc, text string) (blocks []block, err error) {
	lines := strings.SplitAfter(text, "\n")
	for i, last := 0, 0; i < len(lines); i++ {
		language, fenced := strings.CutPrefix(strings.TrimRight(lines[i], "\n"), "```")
		if !fenced {
			continue
		}
		end := slices.Index(lines[i+1:], "```\n")
		if end < 0 {
			return nil, fmt.Errorf("%s:%d: the block has no end", doc, i+1)
		}
		b := block{doc: doc, line: i + 1, language: language, text: strings.Join(lines[i+1:i+1+end], "")}
		above := strings.Join(lines[last:i], "")
		for {
			at := max(strings.LastIndex(above, "<!-- "), 0)
			m := comment.FindStringSubmatch(above[at:])
			if m == nil {
				break
			}
			above = above[:at]
			if m[1] == "before" {
				b.before = m[2] + "\n" + b.before
			} else if modes.MatchString(m[2]) {
				b.modes = append(b.modes, m[2])
			} else {
				return nil, fmt.Errorf("%s:%d: run: %s: want skip, REASON, long, hours, shape or needs NAME", doc, i+1,
					m[2])
			}
		}
		if !slices.Contains([]string{"", "sh", "python", "go", "yaml"}, language) {
			return nil, fmt.Errorf("%s:%d: a block of %q: want sh, python, go, yaml or none", doc, i+1, language)
		}
		blocks = append(blocks, b)
		i += end + 1
		last = i + 1
	}
	return blocks, nil
}

// command is what a reader types, and what the document says it prints.
type command struct {
	text   string
	line   int
	output string
	shown  bool // the document shows an output
}

// session splits a block of "$ " lines.
func session(b block) (commands []command) {
	continued := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		typed, prompt := strings.CutPrefix(line, "$ ")
		last := len(commands) - 1
		switch {
		case line == "^C":
			commands, continued = append(commands, command{line: b.line + 1 + i}), false
		case prompt:
			commands = append(commands, command{text: typed, line: b.line + 1 + i})
			continued = strings.HasSuffix(line, `\`)
		case continued:
			commands[last].text += "\n" + line
			continued = strings.HasSuffix(line, `\`)
		case last >= 0 && (line != "" || commands[last].shown):
			commands[last].output += line + "\n"
			commands[last].shown = true
		}
	}
	return commands
}

// script splits a block of commands: one goes on after a backslash, and until loops are closed.
func script(b block) (commands []command) {
	open := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		line, _, _ = strings.Cut(line, "  # ")
		line = strings.TrimRight(line, " ")
		if open {
			commands[len(commands)-1].text += "\n" + line
		} else if line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, command{text: line, line: b.line + 1 + i})
		} else {
			continue
		}
		text := commands[len(commands)-1].text
		open = strings.HasSuffix(line, `\`) || strings.HasPrefix(text, "for ") && !strings.HasSuffix(text, "\ndone")
	}
	return commands
}

var (
	words = regexp.MustCompile(`\s+`)
	// A duration, as Go prints it, has its unit: 0s, 15ms.
	numbers = regexp.MustCompile(`(\\?[-+−])?[0-9]([0-9]|,[0-9]|\\\.[0-9]|e[-+0-9]|\\\+[0-9])*((ns|µs|ms|s)\b)?`)
)

// laterProgress is the lines about progress that a command prints every 10 s, after the first: a fast machine has none.
var laterProgress = regexp.MustCompile(`(?m)^(?:warm-up  step (?:[2-9]|\d\d+) of at most \d+  loss .*|run  ETA .*)\n`)

// matches reports whether a command printed what the document shows.
func matches(shown, printed string, shape bool) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(shown))
	if shape {
		pattern = numbers.ReplaceAllStringFunc(pattern, func(number string) string {
			const any = `[-+−]?[0-9][0-9.,e+-]*`
			if strings.HasSuffix(number, "s") {
				return any + `(ns|µs|ms|s)`
			}
			return any
		})
		pattern = words.ReplaceAllLiteralString(pattern, `\s+`)
	}
	pattern = regexp.MustCompile(`[ \t]*\n\s*`).ReplaceAllLiteralString(pattern, `\s+`)
	pattern = regexp.MustCompile(`(\\s\+)?…(\\s\+)?`).ReplaceAllLiteralString(pattern, `(?s:.*)`)
	return regexp.MustCompile(`^\s*` + pattern + `\s*$`).MatchString(printed)
}

// named returns the file that a block names in its first line.
func named(b block) (string, bool) {
	m := regexp.MustCompile(`^(?:#|//) ([\w./-]+\.(?:yaml|go|py|jsonl))\n`).FindStringSubmatch(b.text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// documents returns the paths of the documents, README.md first.
func documents(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{filepath.Join("..", "README.md")}, paths...)
}

func TestUnknownModesAndLanguagesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"<!-- run: sometimes -->\n```sh\nls\n```\n": "doc.md:2: run: sometimes: want skip",
		"<!-- run: skip -->\n```sh\nls\n```\n":      "doc.md:2: run: skip: want skip, REASON",
		"```console\n$ ls\n```\n":                   `doc.md:1: a block of "console"`,
		"text\n```sh\nls\n":                         "doc.md:2: the block has no end",
	} {
		if _, err := parse("doc.md", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestWhatADocumentShowsIsCompared(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		shape, want    bool
	}{
		{"a 1\nb 2\n", "a 1\nb 2\n", false, true},
		{"a 1\nb 2\n", "a 1\nb 3\n", false, false},
		{"a 1\n", "a 1\nb 2\n", false, false},
		{"a 1\nb\n  c\n", "a 1 b c\n", false, true}, // a line broken at a space
		{"a  1\n", "a 1\n", false, false},
		{"a\n…\nd\n", "a\nb\nc\nd\n", false, true},
		{"a\n…\nd\n", "a\nb\nc\n", false, false},
		{"x (…) y\n", "x (12) y\n", false, true},
		{"took 1.5e-3 s, −2 and 1,000\n", "took 12 s,  0.5 and 7\n", true, true},
		{"took 1.5 s\n", "took no s\n", true, false},
		{"took 1 s\n", "took 1 h\n", true, false},
		{"took 15ms, 3 steps\n", "took 0s, 12 steps\n", true, true},
		{"took 15ms\n", "took 15\n", true, false},
		{"a+b (c)\n", "aab (c)\n", false, false},
	} {
		if got := matches(c.shown, c.printed, c.shape); got != c.want {
			t.Errorf("%q shown, %q printed, shape %v: %v", c.shown, c.printed, c.shape, got)
		}
	}
}

func TestOnlyLaterLinesAboutProgressAreLeftOut(t *testing.T) {
	const fast = "warm-up  step 1 of at most 600  loss 3.000\nwarm-up  done after 140 of at most 600 steps\n\n" +
		"my addition, seed 3: 48 updates (budget)\n"
	slow := strings.NewReplacer("3.000\n", "3.000\nwarm-up  step 250 of at most 600  loss 1.200\n"+
		"run  ETA 0s  pass@1 0.155  update 48\n").Replace(fast)
	if got := laterProgress.ReplaceAllString(slow, ""); got != fast {
		t.Errorf("%q, want %q", got, fast)
	}
}

func TestEveryDigitOfAnOutputCounts(t *testing.T) {
	digits := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := parse(path, string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if _, shape := b.mode("shape"); shape || b.language != "" {
				continue
			}
			outputs := session(b)
			if len(outputs) == 0 {
				outputs = []command{{output: b.text, line: b.line}}
			}
			for _, c := range outputs {
				if strings.Contains(c.output, "…") {
					continue // it may stand for what another digit leads to
				}
				for i := range len(c.output) {
					if d := c.output[i]; d >= '0' && d <= '9' {
						digits++
						if matches(c.output, c.output[:i]+string('0'+(d-'0'+1)%10)+c.output[i+1:], false) {
							t.Errorf("%s:%d: %.40q… could have another digit at %d", path, c.line, c.output, i)
						}
					}
				}
			}
		}
	}
	if digits < 500 {
		t.Errorf("the documents show %d digits: want more", digits)
	}
}
