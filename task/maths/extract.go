package maths

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/gsm8k"
	"github.com/reprise-rl/reprise/task/maths/answer"
)

// extract returns what a response gives as its answer, empty if it gives none: the last \boxed, else what follows the last
// "answer is" or "answer:", else what the last line says.
func extract(response string) string {
	if content, found := boxed(response); found {
		return content
	}
	if content, found := announced(response); found {
		return content
	}
	return lastLine(response)
}

// announcements are the words before an answer, in lower case.
func announcements() []string {
	return []string{"answer is:", "answer is", "answer:", "answers are", "answer =", "####"}
}

// announced returns what follows the last announcement: the rest of its sentence, or of the next line.
func announced(response string) (string, bool) {
	lower := strings.ToLower(response)
	if len(lower) != len(response) { // letters whose lower case has another size
		lower = response
	}
	at := -1
	for _, words := range announcements() {
		i := strings.LastIndex(lower, words)
		if i < 0 || i+len(words) <= at {
			continue
		}
		if next, _ := utf8.DecodeRuneInString(lower[i+len(words):]); !unicode.IsLetter(next) { // not "answer isn't"
			at = i + len(words)
		}
	}
	if at < 0 {
		return "", false
	}
	line, _, _ := strings.Cut(strings.TrimLeft(response[at:], " *:\r\n"), "\n")
	return sentence(line), true
}

// sentence returns a text up to the end of its first sentence, without emphasis and without the words that lead to an answer. If
// it begins with a formula and has no other, it is the formula.
func sentence(text string) string {
	for i := range text {
		if text[i] == '.' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\r') {
			text = text[:i]
			break
		}
	}
	text = strings.TrimSpace(strings.ReplaceAll(text, "**", ""))
	for _, lead := range []string{"therefore", "thus", "simply", "just", "then", "given by", "equal to", "choice", "option"} {
		text = strings.TrimLeft(strings.TrimPrefix(text, lead+" "), ", ")
	}
	if all := formulas(text); len(all) == 1 && (strings.HasPrefix(text, "$") || strings.HasPrefix(text, `\`)) {
		return all[0].content
	}
	return text
}

// lastLine reads the last line that is not blank: its last formula, with those that "and", "or" and commas join to it; else the line,
// if it is an answer and nothing else; else its last number, as package gsm8k reads it. What a line denies is no answer.
func lastLine(response string) string {
	response = strings.TrimSpace(response)
	line := response[strings.LastIndexAny(response, "\n\r")+1:]
	line = strings.TrimSpace(strings.ReplaceAll(line, "**", ""))
	if denies(line) {
		return ""
	}
	if all := formulas(line); len(all) > 0 {
		content := all[len(all)-1].content
		for i := len(all) - 1; i > 0; i-- {
			joint, joined := joins(all[i].gap)
			if !joined {
				break
			}
			content = all[i-1].content + joint + content
		}
		return content
	}
	if a := answer.Parse(line); a.Err() == nil && !a.Words() && strings.ContainsAny(line, `0123456789\`) {
		return line
	}
	return gsm8k.Verifier{}.Verify(task.Prompt{}, line).Extracted
}

// denies reports whether a line says what the answer is not.
func denies(line string) bool {
	line = " " + strings.ToLower(line) + " "
	return strings.Contains(line, " not ") || strings.Contains(line, "n't ") || strings.Contains(line, "n’t ")
}

// formula is a piece of a text between dollars, and what stands between it and the formula before.
type formula struct{ content, gap string }

// maxFormulas bounds how many formulas of a line are looked at.
const maxFormulas = 200

// formulas returns what stands between single or double dollars, \( and \), \[ and \].
func formulas(text string) []formula {
	text = strings.NewReplacer(`\\`, `\\`, `\$`, "\x00", `\(`, "$", `\)`, "$", `\[`, "$", `\]`, "$", "$$", "$").Replace(text)
	parts := strings.Split(text, "$")
	if len(parts)%2 == 0 || len(parts) > 2*maxFormulas { // a dollar that is currency, or a formula that is not closed
		return nil
	}
	var all []formula
	for i := 1; i < len(parts); i += 2 {
		all = append(all, formula{strings.ReplaceAll(parts[i], "\x00", `\$`), parts[i-1]})
	}
	return all
}
