package maths

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/gsm8k"
	"github.com/reprise-rl/reprise/lab/task/maths/answer"
)

// Verifier rewards answers without knowing the problems. It is safe for concurrent use.
type Verifier struct{}

// Verify rewards 1 if the answer found in the response equals the prompt's (see package answer), and 0 otherwise.
// Extracted is the answer as the response writes it.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	found := extract(response)
	if found == "" {
		return task.Verdict{}
	}
	verdict := task.Verdict{Extracted: found}
	if answer.Equal(answer.Parse(reference(p.Answer)), answer.Parse(found)) {
		verdict.Reward, verdict.Correct = 1, true
	}
	return verdict
}

// CheckAnswer returns an error for an unusable reference answer.
func (Verifier) CheckAnswer(text string) error {
	if a := answer.Parse(reference(text)); a.Empty() {
		return fmt.Errorf("%.40q holds no answer: give the answer alone, or a solution with the answer in \\boxed{}",
			text)
	}
	return nil
}

// reference returns the answer of a dataset: the content of the last box of a solution, the text after "####", or all
// of it.
func reference(text string) string {
	if content, found := boxed(text); found {
		return content
	}
	if at := strings.LastIndex(text, "####"); at >= 0 {
		return strings.TrimSpace(text[at+len("####"):])
	}
	return strings.TrimSpace(text)
}

// extract returns the answer of a response, empty if it gives none: the last \boxed, else the text after the last
// "answer is" or "answer:", else the answer of the last line.
func extract(response string) string {
	response = unbroken(response)
	if content, found := boxed(response); found {
		return content
	}
	if content, found := announced(response); found {
		return content
	}
	return lastLine(response)
}

// unbroken writes each display formula in one line.
func unbroken(text string) string {
	var b strings.Builder
	for at := 0; at < len(text); at++ {
		closing := ""
		switch rest := text[at:]; {
		case strings.HasPrefix(rest, `\\`), strings.HasPrefix(rest, `\$`): // \\[1ex] opens no formula
			b.WriteByte(text[at])
			at++
		case strings.HasPrefix(rest, `\[`):
			closing = `\]`
		case strings.HasPrefix(rest, "$$"):
			closing = "$$"
		}
		if closing == "" {
			if at < len(text) {
				b.WriteByte(text[at])
			}
			continue
		}
		size := strings.Index(text[at+2:], closing)
		if size < 0 {
			return b.String() + text[at:]
		}
		size += 2 + len(closing)
		b.WriteString(strings.NewReplacer("\r", " ", "\n", " ").Replace(text[at : at+size]))
		at += size - 1
	}
	return b.String()
}

// announcements are the words before an answer, in lower case.
func announcements() []string {
	return []string{"answer is:", "answer is", "answer:", "answers are", "answer =", "####"}
}

// announced returns the text after the last announcement: the rest of its sentence, or of the next line.
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

// sentence returns the first sentence of a text, without emphasis and the words that lead to an answer. If it begins
// with a formula and has no other, it is the formula.
func sentence(text string) string {
	for i := range text {
		if text[i] == '.' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\r') {
			text = text[:i]
			break
		}
	}
	text = strings.TrimSpace(strings.ReplaceAll(text, "**", ""))
	for _, lead := range []string{"therefore", "thus", "simply", "just", "then", "given by", "equal to", "choice",
		"option"} {
		text = strings.TrimLeft(strings.TrimPrefix(text, lead+" "), ", ")
	}
	if all := formulas(text); len(all) == 1 && (strings.HasPrefix(text, "$") || strings.HasPrefix(text, `\`)) {
		return all[0].content
	}
	return predicate(text)
}

// predicate returns the value in "the number of ways is 34", and any other text as it is.
func predicate(text string) string {
	lower := strings.ToLower(text)
	at := max(strings.LastIndex(lower, " is "), strings.LastIndex(lower, " equals "))
	if at < 0 || len(lower) != len(text) || denies(text) || strings.ContainsAny(text, ",;") ||
		strings.ContainsAny(text[:at], "+=<>^") {
		return text
	}
	verb := strings.Fields(lower[at:])[0]
	subject := " " + lower[:at] + " "
	for _, doubt := range strings.Fields("is equals if unless when whether what no none nor neither nothing never " +
		"cannot wrong incorrect false maybe or twice double half times minus plus -") {
		if strings.Contains(subject, " "+doubt+" ") {
			return text
		}
	}
	value := strings.TrimSpace(text[at+len(verb)+1:])
	if a := answer.Parse(value); a.Err() != nil || a.Words() {
		return text
	}
	return value
}

// lastLine reads the last line that is not blank: its last formula, with those that "and", "or" and commas join to it;
// else the line, if it is nothing but an answer; else its last number, as package gsm8k reads it. A line with a
// negation has no answer.
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

// denies reports whether a line has a negation.
func denies(line string) bool {
	line = " " + strings.ToLower(line) + " "
	return strings.Contains(line, " not ") || strings.Contains(line, "n't ") || strings.Contains(line, "n’t ")
}

// formula is a part of a text between dollars, and the text between it and the formula before.
type formula struct{ content, gap string }

// maxFormulas limits how many formulas of a line are read.
const maxFormulas = 200

// formulas returns the texts between single or double dollars, \( and \), \[ and \].
func formulas(text string) []formula {
	text = strings.NewReplacer(`\\`, `\\`, `\$`, "\x00", `\(`, "$", `\)`, "$", `\[`, "$", `\]`, "$", "$$",
		"$").Replace(text)
	parts := strings.Split(text, "$")
	if len(parts)%2 == 0 || len(parts) > 2*maxFormulas { // a dollar that is currency, or a formula that is not closed
		return nil
	}
	var all []formula
	for i := 1; i < len(parts); i += 2 {
		all = append(all, formula{strings.TrimSpace(strings.ReplaceAll(parts[i], "\x00", `\$`)), parts[i-1]})
	}
	return all
}

// maxBoxes limits how many boxes are joined into one answer.
const maxBoxes = 50

// box is a \boxed in a text.
type box struct {
	start, end int // of the text that it takes
	content    string
	closed     bool
}

// boxed returns the content of the last box, joined with those before it if only "and", "or" and commas are between
// them. A box that is not closed is an answer that was cut off: it is found, but empty.
func boxed(text string) (content string, found bool) {
	last, ok := lastBox(text)
	if !ok {
		return "", false
	}
	if !last.closed {
		return "", true
	}
	contents, joints, names := []string{last.content}, []string{""}, []string{leftSide(text[:last.start])}
	for range maxBoxes {
		previous, ok := lastBox(text[:last.start])
		if !ok || !previous.closed {
			break
		}
		joint, joined := joins(text[previous.end:last.start])
		if !joined {
			break
		}
		contents, joints = append(contents, previous.content), append(joints, joint)
		names = append(names, leftSide(text[:previous.start]))
		last = previous
	}
	for i, part := range slices.Backward(contents) { // x=\boxed{2}, y=\boxed{1} keeps its names
		if !slices.Contains(names, "") && slices.ContainsFunc(names, func(n string) bool { return n != names[0] }) {
			part = names[i] + "=" + part
		}
		content += part + joints[i]
	}
	return content, true
}

// leftSide returns the left side of the equation at the end of a text, empty if there is none.
func leftSide(text string) string {
	const longest = 60
	text = text[max(0, len(text)-longest):]
	at := repeats.FindStringSubmatchIndex(text)
	if at == nil || strings.HasSuffix(strings.TrimRight(text[:at[4]], " "), "+") ||
		strings.HasSuffix(strings.TrimRight(text[:at[4]], " "), "-") {
		return ""
	}
	return text[at[4]:at[5]]
}

// lastBox finds the last \boxed or \fbox of a text that is in no other.
func lastBox(text string) (box, bool) {
	b := box{start: -1}
	size := 0
	for _, name := range []string{`\boxed`, `\fbox`} {
		if at := strings.LastIndex(text, name); at > b.start {
			b.start, size = at, len(name)
		}
	}
	if b.start < 0 {
		return box{}, false
	}
	rest := text[b.start+size:]
	gap := len(rest) - len(strings.TrimLeft(rest, " "))
	if gap > 0 && !strings.HasPrefix(rest[gap:], "{") { // \boxed 5
		word := rest[gap:]
		if end := strings.IndexAny(word, " $\r\n"); end >= 0 {
			word = word[:end]
		}
		b.content, b.closed = strings.TrimRight(word, ".,"), true
		b.end = b.start + size + gap + len(word)
		return b, true
	}
	b.content, b.closed = answer.Braced(rest[gap:])
	b.end = b.start + size + gap + len(b.content) + len("{}")
	b.content = strings.TrimSpace(b.content)
	return b, true
}

// joins reports whether the text between two answers makes them one, and how to write it: a comma, \quad, "and" or
// "or", after which the variable may be repeated (x = 2 or x = 3) or described ("and the larger is"), if nothing says
// that the second follows from the first.
func joins(gap string) (string, bool) {
	gap = repeats.ReplaceAllString(gap, "$1")
	if strings.ContainsAny(gap, "+-*/^<>") {
		return "", false
	}
	wide := strings.Contains(gap, "quad") || strings.Contains(gap, ",") || strings.Contains(gap, ";")
	words := strings.FieldsFunc(strings.ToLower(layout.Replace(gap)), func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(`$,{}();`, r)
	})
	words = slices.DeleteFunc(words, func(w string) bool { return w == "also" || w == "either" || w == "both" })
	const most = 8
	said := len(words) == 1 || len(words) > 1 && len(words) <= most && !strings.ContainsAny(gap, ".!?:=\n") &&
		!slices.ContainsFunc(words, func(w string) bool { return slices.Contains(consequences, w) })
	switch {
	case len(words) == 0 && wide && !strings.Contains(gap, "\n"),
		said && (words[0] == "and" || words[0] == "&" || strings.Join(words, " ") == "as well as"):
		return ", ", true
	case said && words[0] == "or":
		return ` \text{ or } `, true
	}
	return "", false
}

var (
	// repeats is the left side of an equation before an answer.
	repeats = regexp.MustCompile(
		`(^|[\s$,;({]|(?:and|or) *\})(\\?[A-Za-z]+(?:_\{?\w+\}?)?'*(?:\(\w+\))?)\s*=[\s$]*$`)
	// consequences are words before a result that stands for itself.
	consequences = strings.Fields("so hence thus then therefore consequently finally which gives giving yields get " +
		"we implies means answer final result total sum not")
	// layout removes the commands for spaces and words.
	layout = strings.NewReplacer(`\qquad`, " ", `\quad`, " ", `\textbf`, "", `\textrm`, "", `\text`, "", `\mbox`, "",
		`\mathrm`, "", `\,`, " ", `\;`, " ", `\:`, " ", `\!`, "", `\ `, " ", `\(`, " ", `\)`, " ",
		`\[`, " ", `\]`, " ")
)
