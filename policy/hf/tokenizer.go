package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
)

// Tokenizer turns text into ids and back as tokenizer.json says. It is immutable and safe for
// concurrent use.
//
// It follows Hugging Face's tokenizers library for BPE (with or without byte fallback) and WordLevel
// models and for the normalizers, pre-tokenizers, templates and decoders that Llama- and Qwen2-like
// models use; a file that asks for anything else is refused by name. It departs from the library in
// one point: text that a vocabulary without an unknown token cannot express is an error here and
// vanishes there. The truncation and padding of the file are for the caller to do.
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
	files       map[string][]byte
}

// The files of a folder that a tokenizer carries along from reading to writing.
const (
	tokenizerFile  = "tokenizer.json"
	generationFile = "generation_config.json"
	tokConfigFile  = "tokenizer_config.json"
	specialsFile   = "special_tokens_map.json"
)

// ReadTokenizer reads the tokenizer of a model folder. The ids of BOS, EOS and padding are, each,
// the first found in generation_config.json, config.json, tokenizer_config.json and
// special_tokens_map.json. A folder without tokenizer.json gives an error that wraps
// [fs.ErrNotExist].
func ReadTokenizer(dir string) (*Tokenizer, error) {
	files := make(map[string][]byte)
	for _, name := range []string{tokenizerFile, generationFile, tokConfigFile, specialsFile,
		"added_tokens.json", "chat_template.jinja", "config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name != tokenizerFile {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read tokenizer: %w", err)
		}
		files[name] = b
	}
	t, err := ParseTokenizer(files)
	if err != nil {
		return nil, fmt.Errorf("tokenizer in %s: %w", dir, err)
	}
	return t, nil
}

// ParseTokenizer makes a tokenizer from the files of a model folder by name; tokenizer.json must be
// among them.
func ParseTokenizer(files map[string][]byte) (*Tokenizer, error) {
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
	delete(t.files, "config.json") // the model's, not the tokenizer's
	return t, nil
}

// Encode returns the ids of a whole text, with the special tokens that the tokenizer's template puts
// around it: a BOS where the model was trained with one.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	ids := append([]int32{}, t.before...)
	ids, err := t.appendIDs(ids, text)
	return append(ids, t.after...), err
}

// EncodePart returns the ids of a text that stands inside another one: without the special tokens
// of the template. Special tokens spelled out in the text are recognised all the same.
func (t *Tokenizer) EncodePart(text string) ([]int32, error) { return t.appendIDs([]int32{}, text) }

// appendIDs encodes text: added tokens that stand for raw text are cut out first, the rest is
// normalized piece by piece, added tokens that stand for normalized text are cut out of that, and
// what remains goes through pre-tokenizer and model.
func (t *Tokenizer) appendIDs(ids []int32, text string) ([]int32, error) {
	first := true // whether a piece begins the text, which Metaspace asks
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

// Decode returns the text of ids. Special tokens are left out, as are ids that the tokenizer does
// not have (a model's vocabulary is often padded beyond it).
func (t *Tokenizer) Decode(ids []int32) string {
	var tokens []string
	for _, id := range ids {
		if s, ok := t.tokens[id]; ok && !t.special[id] {
			tokens = append(tokens, s)
		}
	}
	return t.decode(tokens)
}

// Token returns the token of an id as it stands in the vocabulary.
func (t *Tokenizer) Token(id int32) (token string, ok bool) {
	token, ok = t.tokens[id]
	return token, ok
}

// VocabSize returns the number of ids: the largest plus one. A model's vocab_size is at least that.
func (t *Tokenizer) VocabSize() int { return t.size }

// BOS returns the id that begins a text, NoToken if there is none. Whether Encode adds it is the
// template's decision.
func (t *Tokenizer) BOS() int { return t.bos }

// EOS returns the ids that end a text; there may be none or several.
func (t *Tokenizer) EOS() []int32 { return append([]int32(nil), t.eos...) }

// Pad returns the id of padding, NoToken if there is none.
func (t *Tokenizer) Pad() int { return t.pad }

// Files returns the files of a model folder that make this tokenizer, by name; none for a nil
// tokenizer. The caller must not change their bytes.
func (t *Tokenizer) Files() map[string][]byte {
	if t == nil {
		return nil
	}
	return maps.Clone(t.files)
}

// findSpecials sets the ids of BOS, EOS and padding from the files around tokenizer.json.
func (t *Tokenizer) findSpecials(files map[string][]byte) error {
	byToken := make(map[string]int, len(t.tokens))
	for id, s := range t.tokens {
		byToken[s] = int(id)
	}
	find := func(name string) ([]int, error) {
		for _, file := range []string{generationFile, "config.json", tokConfigFile, specialsFile} {
			if files[file] == nil {
				continue
			}
			ids, err := specialIDs(files[file], name, byToken)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, id := range ids {
				if _, ok := t.tokens[int32(id)]; !ok || id != int(int32(id)) {
					return nil, fmt.Errorf("%s: %s_id is %d: %s has no such token", file, name, id, tokenizerFile)
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

// specialIDs looks in one file for name_id (an id or a list of ids), then for name (a token, as a
// string or as an object with content).
func specialIDs(file []byte, name string, byToken map[string]int) ([]int, error) {
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
	var object struct {
		Content string `json:"content"`
	}
	token := ""
	if json.Unmarshal(m[name], &token) != nil {
		if err := json.Unmarshal(m[name], &object); err != nil {
			return nil, fmt.Errorf("%s is %s: want a token or an object with content", name, compact(m[name]))
		}
		token = object.Content
	}
	id, ok := byToken[token]
	if !ok {
		return nil, fmt.Errorf("%s is %q: %s has no such token", name, token, tokenizerFile)
	}
	return []int{id}, nil
}
