package hf

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// The special tokens of a character vocabulary and their ids.
const (
	padToken, padID = "<pad>", 0
	eosToken, eosID = "<eos>", 1
)

// ImageToken stands for a patch of an image in the vocabularies that NewCharTokenizer makes.
const ImageToken = "<image>"

// NewCharTokenizer makes the tokenizer of a task whose texts consist of the given characters:
// <pad> is 0, <eos> is 1, and the characters follow from 2 on in their order. There is no BOS. A
// text with any other character is an error. Further special tokens, such as [ImageToken], follow the
// characters. Files gives a tokenizer.json that Hugging Face's library loads.
func NewCharTokenizer(chars string, special ...string) (*Tokenizer, error) {
	if chars == "" || !utf8.ValidString(chars) {
		return nil, fmt.Errorf("characters %q: want one or more, in valid UTF-8", chars)
	}
	vocab := map[string]int{padToken: padID, eosToken: eosID}
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
	added := func(id int, content string) object {
		return object{"id": id, "content": content, "single_word": false, "lstrip": false,
			"rstrip": false, "normalized": false, "special": true}
	}
	tokens := []object{added(padID, padToken), added(eosID, eosToken)}
	for _, token := range special {
		tokens = append(tokens, added(vocab[token], token))
	}
	return ParseTokenizer(map[string][]byte{
		tokenizerFile: marshal(object{
			"version": "1.0", "truncation": nil, "padding": nil,
			"added_tokens": tokens,
			"normalizer":   nil,
			"pre_tokenizer": object{"type": "Split", "behavior": "Isolated", "invert": false,
				"pattern": object{"Regex": `.|\n`}}, // every engine reads this as: each character
			"post_processor": nil,
			"decoder":        object{"type": "Fuse"},
			// The library wants unk_token set. It is not in the vocabulary, so that it, too, refuses
			// other characters.
			"model": object{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
		}),
		tokConfigFile: marshal(object{"tokenizer_class": "PreTrainedTokenizerFast",
			"pad_token": padToken, "eos_token": eosToken, "clean_up_tokenization_spaces": false}),
		specialsFile:   marshal(object{"pad_token": padToken, "eos_token": eosToken}),
		generationFile: marshal(object{"pad_token_id": padID, "eos_token_id": eosID}),
	})
}
