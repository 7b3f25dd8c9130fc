package search

import (
	"slices"
	"strings"
	"unicode"
)

// punctuation is what SQuAD's evaluation leaves out: Python's string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// Normalize brings an answer into the form in which SQuAD's evaluation compares it (Rajpurkar et al. 2016): in lower case,
// without punctuation (of ASCII), then without the words a, an and the, its other words with single spaces between them.
func Normalize(answer string) string {
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune(punctuation, r) {
			return -1
		}
		return r
	}, strings.ToLower(answer))
	return strings.Join(strings.FieldsFunc(withoutArticles(plain), space), " ")
}

// withoutArticles puts a space for every run of letters and digits that is an article.
func withoutArticles(s string) string {
	var out strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return !inWord(r) })
		if end < 0 {
			end = len(s)
		}
		switch word := s[:end]; word {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(word)
		}
		s = s[end:]
		if next := strings.IndexFunc(s, inWord); next > 0 {
			end = next
		} else {
			end = len(s)
		}
		out.WriteString(s[:end])
		s = s[end:]
	}
	return out.String()
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// space is what Python's split divides at: besides what Go calls space, the separators of ASCII.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// Matches reports whether an answer equals one of the right ones after normalisation. Where normalisation leaves nothing of
// either ("A" and "the"), they have to be equal without it, but for case and surrounding space: else any article would
// answer a question after a vitamin.
func Matches(answer string, right []string) bool {
	normal := Normalize(answer)
	return slices.ContainsFunc(right, func(r string) bool {
		if normal == "" {
			return strings.EqualFold(strings.TrimSpace(answer), strings.TrimSpace(r))
		}
		return normal == Normalize(r)
	})
}

// Contains reports whether a passage has one of the answers in it, as whole words after normalisation.
func Contains(passage string, answers []string) bool {
	text := " " + Normalize(passage) + " "
	return slices.ContainsFunc(answers, func(a string) bool {
		normal := Normalize(a)
		return normal != "" && strings.Contains(text, " "+normal+" ")
	})
}
