package hf

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// goldenFile is testdata/golden.json.gz: what Hugging Face's library does (testdata/golden.py).
type goldenFile struct {
	Strings    []string
	Tokenizers map[string]struct {
		JSON json.RawMessage
		goldenResults
	}
	TinyStories goldenResults
}

type goldenResults struct {
	Encoded []struct {
		IDs, Part []int32
		Text      string
	}
	Noise []struct {
		IDs  []int32
		Text string
	}
}

func readGolden(t testing.TB) goldenFile {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "golden.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g goldenResults) check(t *testing.T, tok *Tokenizer, texts []string) {
	t.Helper()
	if len(g.Encoded) != len(texts) || len(texts) < 100 {
		t.Fatalf("%d results for %d strings", len(g.Encoded), len(texts))
	}
	for i, want := range g.Encoded {
		ids, err := tok.Encode(texts[i])
		if err != nil || !slices.Equal(ids, want.IDs) {
			t.Errorf("Encode(%q) = %v, %v, want %v", texts[i], ids, err, want.IDs)
		}
		if part, err := tok.EncodePart(texts[i]); err != nil || !slices.Equal(part, want.Part) {
			t.Errorf("EncodePart(%q) = %v, %v, want %v", texts[i], part, err, want.Part)
		}
		if got := tok.Decode(want.IDs); got != want.Text || int64(len(got)) > tok.DecodedBytes(want.IDs) {
			t.Errorf("Decode of %q = %q, want %q of at most %d bytes", texts[i], got, want.Text, tok.DecodedBytes(want.IDs))
		}
	}
	for _, n := range g.Noise {
		if got := tok.Decode(n.IDs); got != n.Text || int64(len(got)) > tok.DecodedBytes(n.IDs) {
			t.Errorf("Decode(%v) = %q, want %q of at most %d bytes", n.IDs, got, n.Text, tok.DecodedBytes(n.IDs))
		}
	}
}

func TestTokenizersAgreeWithHuggingFace(t *testing.T) {
	g := readGolden(t)
	for name, want := range g.Tokenizers {
		t.Run(name, func(t *testing.T) {
			tok, err := parseTokenizer(map[string][]byte{tokenizerFile: want.JSON})
			if err != nil {
				t.Fatal(err)
			}
			want.check(t, tok, g.Strings)
		})
	}
}

func TestTinyStoriesTokenizerAgreesWithHuggingFace(t *testing.T) {
	tok, err := ReadTokenizer(tinyStories(t))
	if err != nil {
		t.Fatal(err)
	}
	g := readGolden(t)
	g.TinyStories.check(t, tok, g.Strings)
}

const taskChars = "0123456789+-*= \n?日🙂\"\\"

func TestACharacterVocabularyRoundTrips(t *testing.T) {
	tok, err := NewCharTokenizer(taskChars)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseTokenizer(tok.files)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Tokenizer{tok, again} {
		if k.BOS() != NoToken || k.Pad() != 0 || !slices.Equal(k.EOS(), []int32{1}) ||
			k.VocabSize() != 2+len([]rune(taskChars)) {
			t.Errorf("BOS %d, pad %d, EOS %v, %d ids", k.BOS(), k.Pad(), k.EOS(), k.VocabSize())
		}
		for _, text := range []string{"", "12+34=46\n", taskChars, "  \n\n"} {
			ids, err := k.Encode(text)
			if err != nil || len(ids) != len([]rune(text)) ||
				k.Decode(append(append([]int32{0}, ids...), 1, 0)) != text {
				t.Errorf("%q: ids %v, error %v", text, ids, err)
			}
		}
		if ids, err := k.Encode("1<eos>"); err != nil || !slices.Equal(ids, []int32{3, 1}) {
			t.Errorf("a special token in the text: ids %v, error %v", ids, err)
		}
		if _, err := k.Encode("1x1"); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("an unknown character: error %v", err)
		}
	}
	seeing, err := NewCharTokenizer(taskChars, ImageToken)
	if err != nil {
		t.Fatal(err)
	}
	image := int32(2 + len([]rune(taskChars)))
	if ids, err := seeing.Encode("1" + ImageToken + "2"); err != nil || !slices.Equal(ids, []int32{3, image, 4}) ||
		seeing.Decode(ids) != "12" {
		t.Errorf("an image token in the text: ids %v, error %v", ids, err)
	}
	for _, special := range []string{"1", "<eos>", ""} {
		if _, err := NewCharTokenizer(taskChars, special); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("special token %q", special)) {
			t.Errorf("special token %q: error %v", special, err)
		}
	}
	for chars, want := range map[string]string{"": "want one or more", "aba": "'a' occurs twice",
		"\xff": "valid UTF-8"} {
		if _, err := NewCharTokenizer(chars); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("characters %q: error %v, want %q", chars, err, want)
		}
	}
}

func TestHuggingFaceLoadsTheCharacterVocabulary(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import tokenizers").Run() != nil {
		t.Skip("python3 with the package tokenizers is not there; make test-python, on CI too, runs this with its own")
	}
	tok, err := NewCharTokenizer(taskChars)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := writeBytes(dir, tokenizerFile, tok.files[tokenizerFile]); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", `
import json, sys
from tokenizers import Tokenizer
t = Tokenizer.from_file(sys.argv[1])
ids = t.encode(sys.argv[2] + "<eos>").ids
try:
    t.encode("x")
    refused = False
except Exception:
    refused = True
print(json.dumps([ids, t.decode(ids), refused]))`, filepath.Join(dir, tokenizerFile), taskChars).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ids, err := tok.Encode(taskChars + "<eos>")
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal([]any{ids, taskChars, true})
	if err != nil {
		t.Fatal(err)
	}
	var a, b []any
	if json.Unmarshal(out, &a) != nil || json.Unmarshal(want, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the library gives %s, want %s", out, want)
	}
}

func TestSpecialTokensComeFromTheFirstFileThatNamesThem(t *testing.T) {
	char, err := NewCharTokenizer("abc")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(files map[string]string) (*Tokenizer, error) {
		all := map[string][]byte{tokenizerFile: char.files[tokenizerFile]}
		for name, content := range files {
			all[name] = []byte(content)
		}
		return parseTokenizer(all)
	}
	tok, err := parse(map[string]string{
		generationFile: `{"eos_token_id":[1,2],"bos_token_id":null}`,
		"config.json":  `{"eos_token_id":3,"pad_token_id":-1}`,
		tokConfigFile:  `{"bos_token":{"content":"a"},"pad_token":"<pad>","eos_token":"b"}`,
		specialsFile:   `{"bos_token":"c"}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tok.EOS(), []int32{1, 2}) || tok.BOS() != 2 || tok.Pad() != 0 {
		t.Errorf("EOS %v, BOS %d, pad %d", tok.EOS(), tok.BOS(), tok.Pad())
	}
	if _, ok := tok.files["config.json"]; ok || len(tok.files) != 4 {
		t.Error("config.json is not the tokenizer's file")
	}
	for _, tc := range []struct{ file, content, want string }{
		{generationFile, `{"eos_token_id":9}`, "generation_config.json: eos_token_id: 9"},
		{tokConfigFile, `{"pad_token":"<none>"}`, "pad_token: <none>"},
		{tokConfigFile, `{"pad_token":7}`, "pad_token: 7: want a token"},
		{specialsFile, `[]`, "special_tokens_map.json: parse"},
		{"config.json", `{"bos_token_id":"a"}`, `bos_token_id: "a"`},
	} {
		if _, err := parse(map[string]string{tc.file: tc.content}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: error %v, want %q", tc.file, tc.content, err, tc.want)
		}
	}
}

func TestUnsupportedTokenizersAreRefusedByName(t *testing.T) {
	bomb := `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("a", 40) + `"}`
	const model = `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`
	for _, c := range []struct{ content, want string }{
		{`{"normalizer":{"type":"Sequence","normalizers":[` + bomb + `,` + bomb + `]},` + model + `}`,
			"normalizer makes a text up to 1.6e+03 times"},
		{`{"decoder":{"type":"Sequence","decoders":[` + bomb +
			`,{"type":"Sequence","decoders":[` + bomb + `]}]},` + model + `}`,
			"decoder makes a text up to 1.6e+03 times"},
		{``, "parse tokenizer.json"},
		{`{}`, "model.vocab is empty"},
		{`{"model":{"type":"Unigram","vocab":{"a":0}}}`, "model.type: Unigram"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, `model.merges[0] is ["a" "b"]`},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["ab"]}}`, `want two tokens`},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`, `want two tokens`},
		{`{"model":{"type":"BPE","vocab":{"a":0,"b":0}}}`, `gives id 0 to "a" and to "b"`},
		{`{"model":{"type":"BPE","vocab":{"a":-1}}}`, `id -1`},
		{`{"model":{"type":"BPE","vocab":{"a":0},"dropout":0.1}}`, "model.dropout: 0.1"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"continuing_subword_prefix":"##"}}`, "model.continuing_subword_prefix"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"end_of_word_suffix":"</w>"}}`, "model.end_of_word_suffix"},
		{`{"normalizer":{"type":"Precompiled"},` + model + `}`, "normalizer.type: Precompiled"},
		{`{"normalizer":{"type":"Sequence","normalizers":[{"type":"X"}]},` + model + `}`, "normalizer.type: X"},
		{`{"normalizer":{"type":"Replace","pattern":{"Regex":"a"}},` + model + `}`, "normalizer Replace"},
		{`{"pre_tokenizer":{"type":"Whitespace"},` + model + `}`, "pre_tokenizer.type: Whitespace"},
		{`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a(?=b)"},"behavior":"Isolated"},` + model + `}`,
			"is not supported"},
		{`{"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"MergedWithNext"},` + model + `}`,
			"pre_tokenizer.behavior: MergedWithNext"},
		{`{"pre_tokenizer":{"type":"Metaspace","replacement":"__"},` + model + `}`, "Metaspace.replacement: __"},
		{`{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"x"},` + model + `}`,
			"Metaspace.prepend_scheme: x"},
		{`{"post_processor":{"type":"BertProcessing"},` + model + `}`, "post_processor.type: BertProcessing"},
		{`{"post_processor":{"type":"TemplateProcessing","single":[]},` + model + `}`, "contains it 0 times"},
		{`{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]},` + model + `}`,
			`special token "x"`},
		{`{"decoder":{"type":"WordPiece"},` + model + `}`, "decoder.type: WordPiece"},
		{`{"decoder":{"type":"Replace"},` + model + `}`, "decoder Replace"},
	} {
		if _, err := parseTokenizer(map[string][]byte{tokenizerFile: []byte(c.content)}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.content, err, c.want)
		}
	}
	tok, err := parseTokenizer(map[string][]byte{tokenizerFile: []byte(`{` + model + `}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Encode("abc"); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("error of an unknown character without an unknown token: %v", err)
	}
	if got := tok.Decode([]int32{2, 0, 77, -1}); got != "ab a" {
		t.Errorf("without decoder, tokens stand apart: %q", got)
	}
}

func TestANormalizerThatMakesALotOfALittleIsRefused(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	prepend := `{"type":"Prepend","prepend":"` + long + `"}`
	replace := `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("b", 5) + `"}`
	again := `{"type":"Replace","pattern":{"String":"b"},"content":"` + strings.Repeat("c", 10) + `"}`
	mark := `{"type":"Prepend","prepend":"▁"}`
	const model, nfkc, lower = `"model":{"type":"BPE","vocab":{"a":0}}`, `{"type":"NFKC"}`, `{"type":"Lowercase"}`
	for _, c := range []struct {
		stages []string
		want   string // none: it is read
	}{
		{[]string{prepend, nfkc, replace, again}, "normalizer makes a text up to 5.77e+08 times"}, // (1<<20+1)*11*5*10
		{[]string{prepend}, "normalizer makes a text up to 1.05e+06 times as long: want 1000 times at most: shorten"},
		{[]string{nfkc, nfkc, nfkc}, "normalizer makes a text up to 1.33e+03 times"},
		{[]string{mark, nfkc, lower, `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`}, ""},
	} {
		text := `{"normalizer":{"type":"Sequence","normalizers":[` + strings.Join(c.stages, ",") + `]},` + model + `}`
		_, err := parseTokenizer(map[string][]byte{tokenizerFile: []byte(text)})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	text := `{"added_tokens":[{"id":1,"content":"` + long + `","normalized":true}],"normalizer":{"type":"Sequence",` +
		`"normalizers":[` + replace + `,{"type":"Replace","pattern":{"String":"b"},"content":"` +
		strings.Repeat("c", 100) + `"}]},` + model + `}`
	_, err := parseTokenizer(map[string][]byte{tokenizerFile: []byte(text)})
	if want := "added_tokens: normalized, they have up to 5.24e+08 bytes"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// What each stage makes of any character stays within what growth says of it.
func TestGrowthIsWhatAStageMakesAtMost(t *testing.T) {
	for _, kind := range []string{"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend"} {
		j := &stageJSON{Type: kind, Prepend: "▁"}
		normalize, err := j.normalizer()
		if err != nil {
			t.Fatal(err)
		}
		most := 0.0
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if utf8.ValidRune(r) {
				most = max(most, float64(len(normalize(string(r))))/float64(utf8.RuneLen(r)))
			}
		}
		most = max(most, float64(len(normalize("\xff"))))
		if most > j.growth() {
			t.Errorf("%s makes a character %g times as long, said are %g", kind, most, j.growth())
		}
	}
}

func TestATokenizersFileIsReadNoFurtherThanItsBound(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, tokenizerFile))
	if err == nil {
		err = errors.Join(f.Truncate(1<<40), f.Close()) // a hole, which takes no space
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTokenizer(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.json has more than") {
		t.Errorf("error %v", err)
	}
}

func TestByteRunesAreABijection(t *testing.T) {
	seen := make(map[rune]bool)
	for b := range 256 {
		r := byteRune(byte(b))
		if back, ok := runeByte(r); !ok || back != byte(b) || seen[r] {
			t.Errorf("byte %#x is written %q and read as %#x, %v", b, r, back, ok)
		}
		seen[r] = true
	}
	for _, r := range []rune{' ', '\n', 0xad, 0x144, 0x1000, -1, 0xfffd} {
		if _, ok := runeByte(r); ok {
			t.Errorf("%q stands for a byte", r)
		}
	}
}

// FuzzTokenizer checks that no text panics, whatever it is, and that a byte-level tokenizer without
// normalizer gives it back.
func FuzzTokenizer(f *testing.F) {
	g := readGolden(f)
	toks := make(map[string]*Tokenizer)
	for name, want := range g.Tokenizers {
		tok, err := parseTokenizer(map[string][]byte{tokenizerFile: want.JSON})
		if err != nil {
			f.Fatal(err)
		}
		toks[name] = tok
	}
	for _, s := range g.Strings {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range toks {
			ids, err := tok.Encode(text)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := tok.Decode(ids)
			if name == "smollm2" && !strings.ContainsAny(text, "<>") && utf8.ValidString(text) && got != text {
				t.Errorf("%q comes back as %q", text, got)
			}
		}
	})
}

// The words are those of Hugging Face's Split with the same pattern: white space is Unicode's, and
// the last of a run goes with the word after it only if it is an ASCII space, by the pattern.
func TestGPT2PatternDividesAsTheLibraryDoes(t *testing.T) {
	m, err := newMatcher(gpt2Pattern)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"":                    nil,
		"a\u3000\u3000.":      {"a", "\u3000", "\u3000", "."},
		"a\u2003\u0085b":      {"a", "\u2003", "\u0085", "b"},
		"x  \u00a0 y \u2028":  {"x", "  \u00a0", " y", " \u2028"},
		".\u202f!":            {".", "\u202f", "!"},
		"she's  12.5\n\n  ok": {"she", "'s", " ", " 12", ".", "5", "\n\n ", " ok"},
	} {
		var got []string
		for _, p := range m.split(text) {
			if !p.match {
				t.Errorf("%q: %q is outside the matches", text, p.text)
			}
			got = append(got, p.text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is divided into %q, want %q", text, got, want)
		}
	}
}
