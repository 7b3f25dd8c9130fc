package docs

import (
	"os"
	"strings"
	"testing"
)

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
		{"a+b (c)\n", "aab (c)\n", false, false},
	} {
		if got := matches(c.shown, c.printed, c.shape); got != c.want {
			t.Errorf("%q shown, %q printed, shape %v: %v", c.shown, c.printed, c.shape, got)
		}
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

func TestABrokenDocumentIsRed(t *testing.T) {
	r := newRunner(t)
	doc, err := os.ReadFile("design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, design, _ := strings.Cut(string(doc), "```\n$ bin/reprise design\n")
	design, _, _ = strings.Cut(design, "```\n")
	design = "```\n$ bin/reprise design\n" + design + "```\n"
	for _, c := range []struct {
		name, text, want string // of the problem; "" for none
	}{
		{"the real block", design, ""},
		{"a digit of its output is another", strings.Replace(design, "J = 1.311", "J = 1.312", 1), "the document shows"},
		{"its last line is missing", strings.Replace(design, "--set pipeline.rollout_cost=5.28\n", "\n", 1), "shows"},
		{"a flag that does not exist", "```sh\nbin/reprise design --fleet 8\n```\n", "exit status"},
		{"a verb that does not exist", "```sh\nbin/reprise dezign\n```\n", "exit status"},
		{"a key that does not exist", "<!-- run: long -->\n```sh\nbin/reprise train --set replay.size=64 --out x\n```\n",
			"replay.size"},
		{"a command that fails in a pair", "```sh\ntrue\nfalse\ntrue\n```\n", "exit status 1"},
		{"an error that no longer comes", "```\n$ echo reprise: no\nreprise: no\n```\n", "did not fail"},
		{"another error", "```\n$ bin/reprise design --gpus 0\nreprise: no\n```\n", "the document shows"},
		{"a shape that is another", "<!-- run: shape -->\n```\n$ echo 12 rollouts\n1 rollout\n```\n", "shows"},
		{"the output of sh", "```sh\necho 1\necho 2\n```\n\n```\n1\n3\n```\n", "shows"},
		{"an output of nothing", "```\n1\n```\n", "nothing executes it"},
		{"YAML for nobody", "```yaml\na: 1\n```\n", "nothing executes it"},
		{"YAML with an unknown key", "```yaml\n# red.yaml\nreplay: {size: 3}\n```\n\n" +
			"```sh\nbin/reprise train -c red.yaml --set budget.updates=1 --out x\n```\n", "replay.size"},
		{"Go that does not compile", "```go\ntable := replay.New(3)\n```\n", "exit status 1"},
		{"a service that does not start", "```sh\nbin/reprise serve --table name=a,capasity=3 &\n```\n", "capasity"},
		{"a service that prints something else", "```\n$ bin/reprise serve &\nserved\n```\n", "the document shows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.ctx, r.say = t.Context(), t.Logf
			outcomes, err := r.run("red.md", c.text)
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, o := range outcomes {
				if o.problem != "" {
					problems = append(problems, o.problem)
				}
			}
			got := strings.Join(problems, "\n")
			if len(outcomes) == 0 || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("want %q, the problems are %q", c.want, got)
			}
		})
	}
	r.ctx = t.Context()
	if r.python != "" {
		outcomes, err := r.run("red.md", "```python\nprint(1)\n```\n\n```\n2\n```\n\n```python\nimport reprize\n```\n")
		if err != nil || len(outcomes) != 3 || outcomes[0].problem != "" || outcomes[1].problem == "" ||
			!strings.Contains(outcomes[2].problem, "reprize") {
			t.Errorf("Python of another output, and of a missing module: %+v, %v", outcomes, err)
		}
	}
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
