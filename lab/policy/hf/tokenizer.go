package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Tokenizer turns text into ids and back, as tokenizer.json describes. It is immutable and safe for concurrent use.
//
// It follows Hugging Face's tokenizers library for BPE (with or without byte fallback) and WordLevel models and for the
// normalizers, pre-tokenizers, templates and decoders of Llama- and Qwen2-like models. A file that asks for anything
// else is refused, with the name of what it asks for. It differs from the library in one point: text that a vocabulary
// without an unknown token cannot express is an error here; there it vanishes. The caller does truncation and padding.
type Tokenizer struct {
	normalize   normalizer
	split       preTokenizer
	model       model
	decode      decoder
	before      []int32 // ids that the template puts before a text
	after       []int32 // and after it
	raw, normal addedTokens
	tokens      map[int32]string // of the vocabulary and the added tokens
	special     map[int32]bool   // added tokens that Decode leaves out
	size        int
	bos, pad    int
	eos         []int32
	files       map[string][]byte // what WriteFolder writes
}

// The files of a folder that belong to a tokenizer.
const (
	tokenizerFile  = "tokenizer.json"
	generationFile = "generation_config.json"
	tokConfigFile  = "tokenizer_config.json"
	specialsFile   = "special_tokens_map.json"
	templateFile   = "chat_template.jinja"
)

// ReadTokenizer reads the tokenizer of a model folder, or of one that has nothing else. Without tokenizer.json the
// error wraps [fs.ErrNotExist].
func ReadTokenizer(dir string) (*Tokenizer, error) {
	files := make(map[string][]byte)
	for _, name := range TokenizerFiles() {
		b, err := readBounded(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name != tokenizerFile {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read tokenizer: %w", err)
		}
		files[name] = b
	}
	t, err := parseTokenizer(files)
	if err != nil {
		return nil, fmt.Errorf("tokenizer in %s: %w", dir, err)
	}
	return t, nil
}

// maxTokenizer bounds a file of a tokenizer, in bytes. Those of the largest published vocabularies, 262,144 tokens, have
// 33 MB.
const maxTokenizer = 128 << 20

// readBounded reads a file of a tokenizer.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenizer+1))
	if len(b) > maxTokenizer {
		return nil, fmt.Errorf("%s has more than %d bytes: is it a tokenizer's file?", path, maxTokenizer)
	}
	return b, err
}

// TokenizerFiles lists what [ReadTokenizer] reads, as far as it is there.
func TokenizerFiles() []string {
	return []string{tokenizerFile, generationFile, tokConfigFile, specialsFile, "added_tokens.json", templateFile,
		ConfigFile}
}

// parseTokenizer makes a tokenizer from the files of a model folder by name; tokenizer.json must be among them.
func parseTokenizer(files map[string][]byte) (*Tokenizer, error) {
	var j tokenizerJSON
	if err := json.Unmarshal(files[tokenizerFile], &j); err != nil {
		return nil, fmt.Errorf("parse %s: %w", tokenizerFile, err)
	}
	t, err := j.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	if err := t.findSpecials(files); err != nil {
		return nil, err
	}
	t.files = maps.Clone(files)
	delete(t.files, ConfigFile) // the model's, not the tokenizer's
	return t, nil
}

// Encode returns the ids of a whole text, with the special tokens that the tokenizer's template puts around it, for
// example a BOS.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	ids, err := t.appendIDs(slices.Clone(t.before), text)
	return append(ids, t.after...), err
}

// EncodePart returns the ids of a text inside another one, without the special tokens of the template. Special tokens
// that are spelled out in the text are recognised.
func (t *Tokenizer) EncodePart(text string) ([]int32, error) { return t.appendIDs([]int32{}, text) }

// appendIDs encodes text. It cuts out the added tokens that stand for raw text, normalizes the rest piece by piece,
// cuts out the added tokens that stand for normalized text, and sends what remains through pre-tokenizer and model.
func (t *Tokenizer) appendIDs(ids []int32, text string) ([]int32, error) {
	first := true // whether a piece begins the text; Metaspace needs to know
	for _, p := range t.raw.cut(text) {
		if p.added {
			ids, first = append(ids, p.id), false
			continue
		}
		for _, q := range t.normal.cut(t.normalize(p.text)) {
			if q.added {
				ids, first = append(ids, q.id), false
				continue
			}
			for _, word := range t.split([]string{q.text}, first) {
				var err error
				if ids, err = t.model.appendIDs(ids, word); err != nil {
					return nil, err
				}
			}
			first = false
		}
	}
	return ids, nil
}

// Decode returns the text of ids. It leaves out special tokens and unknown ids: a model's vocabulary is often padded
// beyond its tokenizer's.
func (t *Tokenizer) Decode(ids []int32) string {
	var tokens []string
	for _, id := range ids {
		if s, ok := t.tokens[id]; ok && !t.special[id] {
			tokens = append(tokens, s)
		}
	}
	return t.decode(tokens)
}

// DecodedBytes returns the most bytes that Decode makes of ids, unless the tokenizer's own file has a decoder Replace
// that lengthens tokens: what is no UTF-8 becomes a replacement character of three bytes for each.
func (t *Tokenizer) DecodedBytes(ids []int32) (n int64) {
	for _, id := range ids {
		if !t.special[id] {
			n += int64(len("\uFFFD")*len(t.tokens[id])) + 1 // a space, without a decoder
		}
	}
	return n
}

// VocabSize returns the largest id plus one. A model's vocab_size is at least that.
func (t *Tokenizer) VocabSize() int { return t.size }

// BOS returns the id that begins a text, NoToken if there is none. The template decides whether Encode adds it.
func (t *Tokenizer) BOS() int { return t.bos }

// EOS returns the ids that end a text. There may be none or several.
func (t *Tokenizer) EOS() []int32 { return slices.Clone(t.eos) }

// Pad returns the id of padding, NoToken if there is none.
func (t *Tokenizer) Pad() int { return t.pad }

// findSpecials sets BOS, EOS and padding, each from the first file that names it: generation_config.json, config.json,
// tokenizer_config.json, special_tokens_map.json.
func (t *Tokenizer) findSpecials(files map[string][]byte) error {
	byToken := make(map[string]int, len(t.tokens))
	for id, s := range t.tokens {
		byToken[s] = int(id)
	}
	find := func(name string) ([]int, error) {
		for _, file := range []string{generationFile, ConfigFile, tokConfigFile, specialsFile} {
			if files[file] == nil {
				continue
			}
			ids, err := parseSpecial(files[file], name, byToken)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, id := range ids {
				if _, ok := t.tokens[int32(id)]; !ok || id != int(int32(id)) {
					return nil, fmt.Errorf("%s: %w", file, &option.Error{Key: name + "_id",
						Value: id, Want: "a token of " + tokenizerFile})
				}
			}
			if len(ids) > 0 {
				return ids, nil
			}
		}
		return nil, nil
	}
	bos, err1 := find("bos_token")
	eos, err2 := find("eos_token")
	pad, err3 := find("pad_token")
	t.bos, t.pad = first(bos), first(pad)
	for _, id := range eos {
		t.eos = append(t.eos, int32(id))
	}
	return errors.Join(err1, err2, err3)
}

// parseSpecial looks in one file for name_id (an id or a list of ids), then for name (a token, as a string or as an
// object with content).
func parseSpecial(file []byte, name string, byToken map[string]int) ([]int, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(file, &m); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	var ids []int
	if err := parseIDs(name+"_id", m[name+"_id"], &ids); err != nil || len(ids) > 0 {
		return ids, err
	}
	if !present(m[name]) {
		return nil, nil
	}
	text, err := tokenText(name, m[name])
	if err != nil {
		return nil, err
	}
	id, ok := byToken[text]
	if !ok {
		return nil, &option.Error{Key: name, Value: text, Want: "a token of " + tokenizerFile}
	}
	return []int{id}, nil
}

// tokenText returns a token that is a string or an object with content, empty if the field is absent.
func tokenText(name string, field json.RawMessage) (text string, err error) {
	if !present(field) || json.Unmarshal(field, &text) == nil {
		return text, nil
	}
	var object struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(field, &object); err != nil {
		return "", &option.Error{Key: name, Value: compact(field), Want: "a token or an object with content"}
	}
	return object.Content, nil
}

// tokenizerJSON is the part of tokenizer.json that decides what text becomes.
type tokenizerJSON struct {
	AddedTokens   []addedToken  `json:"added_tokens"`
	Normalizer    *stageJSON    `json:"normalizer"`
	PreTokenizer  *stageJSON    `json:"pre_tokenizer"`
	PostProcessor *templateJSON `json:"post_processor"`
	Decoder       *stageJSON    `json:"decoder"`
	Model         modelJSON     `json:"model"`
}

// build makes the tokenizer. It reports every stage that is not supported.
func (j *tokenizerJSON) build() (*Tokenizer, error) {
	t := &Tokenizer{tokens: make(map[int32]string), special: make(map[int32]bool)}
	var errs [7]error
	for i, s := range []*stageJSON{j.Normalizer, j.Decoder} {
		if times := s.growth(); times > maxGrowth {
			errs[5+i] = fmt.Errorf("the %s makes a text up to %.3g times as long: want %d times at most: shorten what "+
				"its stages put in", []string{"normalizer", "decoder"}[i], times, maxGrowth)
		}
	}
	t.normalize, errs[0] = j.Normalizer.normalizer()
	t.split, errs[1] = j.PreTokenizer.preTokenizer()
	t.decode, errs[2] = j.Decoder.decoder()
	t.model, errs[3] = j.Model.build()
	errs[4] = j.PostProcessor.apply(t)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for token, id := range j.Model.Vocab {
		if other, ok := t.tokens[id]; ok {
			return nil, fmt.Errorf("model.vocab gives id %d to %q and to %q", id, min(token, other), max(token, other))
		}
		t.tokens[id] = token
	}
	normalized := 0
	for _, a := range j.AddedTokens {
		if a.Normalized {
			normalized += len(a.Content)
		}
	}
	if bytes := float64(normalized) * j.Normalizer.growth(); bytes > maxTokenizer {
		return nil, fmt.Errorf("added_tokens: normalized, they have up to %.3g bytes: want %d at most: leave some out "+
			"or set their normalized to false", bytes, maxTokenizer)
	}
	for _, a := range j.AddedTokens {
		t.tokens[a.ID] = a.Content
		t.special[a.ID] = a.Special
		if a.Normalized {
			a.Content = t.normalize(a.Content) // what is looked for; Decode gives it as written
			t.normal = append(t.normal, a)
		} else {
			t.raw = append(t.raw, a)
		}
	}
	for id := range t.tokens {
		if id < 0 || id > maxDim {
			return nil, fmt.Errorf("token %q has id %d: want 0 to %d", t.tokens[id], id, maxDim)
		}
		t.size = max(t.size, int(id)+1)
	}
	return t, nil
}

// templateJSON is the post-processor, which puts special tokens around a text.
type templateJSON struct {
	Type       string         `json:"type"`
	Processors []templateJSON `json:"processors"`
	Single     []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct{}
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

// apply adds what the template puts around a text to t. The ByteLevel processor only trims offsets, which are not used
// here.
func (j *templateJSON) apply(t *Tokenizer) error {
	if j == nil {
		return nil
	}
	switch j.Type {
	case "ByteLevel":
		return nil
	case "Sequence":
		for _, p := range j.Processors {
			if err := p.apply(t); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
	default:
		return &option.Error{Key: "post_processor.type", Value: j.Type, Want: "TemplateProcessing, ByteLevel or " +
			"Sequence"}
	}
	var before, after []int32
	texts := 0
	for _, item := range j.Single {
		switch {
		case item.Sequence != nil:
			texts++
		case item.SpecialToken != nil:
			s, ok := j.SpecialTokens[item.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("post_processor uses special token %q without giving its ids", item.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, s.IDs...)
			} else {
				after = append(after, s.IDs...)
			}
		}
	}
	if texts != 1 {
		return fmt.Errorf("post_processor's template for a single text contains it %d times: want once", texts)
	}
	t.before, t.after = append(before, t.before...), append(t.after, after...)
	return nil
}

// addedToken is a token that is cut out of a text before the model sees it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no letter or digit touches it
	LStrip     bool   `json:"lstrip"`      // swallows the white space before it
	RStrip     bool   `json:"rstrip"`      // and after it
	Normalized bool   `json:"normalized"`  // looked for in the normalized text instead of the raw one
	Special    bool   `json:"special"`     // left out when decoding
}

type addedTokens []addedToken

// piece is a part of a text: an added token, or text without any.
type piece struct {
	text  string
	id    int32
	added bool
}

// cut divides text at the added tokens in it, leftmost first, and the longest if several begin there.
func (a addedTokens) cut(text string) []piece {
	var pieces []piece
	done := 0 // end of the text that pieces cover
	for at := 0; at < len(text); {
		tok := a.prefixOf(text[at:])
		if tok == nil {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
			continue
		}
		start, stop := at, at+len(tok.Content)
		at = stop
		if tok.SingleWord && (endsInWord(text[:start]) || startsWithWord(text[stop:])) {
			continue
		}
		if tok.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if tok.RStrip {
			stop = len(text) - len(strings.TrimLeftFunc(text[stop:], unicode.IsSpace))
		}
		if done < start {
			pieces = append(pieces, piece{text: text[done:start]})
		}
		pieces = append(pieces, piece{id: tok.ID, added: true})
		done, at = stop, max(at, stop)
	}
	if done < len(text) {
		pieces = append(pieces, piece{text: text[done:]})
	}
	return pieces
}

// prefixOf returns the longest added token that text begins with, nil if there is none.
func (a addedTokens) prefixOf(text string) *addedToken {
	var best *addedToken
	for i := range a {
		t := &a[i]
		if t.Content != "" && strings.HasPrefix(text, t.Content) && (best == nil ||
			len(t.Content) > len(best.Content)) {
			best = t
		}
	}
	return best
}

// wordRune reports whether r is a word character (\w) of the tokenizers library.
func wordRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Pc,
		r)
}

func endsInWord(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && wordRune(r)
}

func startsWithWord(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && wordRune(r)
}

// ImageToken stands for a patch of an image in the vocabularies that [NewCharTokenizer] makes.
const ImageToken = "<image>"

// NewCharTokenizer makes the tokenizer of a task whose texts consist of the given characters. <pad> is 0, <eos> is 1,
// and the characters follow from 2 in their order, then further special tokens such as [ImageToken]. There is no BOS. A
// text with any other character is an error. Hugging Face's library loads the tokenizer.json that [WriteFolder] writes
// for it.
func NewCharTokenizer(chars string, special ...string) (*Tokenizer, error) {
	if chars == "" || !utf8.ValidString(chars) {
		return nil, fmt.Errorf("characters %q: want one or more, in valid UTF-8", chars)
	}
	vocab := map[string]int{"<pad>": 0, "<eos>": 1}
	var errs []error
	for _, r := range chars {
		if _, ok := vocab[string(r)]; ok {
			errs = append(errs, fmt.Errorf("character %q occurs twice: want each once", r))
		}
		vocab[string(r)] = len(vocab)
	}
	for _, token := range special {
		if _, ok := vocab[token]; ok || token == "" {
			errs = append(errs, fmt.Errorf("special token %q: want a text that is no token yet", token))
		}
		vocab[token] = len(vocab)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	type object = map[string]any
	var added []object
	for _, token := range append([]string{"<pad>", "<eos>"}, special...) {
		added = append(added, object{"id": vocab[token], "content": token, "single_word": false, "lstrip": false,
			"rstrip": false, "normalized": false, "special": true})
	}
	return parseTokenizer(map[string][]byte{
		tokenizerFile: marshal(object{
			"version": "1.0", "truncation": nil, "padding": nil,
			"added_tokens": added,
			"normalizer":   nil,
			"pre_tokenizer": object{"type": "Split", "behavior": "Isolated", "invert": false,
				"pattern": object{"Regex": `.|\n`}}, // every engine reads this as: each character
			"post_processor": nil,
			"decoder":        object{"type": "Fuse"},
			// The library wants unk_token set. It is not in the vocabulary, so the library refuses other characters
			// too.
			"model": object{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
		}),
		tokConfigFile: marshal(object{"tokenizer_class": "PreTrainedTokenizerFast",
			"pad_token": "<pad>", "eos_token": "<eos>", "clean_up_tokenization_spaces": false}),
		specialsFile:   marshal(object{"pad_token": "<pad>", "eos_token": "<eos>"}),
		generationFile: marshal(object{"pad_token_id": 0, "eos_token_id": 1}),
	})
}
