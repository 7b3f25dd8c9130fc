package hf

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/reprise-rl/reprise/rollout/option"
)

// stageJSON is a normalizer, pre-tokenizer or decoder of tokenizer.json: the union of their options.
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

// maxGrowth bounds how many times as long a normalizer or the replacements of a decoder may make a text. Those of
// published models write a space as a character of three bytes, and put one in front: 12 times for one byte.
const maxGrowth = 1000

// growth is how many times as long a stage may make a text of one byte or more.
func (j *stageJSON) growth() float64 {
	if j == nil {
		return 1
	}
	times := 1.0
	for _, steps := range [][]stageJSON{j.Normalizers, j.Decoders} {
		for i := range steps {
			times *= steps[i].growth()
		}
	}
	switch j.Type {
	case "Replace":
		if j.Pattern.String != "" {
			times *= max(1, float64(len(j.Content))/float64(len(j.Pattern.String)))
		}
	case "Prepend":
		times *= float64(1 + len(j.Prepend))
	case "NFC", "NFD", "Lowercase": // Unicode UAX 15; a byte that is no UTF-8 becomes U+FFFD in lower case
		times *= 3
	case "NFKC", "NFKD": // U+FDFA
		times *= 11
	}
	return times
}

// normalizer rewrites a text before it is split.
type normalizer func(string) string

func (j *stageJSON) normalizer() (normalizer, error) {
	if j == nil {
		return func(s string) string { return s }, nil
	}
	switch j.Type {
	case "Sequence":
		var steps []normalizer
		for i := range j.Normalizers {
			n, err := j.Normalizers[i].normalizer()
			if err != nil {
				return nil, err
			}
			steps = append(steps, n)
		}
		return func(s string) string {
			for _, n := range steps {
				s = n(s)
			}
			return s
		}, nil
	case "Prepend":
		return func(s string) string {
			if s == "" {
				return s
			}
			return j.Prepend + s
		}, nil
	case "Replace":
		if j.Pattern.String == "" {
			return nil, fmt.Errorf("normalizer Replace has pattern %+v: want a String", j.Pattern)
		}
		return func(s string) string { return strings.ReplaceAll(s, j.Pattern.String, j.Content) }, nil
	case "NFC":
		return norm.NFC.String, nil
	case "NFD":
		return norm.NFD.String, nil
	case "NFKC":
		return norm.NFKC.String, nil
	case "NFKD":
		return norm.NFKD.String, nil
	case "Lowercase":
		// The one letter whose full lower case, which the library uses, is longer than Go's.
		dotted := strings.NewReplacer("\u0130", "i\u0307")
		return func(s string) string { return strings.ToLower(dotted.Replace(s)) }, nil
	}
	return nil, &option.Error{Key: "normalizer.type", Value: j.Type, Want: "Sequence, Prepend, Replace, NFC, NFD, " +
		"NFKC, NFKD or Lowercase"}
}

// preTokenizer splits words further. first reports whether the first word begins the text.
type preTokenizer func(words []string, first bool) []string

// each makes a preTokenizer from a function that splits one word.
func each(split func(word string, first bool) []string) preTokenizer {
	return func(words []string, first bool) []string {
		var out []string
		for i, w := range words {
			for _, part := range split(w, first && i == 0) {
				if part != "" {
					out = append(out, part)
				}
			}
		}
		return out
	}
}

func (j *stageJSON) preTokenizer() (preTokenizer, error) {
	if j == nil {
		return func(words []string, _ bool) []string { return words }, nil
	}
	switch j.Type {
	case "Sequence":
		var steps []preTokenizer
		for i := range j.PreTokenizers {
			p, err := j.PreTokenizers[i].preTokenizer()
			if err != nil {
				return nil, err
			}
			steps = append(steps, p)
		}
		return func(words []string, first bool) []string {
			for _, p := range steps {
				words = p(words, first)
			}
			return words
		}, nil
	case "Split":
		return j.patternSplit()
	case "Digits":
		return each(func(w string, _ bool) []string { return splitDigits(w, j.IndividualDigits) }), nil
	case "ByteLevel":
		return j.byteLevel()
	case "Metaspace":
		return j.metaspace()
	}
	return nil, &option.Error{Key: "pre_tokenizer.type", Value: j.Type, Want: "Sequence, Split, Digits, ByteLevel or " +
		"Metaspace"}
}

// patternSplit splits at a pattern. The matches stay as words of their own (Isolated) or are dropped (Removed).
func (j *stageJSON) patternSplit() (preTokenizer, error) {
	if j.Behavior != "Isolated" && j.Behavior != "Removed" {
		return nil, &option.Error{Key: "pre_tokenizer.behavior", Value: j.Behavior, Want: "Isolated or Removed"}
	}
	pattern := j.Pattern.Regex
	if pattern == "" {
		pattern = regexp.QuoteMeta(j.Pattern.String)
	}
	m, err := newMatcher(pattern)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer Split: %w", err)
	}
	removed := j.Behavior == "Removed"
	return each(func(w string, _ bool) []string {
		var out []string
		for _, p := range m.split(w) {
			if !removed || p.match == j.Invert {
				out = append(out, p.text)
			}
		}
		return out
	}), nil
}

// splitDigits separates digits from the rest, each alone or in runs.
func splitDigits(w string, individual bool) []string {
	var out []string
	from, wasDigit := 0, false
	for i, r := range w {
		digit := unicode.IsNumber(r)
		if i > from && (digit != wasDigit || digit && individual) {
			out = append(out, w[from:i])
			from = i
		}
		wasDigit = digit
	}
	return append(out, w[from:])
}

// byteLevel splits with GPT-2's pattern and writes every byte as a printable character.
func (j *stageJSON) byteLevel() (preTokenizer, error) {
	m, err := newMatcher(gpt2Pattern)
	if err != nil {
		return nil, err
	}
	prefix := j.AddPrefixSpace != nil && *j.AddPrefixSpace
	split := j.UseRegex == nil || *j.UseRegex
	return each(func(w string, _ bool) []string {
		if prefix && !strings.HasPrefix(w, " ") {
			w = " " + w
		}
		if !split {
			return []string{bytesToRunes(w)}
		}
		var out []string
		for _, p := range m.split(w) {
			out = append(out, bytesToRunes(p.text))
		}
		return out
	}), nil
}

// metaspace writes spaces as the replacement, puts one in front, and splits before each.
func (j *stageJSON) metaspace() (preTokenizer, error) {
	mark, scheme, err := j.metaspaceOptions()
	if err != nil {
		return nil, err
	}
	split := j.Split == nil || *j.Split
	return each(func(w string, first bool) []string {
		w = strings.ReplaceAll(w, " ", mark)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(w, mark) {
			w = mark + w
		}
		if !split {
			return []string{w}
		}
		parts := strings.Split(w, mark)
		for i := range parts[1:] {
			parts[i+1] = mark + parts[i+1]
		}
		return parts
	}), nil
}

// metaspaceOptions returns the replacement and the prepend scheme; add_prefix_space is the scheme's older form.
func (j *stageJSON) metaspaceOptions() (mark, scheme string, err error) {
	scheme = j.PrependScheme
	if scheme == "" {
		scheme = "always"
		if j.AddPrefixSpace != nil && !*j.AddPrefixSpace {
			scheme = "never"
		}
	}
	var p option.Problems
	p.Check(scheme == "always" || scheme == "first" || scheme == "never", "Metaspace.prepend_scheme",
		scheme, "always, first or never")
	p.Check(utf8.RuneCountInString(j.Replacement) == 1, "Metaspace.replacement", j.Replacement, "one character")
	return j.Replacement, scheme, p.Err()
}

// gpt2Pattern splits text for byte-level models.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// spaces are the characters with the Unicode property White_Space, for use in a character class.
const spaces = `\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`

// trailing ends the patterns of GPT-2 and its descendants: white space, without the last character before a word, which
// belongs to the word. Package regexp has no look-ahead, so a matcher matches `(\s+)` and gives that character back.
const trailing = `\s+(?!\S)|\s+`

// matcher finds the matches of a tokenizer's pattern.
type matcher struct {
	re    *regexp.Regexp
	group int // number of the group that stands for trailing; -1: none
}

// part is a stretch of text inside or outside the matches.
type part struct {
	text  string
	match bool
}

// newMatcher translates a pattern of the library's engine for package regexp: \s and \S are Unicode's there and ASCII's
// here.
func newMatcher(pattern string) (*matcher, error) {
	translated := pattern
	if head, ok := strings.CutSuffix(pattern, trailing); ok && !strings.Contains(head, "(?!") {
		translated = head + `(?P<trailing>\s+)`
	}
	re, err := regexp.Compile(unicodeSpaces(translated))
	if err != nil {
		return nil, fmt.Errorf("pattern %q is not supported: %w", pattern, err)
	}
	return &matcher{re: re, group: re.SubexpIndex("trailing")}, nil
}

// unicodeSpaces writes out \s and \S, in character classes too. It leaves \S in a class as it is; no known pattern has
// it.
func unicodeSpaces(pattern string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			switch {
			case pattern[i] == 's' && inClass:
				b.WriteString(spaces)
			case pattern[i] == 's':
				b.WriteString("[" + spaces + "]")
			case pattern[i] == 'S' && !inClass:
				b.WriteString("[^" + spaces + "]")
			default:
				b.WriteString(pattern[i-1 : i+1])
			}
			continue
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// split returns text as stretches inside and outside the matches, in order.
func (m *matcher) split(text string) []part {
	var parts []part
	from := 0
	for at := 0; at < len(text); {
		loc := m.re.FindStringSubmatchIndex(text[at:])
		if loc == nil {
			break
		}
		start, stop := at+loc[0], at+loc[1]
		if m.group > 0 && loc[2*m.group] >= 0 && stop < len(text) {
			// The character after the match is no space: give the last space back, if another is left.
			if _, size := utf8.DecodeLastRuneInString(text[start:stop]); stop-size > start {
				stop -= size
			}
		}
		if stop == start { // an empty match splits nothing
			_, size := utf8.DecodeRuneInString(text[stop:])
			at = stop + size
			continue
		}
		if from < start {
			parts = append(parts, part{text: text[from:start]})
		}
		parts = append(parts, part{text: text[start:stop], match: true})
		from, at = stop, stop
	}
	if from < len(text) {
		parts = append(parts, part{text: text[from:]})
	}
	return parts
}

// decoder makes a text from tokens.
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
		return eachToken(func(_ int, s string) string {
			return strings.ReplaceAll(s, j.Pattern.String, j.Content)
		}), nil
	case "Strip":
		return eachToken(func(_ int, s string) string {
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
		return func(tokens []string) []string { return []string{runesToBytes(tokens)} }, nil
	case "Metaspace":
		mark, scheme, err := j.metaspaceOptions()
		if err != nil {
			return nil, err
		}
		return eachToken(func(i int, s string) string {
			if i == 0 && scheme != "never" {
				return strings.ReplaceAll(s, mark, "")
			}
			return strings.ReplaceAll(s, mark, " ")
		}), nil
	}
	return nil, &option.Error{Key: "decoder.type", Value: j.Type, Want: "Sequence, Replace, Strip, Fuse, " +
		"ByteFallback, ByteLevel or Metaspace"}
}

// eachToken makes a step from a function of one token and its position.
func eachToken(f func(i int, token string) string) decodeStep {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			out[i] = f(i, t)
		}
		return out
	}
}

// joinByteTokens turns runs of tokens <0x00> to <0xFF> into the text they spell. A run that is not UTF-8 gives one
// replacement character for every byte.
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

// bytesToRunes writes every byte of s as one printable character, like GPT-2.
func bytesToRunes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(byteRune(s[i]))
	}
	return b.String()
}

// runesToBytes is the inverse of bytesToRunes over all tokens together. A token with a character that stands for no
// byte is taken as it is.
func runesToBytes(tokens []string) string {
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
	return toValidUTF8(b)
}

// byteRune returns the character that stands for a byte: the byte itself if it is printable and no space, else one of
// the 68 characters from U+0100 on.
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

// toValidUTF8 puts one replacement character for every longest stretch that could have begun a character, as Unicode
// recommends and Rust does. Go's own conversions differ.
func toValidUTF8(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			size = brokenPrefix(b)
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}

// brokenPrefix returns the number of leading bytes of b that belong to one truncated character, at least 1 (Unicode 15,
// table 3-7). b does not begin with a valid character.
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
