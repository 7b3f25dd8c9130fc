package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
)

// modelFolder writes a small random model that speaks the characters of sums.
func modelFolder(t *testing.T) string {
	t.Helper()
	tokenizer, err := hf.NewCharTokenizer("0123456789+=")
	if err != nil {
		t.Fatal(err)
	}
	model, err := policy.NewModel(hf.Config{
		ModelType: hf.Llama, VocabSize: tokenizer.VocabSize(), HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 1,
		NumAttentionHeads: 2, NumKeyValueHeads: 1, MaxPositionEmbeddings: 32, TieWordEmbeddings: true,
		BOSTokenID: hf.NoToken, EOSTokenIDs: []int{1}, PadTokenID: 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	weights, err := model.Initial(1)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := model.Save(dir, weights, tokenizer); err != nil {
		t.Fatal(err)
	}
	return dir
}

// decode reads text that must be one JSON value with just the fields of v.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one JSON value:\n%s", text)
	}
}

func TestAModelIsAFolderOrTheCheckpointOfARun(t *testing.T) {
	t.Parallel()
	model := modelFolder(t)
	at := func(parts ...string) string { return filepath.Join(append([]string{t.TempDir()}, parts...)...) }
	generate := func(model string) []string {
		return []string{"generate", "--model", model, "--prompt", "1+1=", "--max-tokens", "3"}
	}
	run := at("run")
	if err := os.CopyFS(filepath.Join(run, "checkpoint"), os.DirFS(model)); err != nil {
		t.Fatal(err)
	}
	if got, want := succeeds(t, "", generate(run)...), succeeds(t, "", generate(model)...); got != want {
		t.Errorf("the run's model says %q, that of its checkpoint %q", got, want)
	}
	if got, want := succeeds(t, "[2, 3]", "score", "--model", run), succeeds(t, "[2, 3]", "score", "--model", model); got != want {
		t.Errorf("the run's model scores %q, that of its checkpoint %q", got, want)
	}
	comparison, empty := at("both"), at()
	if err := os.MkdirAll(filepath.Join(comparison, "replay", "seed-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	fails(t, call(t, "", generate(comparison)...), "--model: "+comparison+" holds several runs",
		filepath.Join(comparison, "replay", "seed-1"))
	fails(t, call(t, "", generate(empty)...), "--model: "+empty+" has neither config.json nor a checkpoint")
	fails(t, call(t, "", generate(at("nowhere"))...), "nowhere does not exist: want a Hugging Face model folder")
}

func TestGenerateAsksInTheChatTemplate(t *testing.T) {
	t.Parallel()
	dir := modelFolder(t)
	args := []string{"generate", "--model", dir, "--chat", "--prompt", "12", "--temperature", "0", "--max-tokens", "4"}
	want := "--chat: " + dir + ": the folder has neither chat_template.jinja"
	if out := fails(t, call(t, "", args...), want); out != "" {
		t.Errorf("without a template: %q", out)
	}
	template := "{% for m in messages %}{{ '+' if m.role == 'user' else '' }}{{ m.content }}" +
		"{{ '<eos>' if m.role == 'assistant' else '' }}{% endfor %}{{ '=' if add_generation_prompt else '' }}"
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked, plain completion
	decode(t, succeeds(t, "", append(args, "--json")...), &asked)
	decode(t, succeeds(t, "", "generate", "--model", dir, "--prompt", "+12=", "--temperature", "0", "--max-tokens", "4",
		"--json"), &plain)
	if !reflect.DeepEqual(asked, plain) || len(asked.PromptIDs) != 4 {
		t.Errorf("%+v, want %+v", asked, plain)
	}
	if got := succeeds(t, "", args...); got != asked.Text+"\n" {
		t.Errorf("prints %q, want the answer %q", got, asked.Text)
	}
}

func TestGeneratedTokensCarryTheLogprobsOfScore(t *testing.T) {
	t.Parallel()
	dir := modelFolder(t)
	args := []string{"generate", "--model", dir, "--prompt", "12+34=", "--max-tokens", "9", "--json", "--seed", "5"}
	text := succeeds(t, "", args...)
	var c completion
	decode(t, text, &c)
	if want := []int32{3, 4, 12, 5, 6, 13}; !reflect.DeepEqual(c.PromptIDs, want) {
		t.Errorf("prompt_ids %v, want %v", c.PromptIDs, want)
	}
	if len(c.IDs) == 0 || len(c.IDs) > 9 || len(c.IDs) != len(c.Logprobs) || c.Truncated != (c.IDs[len(c.IDs)-1] != 1) {
		t.Errorf("completion %+v", c)
	}
	for _, key := range []string{"prompt_ids", "ids", "logprobs", "text", "truncated"} {
		if !strings.Contains(text, fmt.Sprintf("%q:", key)) {
			t.Errorf("%s is not in %s", key, text)
		}
	}
	if again := succeeds(t, "", args...); again != text {
		t.Errorf("the same seed gave\n%sthen\n%s", text, again)
	}
	ids, err := json.Marshal(append(c.PromptIDs, c.IDs...))
	if err != nil {
		t.Fatal(err)
	}
	var s scored
	decode(t, succeeds(t, string(ids), "score", "--model", dir), &s)
	for i, l := range c.Logprobs {
		if math.Abs(float64(l-s.Logprobs[6+i])) > 1e-5 {
			t.Errorf("token %d: generate says %v, score %v", i, l, s.Logprobs[6+i])
		}
	}
	if plain := succeeds(t, "", args[:len(args)-3]...); !strings.HasPrefix(plain, "12+34=") ||
		strings.Count(plain, "\n") != 1 {
		t.Errorf("without --json: %q", plain)
	}
}

func TestGreedyGenerationNeedsNoSeed(t *testing.T) {
	t.Parallel()
	dir := modelFolder(t)
	args := []string{"generate", "--model", dir, "--prompt", "1", "--temperature", "0", "--max-tokens", "100000000",
		"--json", "--seed"}
	first, second := succeeds(t, "", append(args, "1")...), succeeds(t, "", append(args, "2")...)
	if first != second {
		t.Errorf("seed 1 gave\n%sseed 2\n%s", first, second)
	}
	var c completion
	if decode(t, first, &c); c.Truncated && len(c.IDs) != 31 {
		t.Errorf("%d tokens of the 31 that the model's positions leave room for", len(c.IDs))
	}
}

func TestModelsAndPromptsThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	dir, missing := modelFolder(t), filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"--model: " + missing + " does not exist: want a Hugging Face model folder, or a run": {"--model", missing,
			"--prompt", "1"},
		"--prompt:": {"--model", dir, "--prompt", "hello"},
		"prompt 0 has 40 tokens, the model's 32 positions": {"--model", dir, "--prompt", strings.Repeat("1", 40)},
		"row 0 has no tokens":                              {"--model", dir, "--prompt", ""},
		"temperature: -1: want":                            {"--model", dir, "--prompt", "1", "--temperature=-1"},
		"top_p: 2: want":                                   {"--model", dir, "--prompt", "1", "--top-p=2"},
		"max_tokens: 0: want":                              {"--model", dir, "--prompt", "1", "--max-tokens=0"},
	} {
		if out := fails(t, call(t, "", append([]string{"generate", "--json"}, args...)...), want); out != "" {
			t.Errorf("reprise generate %v wrote %q", args, out)
		}
	}
}

func TestScoreReadsListsAndObjects(t *testing.T) {
	t.Parallel()
	dir := modelFolder(t)
	out := succeeds(t, "[2, 3, 4]\n\n{\"ids\": [2, 3, 4], \"other\": 1}\n[5]\n", "score", "--model", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || lines[0] != lines[1] {
		t.Fatalf("scores of two spellings and a third line:\n%s", out)
	}
	var s scored
	decode(t, lines[0], &s)
	if len(s.Logprobs) != 3 || len(s.Entropy) != 3 || s.Logprobs[0] != 0 || s.Logprobs[1] >= 0 || s.Entropy[2] <= 0 {
		t.Errorf("scores %+v", s)
	}
	var hot scored
	decode(t, succeeds(t, "[2, 3, 4]", "score", "--model", dir, "--temperature", "50"), &hot)
	if math.Abs(float64(hot.Entropy[1])-math.Log(14)) > 1e-3 {
		t.Errorf("at temperature 50 the entropy is %v, nearly that of 14 tokens alike is wanted", hot.Entropy[1])
	}
}

func TestScoreRefusesALineByItsNumberAfterThoseBefore(t *testing.T) {
	t.Parallel()
	dir := modelFolder(t)
	for want, line := range map[string]string{
		"line 2: hello: want a list of token ids":     "hello",
		"line 2: [1.5]: want a list of token ids":     "[1.5]",
		`line 2: {"tokens": [1]}: want a list`:        `{"tokens": [1]}`,
		"line 2: score: row 0 has no tokens":          "[]",
		"token 1: id 14 is out of range: the vocabul": "[1, 14]",
		"row 0 has 33 tokens, the model 32 positions": "[1" + strings.Repeat(",1", 32) + "]",
	} {
		out := fails(t, call(t, "[2, 3]\n"+line+"\n[4]\n", "score", "--model", dir), want)
		if strings.Count(out, "\n") != 1 {
			t.Errorf("before %q %d lines were scored, want 1", line, strings.Count(out, "\n"))
		}
	}
}

func TestVerifyRewardsLinesAndRefusesOthers(t *testing.T) {
	t.Parallel()
	for task, c := range map[string]struct{ in, want string }{
		"arithmetic": {`{"response": "46", "answer": "46"}`,
			`{"answer":"46","correct":true,"extracted":"46","response":"46","reward":1}`},
		"math": {`{"response": "\\boxed{x \\le 3}", "answer": "(-\\infty,3]"}`,
			`{"answer":"(-\\infty,3]","correct":true,"extracted":"x \\le 3","response":"\\boxed{x \\le 3}","reward":1}`},
		"gsm8k": {`{"response": "so #### 1,000", "answer": "#### 1000", "id": 7}`,
			`{"answer":"#### 1000","correct":true,"extracted":"1000","id":7,"response":"so #### 1,000","reward":1}`},
	} {
		if out := succeeds(t, c.in, "verify", task); strings.TrimSpace(out) != c.want {
			t.Errorf("verify %s: got\n%swant\n%s", task, out, c.want)
		}
	}
	good := `{"response": "46", "answer": "46"}` + "\n"
	if out := fails(t, call(t, good+"{\n"+good, "verify", "arithmetic"),
		`line 2: "{" is not a JSON object`); strings.Count(out, "\n") != 1 {
		t.Errorf("lines before a bad one:\n%s", out)
	}
	fails(t, call(t, `{"response": "46"}`, "verify", "arithmetic"), "line 1: field answer: missing: want a string")
	fails(t, call(t, good, "verify", "chess"), "name: chess: want one of arithmetic")
	fails(t, call(t, good, "verify", "math", "--flexible"), "--flexible works with task gsm8k only, not math")
	hedged := `{"response": "#### 3 or 4", "answer": "4"}`
	for reward, args := range map[string][]string{`"reward":0`: nil, `"reward":1`: {"--flexible"}} {
		if out := succeeds(t, hedged, append([]string{"verify", "gsm8k"}, args...)...); !strings.Contains(out, reward) {
			t.Errorf("verify gsm8k %v: got\n%swant %s", args, out, reward)
		}
	}
}
