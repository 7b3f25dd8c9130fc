package hf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token cut out of a text before the model sees it.
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

// cut divides text at the added tokens in it, leftmost first, the longest where several begin.
func (a addedTokens) cut(text string) []piece {
	var pieces []piece
	from := 0 // start of the text not yet given away
	for at := 0; at < len(text); {
		tok := a.at(text[at:])
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
			start = max(from, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if tok.RStrip {
			stop = len(text) - len(strings.TrimLeftFunc(text[stop:], unicode.IsSpace))
		}
		if from < start {
			pieces = append(pieces, piece{text: text[from:start]})
		}
		pieces = append(pieces, piece{id: tok.ID, added: true})
		from, at = stop, max(at, stop)
	}
	if from < len(text) {
		pieces = append(pieces, piece{text: text[from:]})
	}
	return pieces
}

// at returns the longest added token that text begins with, nil if there is none.
func (a addedTokens) at(text string) *addedToken {
	var best *addedToken
	for i := range a {
		t := &a[i]
		if t.Content != "" && strings.HasPrefix(text, t.Content) && (best == nil || len(t.Content) > len(best.Content)) {
			best = t
		}
	}
	return best
}

// wordRune reports whether r is a word character (\w) of the tokenizers library.
func wordRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Pc, r)
}

func endsInWord(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && wordRune(r)
}

func startsWithWord(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && wordRune(r)
}
