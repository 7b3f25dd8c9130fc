package hf

import (
	"container/heap"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// model gives the ids of a word.
type model interface {
	appendIDs(ids []int32, word string) ([]int32, error)
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
	switch {
	case j.Type == "WordLevel":
		return wordLevel{j.Vocab, unk}, nil
	case j.Type != "BPE" && (j.Type != "" || j.Merges == nil): // the oldest files leave BPE's type out
		return nil, fmt.Errorf("model.type is %q: want BPE or WordLevel", j.Type)
	case j.Dropout != nil && *j.Dropout != 0:
		return nil, fmt.Errorf("model.dropout is %g: want null or 0; the same text has the same ids here", *j.Dropout)
	case j.ContinuingSubwordPrefix != nil && *j.ContinuingSubwordPrefix != "":
		return nil, fmt.Errorf("model.continuing_subword_prefix is %q: want null; not supported", *j.ContinuingSubwordPrefix)
	case j.EndOfWordSuffix != nil && *j.EndOfWordSuffix != "":
		return nil, fmt.Errorf("model.end_of_word_suffix is %q: want null; not supported", *j.EndOfWordSuffix)
	}
	b := &bpe{vocab: j.Vocab, unk: unk, fuseUnk: j.FuseUnk, byteFallback: j.ByteFallback,
		whole: j.IgnoreMerges, merges: make(map[[2]int32]merge, len(j.Merges))}
	for rank, m := range j.Merges {
		left, ok1 := j.Vocab[m[0]]
		right, ok2 := j.Vocab[m[1]]
		both, ok3 := j.Vocab[m[0]+m[1]]
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("model.merges[%d] is %q: want both tokens and their union in model.vocab", rank, [2]string(m))
		}
		b.merges[[2]int32{left, right}] = merge{rank, both}
	}
	return b, nil
}

// wordLevel looks whole words up.
type wordLevel struct {
	vocab map[string]int32
	unk   int32
}

func (w wordLevel) appendIDs(ids []int32, word string) ([]int32, error) {
	id, ok := w.vocab[word]
	if !ok {
		id = w.unk
	}
	if id == NoToken {
		return nil, fmt.Errorf("text holds %q: the vocabulary has no such token and none for the unknown", word)
	}
	return append(ids, id), nil
}

// merge joins a pair of tokens; the pair of the least rank is joined first.
type merge struct {
	rank int
	id   int32
}

// bpe is byte-pair encoding: a word starts as its characters, and the pairs of the merge list are
// joined in order of their rank, the leftmost first.
type bpe struct {
	vocab        map[string]int32
	merges       map[[2]int32]merge
	unk          int32
	fuseUnk      bool // a run of unknown characters is one unknown token
	byteFallback bool // an unknown character is written as tokens <0x00> to <0xFF>
	whole        bool // a word that is a token needs no merges
}

func (b *bpe) appendIDs(ids []int32, word string) ([]int32, error) {
	if b.whole {
		if id, ok := b.vocab[word]; ok {
			return append(ids, id), nil
		}
	}
	start := len(ids)
	fused := false // whether the last id stands for unknown characters
	for _, c := range strings.ToValidUTF8(word, "\uFFFD") {
		s := string(c)
		if id, ok := b.vocab[s]; ok {
			ids, fused = append(ids, id), false
			continue
		}
		if n := len(ids); b.byteFallback {
			if ids = b.appendBytes(ids, s); len(ids) > n {
				fused = false
				continue
			}
		}
		if b.unk == NoToken {
			return nil, fmt.Errorf("text holds %q: the vocabulary has no such token and none for the unknown", s)
		}
		if !fused || !b.fuseUnk {
			ids = append(ids, b.unk)
		}
		fused = true
	}
	return append(ids[:start], b.join(ids[start:])...), nil
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

// join applies the merges to a word in O(n log n): the joins that are possible wait in a heap, those
// that became stale are recognised when they come up.
func (b *bpe) join(ids []int32) []int32 {
	next, prev := make([]int, len(ids)), make([]int, len(ids)) // a list of the tokens left
	var waiting joins
	offer := func(at int) {
		if at >= 0 && next[at] < len(ids) {
			if m, ok := b.merges[[2]int32{ids[at], ids[next[at]]}]; ok {
				heap.Push(&waiting, candidate{m, at, [2]int32{ids[at], ids[next[at]]}})
			}
		}
	}
	for i := range ids {
		next[i], prev[i] = i+1, i-1
	}
	for i := range ids {
		offer(i)
	}
	const gone = -1
	for len(waiting) > 0 {
		c := heap.Pop(&waiting).(candidate)
		if ids[c.at] != c.pair[0] || next[c.at] >= len(ids) || ids[next[c.at]] != c.pair[1] {
			continue
		}
		old := next[c.at]
		ids[c.at], ids[old] = c.id, gone
		next[c.at] = next[old]
		if next[old] < len(ids) {
			prev[next[old]] = c.at
		}
		offer(prev[c.at])
		offer(c.at)
	}
	out := ids[:0]
	for i := 0; i < len(next); i = next[i] {
		out = append(out, ids[i])
	}
	return out
}

// candidate is a possible join of the tokens at a position and the one after it.
type candidate struct {
	merge
	at   int
	pair [2]int32
}

// joins is a heap of candidates: least rank first, then leftmost.
type joins []candidate

func (j joins) Len() int      { return len(j) }
func (j joins) Swap(a, b int) { j[a], j[b] = j[b], j[a] }
func (j joins) Less(a, b int) bool {
	return j[a].rank < j[b].rank || j[a].rank == j[b].rank && j[a].at < j[b].at
}
func (j *joins) Push(c any) { *j = append(*j, c.(candidate)) }
func (j *joins) Pop() any {
	old := *j
	c := old[len(old)-1]
	*j = old[:len(old)-1]
	return c
}

// writeBytesAsRunes writes every byte of s as one printable character, as GPT-2 does.
func writeBytesAsRunes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(byteRune(s[i]))
	}
	return b.String()
}

// byteRune is the character that stands for a byte: itself where it is printable and no space, else
// one of the 68 from U+0100 on.
func byteRune(b byte) rune {
	switch {
	case '!' <= b && b <= '~', 0xa1 <= b && b <= 0xac, 0xae <= b:
		return rune(b)
	case b <= ' ':
		return 0x100 + rune(b)
	case b <= 0xa0: // 0x7f to 0xa0
		return 0x100 + 33 + rune(b) - 0x7f
	}
	return 0x100 + 67 // 0xad
}

// runeByte is the inverse of byteRune; ok is false for a character that stands for no byte.
func runeByte(r rune) (b byte, ok bool) {
	switch {
	case r < 0x100:
		b = byte(r)
	case r <= 0x100+' ':
		b = byte(r - 0x100)
	case r < 0x100+67:
		b = byte(r - 0x100 - 33 + 0x7f)
	default:
		b = 0xad
	}
	return b, r >= 0 && r != utf8.RuneError && byteRune(b) == r
}
