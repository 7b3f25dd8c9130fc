package hf

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task/arithmetic"
)

// chatCase is a conversation as transformers renders and encodes it.
type chatCase struct {
	Question, Answer, Observed string
	PromptIDs, WholeIDs        []int32
}

// chatGolden is testdata/chat.json.gz (testdata/chat.py).
type chatGolden struct {
	Kinds map[string]struct {
		Files map[string]string
		Cases []chatCase
	}
	SmolLM2 []chatCase
}

func readChatGolden(t testing.TB) (g chatGolden) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "chat.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(&g)
	}
	if err != nil || len(g.Kinds) != 5 || len(g.SmolLM2) == 0 {
		t.Fatalf("%d kinds, %v", len(g.Kinds), err)
	}
	return g
}

// chatTokenizer makes the tokenizer of a kind, with files changed: pairs of name and content, no content for none.
func chatTokenizer(t testing.TB, kind string, changes ...string) *Tokenizer {
	t.Helper()
	files := make(map[string][]byte)
	for name, content := range readChatGolden(t).Kinds[kind].Files {
		files[name] = []byte(content)
	}
	for i := 0; i < len(changes); i += 2 {
		delete(files, changes[i])
		if changes[i+1] != "" {
			files[changes[i]] = []byte(changes[i+1])
		}
	}
	tok, err := parseTokenizer(files)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// checkChat compares a dialogue with what transformers gives. whole: the template keeps an assistant's message as it
// is, so that a row equals the rendering of the conversation.
func checkChat(t *testing.T, tok *Tokenizer, cases []chatCase, end string, whole func(chatCase) bool) {
	t.Helper()
	d, err := tok.Chat()
	if err != nil {
		t.Fatal(err)
	}
	last := d.end
	if got := tok.tokens[last]; got != end || !slices.Contains(d.Stop(), last) {
		t.Errorf("a turn ends with %q, stop %v: want %q and %d among them", got, d.Stop(), end, last)
	}
	for _, c := range cases {
		row, err := d.Prompt(c.Question)
		if err != nil || !slices.Equal(row, c.PromptIDs) {
			t.Fatalf("prompt %q: %v, %v, want %v", c.Question, row, err, c.PromptIDs)
		}
		if both, err := d.Prompt(c.Question, c.Answer, c.Observed); err != nil || !slices.Equal(both, c.WholeIDs) {
			t.Errorf("prompt with an example: %v, %v, want %v", both, err, c.WholeIDs)
		}
		turn, err := d.Turn(c.Answer)
		if err != nil || turn[len(turn)-1] != last || d.Decode(turn) != c.Answer {
			t.Errorf("turn %q: %v, %v, which reads %q", c.Answer, turn, err, d.Decode(turn))
		}
		observed, err := d.Observation(c.Observed, last)
		if err != nil {
			t.Fatal(err)
		}
		ended := append([]int32{last}, observed...)
		if n := len(c.WholeIDs) - len(ended); n < 0 || !slices.Equal(c.WholeIDs[n:], ended) {
			t.Errorf("observation %q: %v, want the end of %v", c.Observed, ended, c.WholeIDs)
		}
		if got := slices.Concat(row, turn, observed); whole(c) && !slices.Equal(got, c.WholeIDs) {
			t.Errorf("the row of %q, %q, %q is %v, want %v", c.Question, c.Answer, c.Observed, got, c.WholeIDs)
		}
		if cut, err := d.Observation(c.Observed, turn[0]); err != nil || !slices.Equal(cut, ended) {
			t.Errorf("observation after a turn that was cut off: %v, %v, want %v", cut, err, ended)
		}
	}
}

func TestDialoguesAgreeWithTransformers(t *testing.T) {
	always := func(chatCase) bool { return true }
	never := func(chatCase) bool { return false } // there is a space before its end of turn
	plain := func(c chatCase) bool { return !strings.Contains(c.Answer, "<think>") }
	kinds := readChatGolden(t).Kinds
	for kind, want := range map[string]struct {
		end   string
		whole func(chatCase) bool
	}{
		"chatml": {"<|im_end|>", always}, "thinking": {"<|im_end|>", plain}, "llama3": {"<|eot_id|>", always},
		"gemma": {"<end_of_turn>", always}, "mistral": {"</s>", never},
	} {
		t.Run(kind, func(t *testing.T) { checkChat(t, chatTokenizer(t, kind), kinds[kind].Cases, want.end, want.whole) })
	}
}

func TestSmolLM2AgreesWithTransformers(t *testing.T) {
	dir := os.Getenv("REPRISE_SMOLLM2")
	if dir == "" {
		t.Skip("REPRISE_SMOLLM2 names no folder of SmolLM2-135M-Instruct")
	}
	tok, err := ReadTokenizer(dir)
	if err != nil {
		t.Fatal(err)
	}
	checkChat(t, tok, readChatGolden(t).SmolLM2, "<|im_end|>", func(chatCase) bool { return true })
}

func TestPlainDialoguesAreTheTokenizers(t *testing.T) {
	tok := chatTokenizer(t, "llama3")
	d := tok.Plain()
	want, _ := tok.Encode("What is")
	if got, err := d.Prompt("What is"); err != nil || !slices.Equal(got, want) || int(got[0]) != tok.BOS() {
		t.Errorf("prompt %v, %v, want %v", got, err, want)
	}
	want, _ = tok.EncodePart(" 2")
	if got, err := d.Observation(" 2", 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("observation %v, %v, want %v", got, err, want)
	}
	if got, err := d.Turn(" 2"); err != nil || !slices.Equal(got, append(want, tok.EOS()[0])) || d.Decode(got) != " 2" {
		t.Errorf("turn %v, %v, want %v and %d", got, err, want, tok.EOS())
	}
	tok.eos = nil
	if _, err := tok.Plain().Turn("2"); err == nil || !strings.Contains(err.Error(), "add eos_token_id") {
		t.Errorf("a turn without an end: %v", err)
	}
}

func TestExamplesThatCannotBeEncodedAreNamed(t *testing.T) {
	for want, examples := range map[string]int{"with task.examples: ": 2, "": 0} {
		made, err := arithmetic.New(arithmetic.Settings{Examples: examples}, 1)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := NewCharTokenizer(made.Characters()) // without line breaks
		if err != nil {
			t.Fatal(err)
		}
		d, err := tok.ForTask(made)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Ask(made.Train(0))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d examples: %v, want %q", examples, err, want)
		}
	}
}

func TestEndsOfTurnAreFoundInEveryFile(t *testing.T) {
	id := func(tok *Tokenizer, s string) int32 {
		for id, text := range tok.tokens {
			if text == s {
				return id
			}
		}
		t.Fatalf("no token %s", s)
		return 0
	}
	for file, content := range map[string]string{
		generationFile: `{"eos_token_id": [%d, %d]}`, ConfigFile: `{"eos_token_id": [%d, %d]}`,
	} {
		tok := chatTokenizer(t, "llama3")
		end, eot := id(tok, "<|end_of_text|>"), id(tok, "<|eot_id|>")
		tok = chatTokenizer(t, "llama3", file, fmt.Sprintf(content, end, eot))
		d, err := tok.Chat()
		if want := []int32{end, eot}; err != nil || !slices.Equal(tok.EOS(), want) || !slices.Equal(d.Stop(), want) {
			t.Errorf("%s: EOS %v, stop %v, %v, want %v", file, tok.EOS(), d.Stop(), err, want)
		}
	}
}

func TestBadChatTemplatesAreRefused(t *testing.T) {
	const loop = "{% for m in messages %}"
	for want, template := range map[string]string{
		"parse chat_template.jinja: line 1: tag include":              "{% include 'x' %}",
		"the template refuses the messages: never":                    "{{ raise_exception('never') }}",
		"does not show earlier messages of the assistant":             "{{ messages[-1].content }}",
		`puts "observation" after an assistant's message: want a tok`: loop + "{{ m.content }}{% endfor %}",
		`strftime_now: "%d %j": directive %j is not supported`:        "{{ strftime_now('%d %j') }}",
		`strftime_now: "100%": directive % is not supported`:          "{{ strftime_now('100%') }}",
		"works too long": loop + "{% for i in range(1000000000) %}{% endfor %}{% endfor %}",
		"want \"<|im_end|>\" first": loop + "{{ m.content }}{{ '<|im_end|>' if messages[-1].content == 'observation' else " +
			"'<|im_start|>' }}{% endfor %}",
	} {
		d, err := chatTokenizer(t, "chatml", templateFile, template).Chat()
		if err == nil {
			_, err = d.Observation("another", d.end)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", template, err, want)
		}
	}
	for want, config := range map[string]string{
		"neither chat_template.jinja nor chat_template in tokenizer_config.json": `{}`,
		"tokenizer_config.json: chat_template: 5: want a template, or a list":    `{"chat_template": 5}`,
		"of which one is named default":                                          `{"chat_template": [{"name": "rag"}]}`,
	} {
		if _, err := chatTokenizer(t, "chatml", tokConfigFile, config).Chat(); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}
