package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	porterstemmer "github.com/blevesearch/go-porterstemmer"
	segment "github.com/clipperhouse/uax29/v2/words"
)

// analyzer turns passages and queries into terms, in the order of the text.
type analyzer func(text string) []string

// plain terms are the runs of letters, in lower case.
func plain(text string) []string {
	return strings.FieldsFunc(lower(text), func(r rune) bool { return !unicode.IsLetter(r) })
}

// english are the words (Unicode annex 29) with a letter, digit or underscore, in lower case, without stop words and possessive 's,
// with Porter's stemming.
func english(text string) (terms []string) {
	for it := segment.FromString(text); it.Next(); {
		word := it.Value()
		if !strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }) {
			continue
		}
		word = lower(withoutPossessive(word))
		if _, ends := stopWords[word]; !ends {
			terms = append(terms, string(porterstemmer.StemWithoutLowerCasing([]rune(word))))
		}
	}
	return terms
}

// lower maps letter by letter, so that it never changes what is a word.
func lower(text string) string { return strings.Map(unicode.ToLower, text) }

// withoutPossessive removes 's from the end of a word, whatever the apostrophe.
func withoutPossessive(word string) string {
	if strings.HasSuffix(word, "s") || strings.HasSuffix(word, "S") {
		stem := word[:len(word)-1]
		if r, n := utf8.DecodeLastRuneInString(stem); strings.ContainsRune("'’＇", r) {
			return stem[:len(stem)-n]
		}
	}
	return word
}

// stopWords are English words that say little of what a text is about: those of the Snowball project's list.
var stopWords = func() map[string]struct{} {
	of := make(map[string]struct{})
	for word := range strings.FieldsSeq(`
		i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
		it its itself they them their theirs themselves what which who whom this that these those
		am is are was were be been being have has had having do does did doing would should could ought
		i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd we'd they'd
		i'll you'll he'll she'll we'll they'll isn't aren't wasn't weren't hasn't haven't hadn't doesn't don't didn't
		won't wouldn't shan't shouldn't can't cannot couldn't mustn't let's that's who's what's here's there's when's
		where's why's how's
		a an the and but if or because as until while of at by for with about against between into through during
		before after above below to from up down in out on off over under again further then once here there when where
		why how all any both each few more most other some such no nor not only own same so than too very`) {
		of[word] = struct{}{}
	}
	return of
}()
