package hf

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder makes a text of tokens.
type decoder func(tokens []string) string

// decodeStep rewrites tokens on their way to a text.
type decodeStep func(tokens []string) []string

func (j *stageJSON) decoder() (decoder, error) {
	if j == nil {
		return func(tokens []string) string { return strings.Join(tokens, " ") }, nil
	}
	step, err := j.decodeStep()
	if err != nil {
		return nil, err
	}
	return func(tokens []string) string { return strings.Join(step(tokens), "") }, nil
}

func (j *stageJSON) decodeStep() (decodeStep, error) {
	switch j.Type {
	case "Sequence":
		var steps []decodeStep
		for i := range j.Decoders {
			s, err := j.Decoders[i].decodeStep()
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		}
		return func(tokens []string) []string {
			for _, s := range steps {
				tokens = s(tokens)
			}
			return tokens
		}, nil
	case "Replace":
		if j.Pattern.String == "" {
			return nil, fmt.Errorf("decoder Replace has pattern %+v: want a String", j.Pattern)
		}
		return mapped(func(_ int, s string) string { return strings.ReplaceAll(s, j.Pattern.String, j.Content) }), nil
	case "Strip":
		return mapped(func(_ int, s string) string {
			for range j.Start {
				s = strings.TrimPrefix(s, j.Content)
			}
			for range j.Stop {
				s = strings.TrimSuffix(s, j.Content)
			}
			return s
		}), nil
	case "Fuse":
		return func(tokens []string) []string { return []string{strings.Join(tokens, "")} }, nil
	case "ByteFallback":
		return joinByteTokens, nil
	case "ByteLevel":
		return func(tokens []string) []string { return []string{readBytesFromRunes(tokens)} }, nil
	case "Metaspace":
		mark, scheme, err := j.metaspaceOptions()
		if err != nil {
			return nil, err
		}
		return mapped(func(i int, s string) string {
			if i == 0 && scheme != "never" {
				return strings.ReplaceAll(s, mark, "")
			}
			return strings.ReplaceAll(s, mark, " ")
		}), nil
	}
	return nil, fmt.Errorf("decoder type is %q: want Sequence, Replace, Strip, Fuse, ByteFallback, ByteLevel or Metaspace", j.Type)
}

// mapped makes a step of a function of one token and its position.
func mapped(f func(i int, token string) string) decodeStep {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			out[i] = f(i, t)
		}
		return out
	}
}

// joinByteTokens turns runs of tokens <0x00> to <0xFF> into the text they spell. A run that is not
// UTF-8 gives one replacement character for every byte.
func joinByteTokens(tokens []string) []string {
	var out []string
	var run []byte
	flush := func() {
		if utf8.Valid(run) {
			out = append(out, string(run))
		} else {
			out = append(out, strings.Repeat("\uFFFD", len(run)))
		}
		run = run[:0]
	}
	for _, t := range tokens {
		if len(t) == 6 && strings.HasPrefix(t, "<0x") && t[5] == '>' {
			if b, err := strconv.ParseUint(t[3:5], 16, 8); err == nil {
				run = append(run, byte(b))
				continue
			}
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// readBytesFromRunes is the inverse of writeBytesAsRunes over all tokens together. A token with a
// character that stands for no byte is taken as it is.
func readBytesFromRunes(tokens []string) string {
	var b []byte
	for _, t := range tokens {
		from := len(b)
		for _, r := range t {
			c, ok := runeByte(r)
			if !ok {
				b = append(b[:from], t...)
				break
			}
			b = append(b, c)
		}
	}
	return lossy(b)
}

// lossy reads UTF-8 with one replacement character for every longest stretch that could have begun
// a character, as Unicode recommends and Rust does; Go's own conversions differ.
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			out.WriteRune(utf8.RuneError)
			b = b[brokenPrefix(b):]
			continue
		}
		out.Write(b[:size])
		b = b[size:]
	}
	return out.String()
}

// brokenPrefix returns how many bytes of b, which begins with no valid character, belong to one
// begun and broken off (Unicode 15, table 3-7).
func brokenPrefix(b []byte) int {
	lo, hi, want := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case 0xe0 <= c && c <= 0xef:
		want = 2
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case 0xf0 <= c && c <= 0xf4:
		want = 3
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for ; n < len(b) && n <= want && lo <= b[n] && b[n] <= hi; n++ {
		lo, hi = 0x80, 0xbf
	}
	return n
}
