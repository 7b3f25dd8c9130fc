package hf

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-rl/reprise/rollout/option"
)

// model turns a word into ids.
type model interface {
	appendIDs(ids []int32, word string) ([]int32, error)
}

// modelJSON is the model of tokenizer.json.
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
		left, right, _ := strings.Cut(s, " ")
		pair = []string{left, right}
	} else if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] == "" || pair[1] == "" {
		return fmt.Errorf("merge is %s: want two tokens", compact(b))
	}
	*m = mergeJSON(pair)
	return nil
}

func (j *modelJSON) build() (model, error) {
	if len(j.Vocab) == 0 {
		return nil, errors.New("model.vocab is empty: want a map from token to id")
	}
	unk := int32(NoToken)
	if j.UnkToken != nil {
		if id, ok := j.Vocab[*j.UnkToken]; ok {
			unk = id
		}
	}
	if j.Type == "WordLevel" {
		return wordLevel{j.Vocab, unk}, nil
	}
	var p option.Problems
	// the oldest files leave BPE out
	p.Check(j.Type == "BPE" || j.Type == "" && j.Merges != nil, "model.type", j.Type, "BPE or WordLevel")
	if j.Dropout != nil {
		p.Check(*j.Dropout == 0, "model.dropout", *j.Dropout, "null or 0; the same text always has the same ids here")
	}
	if s := j.ContinuingSubwordPrefix; s != nil {
		p.Check(*s == "", "model.continuing_subword_prefix", *s, "null; not supported")
	}
	if s := j.EndOfWordSuffix; s != nil {
		p.Check(*s == "", "model.end_of_word_suffix", *s, "null; not supported")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	b := &bpe{vocab: j.Vocab, unk: unk, fuseUnk: j.FuseUnk, byteFallback: j.ByteFallback,
		ignoreMerges: j.IgnoreMerges, merges: make(map[[2]int32]merge, len(j.Merges))}
	for rank, m := range j.Merges {
		left, ok1 := j.Vocab[m[0]]
		right, ok2 := j.Vocab[m[1]]
		both, ok3 := j.Vocab[m[0]+m[1]]
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("model.merges[%d] is %q: want both tokens and their concatenation in model.vocab",
				rank, [2]string(m))
		}
		b.merges[[2]int32{left, right}] = merge{rank, both}
	}
	return b, nil
}

// wordLevel looks whole words up.
type wordLevel struct {
	vocab map[string]int32
	unk   int32 // NoToken: none
}

func (w wordLevel) appendIDs(ids []int32, word string) ([]int32, error) {
	id, ok := w.vocab[word]
	if !ok {
		id = w.unk
	}
	if id == NoToken {
		return nil, unknown(word)
	}
	return append(ids, id), nil
}

func unknown(text string) error {
	return fmt.Errorf("text contains %q: the vocabulary has no such token and no unknown token", text)
}

// bpe is byte-pair encoding: a word starts as its characters, and adjacent tokens are merged in the order of the merge
// list, leftmost first.
type bpe struct {
	vocab        map[string]int32
	merges       map[[2]int32]merge
	unk          int32 // NoToken: none
	fuseUnk      bool  // a run of unknown characters is one unknown token
	byteFallback bool  // an unknown character is written as tokens <0x00> to <0xFF>
	ignoreMerges bool  // a word that is a token needs no merges
}

// merge replaces a pair of tokens by the token id. The pair of the lowest rank is merged first.
type merge struct {
	rank int
	id   int32
}

func (b *bpe) appendIDs(ids []int32, word string) ([]int32, error) {
	if b.ignoreMerges {
		if id, ok := b.vocab[word]; ok {
			return append(ids, id), nil
		}
	}
	start := len(ids)
	afterUnk := false // whether the last id stands for unknown characters
	for _, c := range strings.ToValidUTF8(word, "\uFFFD") {
		s := string(c)
		if id, ok := b.vocab[s]; ok {
			ids, afterUnk = append(ids, id), false
			continue
		}
		if n := len(ids); b.byteFallback {
			if ids = b.appendBytes(ids, s); len(ids) > n {
				afterUnk = false
				continue
			}
		}
		if b.unk == NoToken {
			return nil, unknown(s)
		}
		if !afterUnk || !b.fuseUnk {
			ids = append(ids, b.unk)
		}
		afterUnk = true
	}
	return append(ids[:start], b.merge(ids[start:])...), nil
}

// appendBytes appends the byte tokens of s, or nothing unless the vocabulary has them all.
func (b *bpe) appendBytes(ids []int32, s string) []int32 {
	n := len(ids)
	for _, c := range []byte(s) {
		id, ok := b.vocab[fmt.Sprintf("<0x%02X>", c)]
		if !ok {
			return ids[:n]
		}
		ids = append(ids, id)
	}
	return ids
}

// merge applies the merges to a word in place, in O(n log n): the possible merges wait in a heap, and stale ones are
// recognised when they come up.
func (b *bpe) merge(ids []int32) []int32 {
	next, prev := make([]int, len(ids)), make([]int, len(ids)) // linked list of the tokens left
	var waiting mergeHeap
	push := func(at int) {
		if at >= 0 && next[at] < len(ids) {
			pair := [2]int32{ids[at], ids[next[at]]}
			if m, ok := b.merges[pair]; ok {
				heap.Push(&waiting, candidate{m, at, pair})
			}
		}
	}
	for i := range ids {
		next[i], prev[i] = i+1, i-1
	}
	for i := range ids {
		push(i)
	}
	const gone = -1
	for len(waiting) > 0 {
		c := heap.Pop(&waiting).(candidate)
		if ids[c.at] != c.pair[0] || next[c.at] >= len(ids) || ids[next[c.at]] != c.pair[1] {
			continue
		}
		right := next[c.at]
		ids[c.at], ids[right] = c.id, gone
		next[c.at] = next[right]
		if next[right] < len(ids) {
			prev[next[right]] = c.at
		}
		push(prev[c.at])
		push(c.at)
	}
	out := ids[:0]
	for i := 0; i < len(next); i = next[i] {
		out = append(out, ids[i])
	}
	return out
}

// candidate is a possible merge of the tokens at a position and the one after it.
type candidate struct {
	merge
	at   int
	pair [2]int32
}

// mergeHeap orders candidates by rank, then from left to right.
type mergeHeap []candidate

func (h mergeHeap) Len() int      { return len(h) }
func (h mergeHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h mergeHeap) Less(a, b int) bool {
	return h[a].rank < h[b].rank || h[a].rank == h[b].rank && h[a].at < h[b].at
}
func (h *mergeHeap) Push(c any) { *h = append(*h, c.(candidate)) }
func (h *mergeHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}
