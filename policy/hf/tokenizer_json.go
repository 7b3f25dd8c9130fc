package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// tokenizerJSON is the part of tokenizer.json that decides what text becomes.
type tokenizerJSON struct {
	AddedTokens   []addedToken  `json:"added_tokens"`
	Normalizer    *stageJSON    `json:"normalizer"`
	PreTokenizer  *stageJSON    `json:"pre_tokenizer"`
	PostProcessor *templateJSON `json:"post_processor"`
	Decoder       *stageJSON    `json:"decoder"`
	Model         modelJSON     `json:"model"`
}

// stageJSON is a normalizer, pre-tokenizer or decoder: the union of their options.
type stageJSON struct {
	Type          string      `json:"type"`
	Normalizers   []stageJSON `json:"normalizers"`
	PreTokenizers []stageJSON `json:"pretokenizers"`
	Decoders      []stageJSON `json:"decoders"`

	Prepend string `json:"prepend"`
	Pattern struct {
		String string
		Regex  string
	} `json:"pattern"`
	Content          string `json:"content"`
	Start            int    `json:"start"`
	Stop             int    `json:"stop"`
	Behavior         string `json:"behavior"`
	Invert           bool   `json:"invert"`
	IndividualDigits bool   `json:"individual_digits"`
	AddPrefixSpace   *bool  `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"` // absent: true
	Replacement      string `json:"replacement"`
	PrependScheme    string `json:"prepend_scheme"`
	Split            *bool  `json:"split"` // absent: true
}

// modelJSON is the model of a tokenizer.
type modelJSON struct {
	Type                    string           `json:"type"`
	Vocab                   map[string]int32 `json:"vocab"`
	Merges                  []mergeJSON      `json:"merges"`
	UnkToken                *string          `json:"unk_token"`
	FuseUnk                 bool             `json:"fuse_unk"`
	ByteFallback            bool             `json:"byte_fallback"`
	IgnoreMerges            bool             `json:"ignore_merges"`
	Dropout                 *float64         `json:"dropout"`
	ContinuingSubwordPrefix *string          `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string          `json:"end_of_word_suffix"`
}

// mergeJSON is one merge: "a b", or ["a", "b"] in newer files.
type mergeJSON [2]string

func (m *mergeJSON) UnmarshalJSON(b []byte) error {
	var pair []string
	if b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		left, right, _ := bytes.Cut([]byte(s), []byte(" "))
		pair = []string{string(left), string(right)}
	} else if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] == "" || pair[1] == "" {
		return fmt.Errorf("merge is %s: want two tokens", compact(b))
	}
	*m = mergeJSON(pair)
	return nil
}

// templateJSON is the post-processor, which puts special tokens around a text.
type templateJSON struct {
	Type       string         `json:"type"`
	Processors []templateJSON `json:"processors"`
	Single     []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct {
			ID string `json:"id"`
		}
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

// apply adds what the template puts around a text to t. The ByteLevel processor only trims offsets,
// which nobody asks for here.
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
		return fmt.Errorf("post_processor type is %q: want TemplateProcessing, ByteLevel or Sequence", j.Type)
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
				return fmt.Errorf("post_processor names special token %q without giving its ids", item.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, s.IDs...)
			} else {
				after = append(after, s.IDs...)
			}
		}
	}
	if texts != 1 {
		return fmt.Errorf("post_processor's template for a single text holds it %d times: want once", texts)
	}
	t.before, t.after = append(before, t.before...), append(t.after, after...)
	return nil
}

// build makes the tokenizer; every stage that is not supported is reported.
func (j *tokenizerJSON) build() (*Tokenizer, error) {
	t := &Tokenizer{tokens: make(map[int32]string), special: make(map[int32]bool)}
	var errs [5]error
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
	for _, a := range j.AddedTokens {
		t.tokens[a.ID] = a.Content
		t.special[a.ID] = a.Special
		if a.Normalized {
			a.Content = t.normalize(a.Content) // the text it stands for; Decode gives it as written
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
