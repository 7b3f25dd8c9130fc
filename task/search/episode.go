package search

import (
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/task"
)

// episode is the course of one question.
type episode struct {
	task     *Task
	question Question
	turns    int
	searches int
	found    bool // a passage with the answer has been shown
	done     bool
}

// Step lets a turn act: a query shows passages, an answer ends the episode with its reward, anything else, a query too many
// among them, costs the penalty. The last turn ends the episode whatever it is.
func (e *episode) Step(response string) task.Step {
	if e.done {
		return task.Step{Done: true}
	}
	e.turns++
	step := e.act(response)
	if !step.Done && e.turns == e.task.MaxTurns() {
		step.Text, step.Done, step.Cut = "", true, true
	}
	e.done = step.Done
	return step
}

func (e *episode) act(response string) task.Step {
	kind, body := e.task.protocol.Parse(response)
	switch {
	case kind == Answer && Matches(body, e.question.Answers):
		return task.Step{Reward: 1, Done: true, Correct: true}
	case kind == Answer:
		return task.Step{Done: true}
	case kind == Query && e.searches < e.task.settings.MaxSearches:
		e.searches++
		passages := e.task.find(body)
		e.found = e.found || e.answered(passages)
		return task.Step{Text: e.task.protocol.Found(passages)}
	}
	return task.Step{
		Text: e.task.protocol.Refused(kind == Query), Reward: e.task.settings.penalty(), Invalid: true,
	}
}

// answered reports whether one of the passages has the answer.
func (e *episode) answered(passages []string) bool {
	for _, p := range passages {
		if Contains(p, e.question.Answers) {
			return true
		}
	}
	return false
}

// Advise searches until a passage with the answer has been shown, while a search and a turn to answer are left, and then
// gives the first of the question's answers: the expert knows it, found or not.
func (e *episode) Advise() string {
	left := min(e.task.settings.MaxSearches-e.searches, e.task.MaxTurns()-e.turns-1)
	if query := e.query(); !e.found && left > 0 && query != "" {
		return e.task.protocol.Write(Query, query)
	}
	if len(e.question.Answers) == 0 {
		return e.task.protocol.Write(Answer, "?")
	}
	return e.task.protocol.Write(Answer, e.question.Answers[0])
}

// query returns the first of the expert's queries that finds the answer: the words of the question that the index has terms
// for, these after the question's subject, the subject alone. If none does, it is the next one every time.
func (e *episode) query() string {
	text := e.keywords(e.question.Text)
	subject := e.keywords(e.question.Subject)
	candidates := []string{text, strings.TrimSpace(subject + " " + text), subject}
	for _, c := range candidates {
		if c != "" && e.answered(e.task.find(c)) {
			return c
		}
	}
	return candidates[e.searches%2]
}

// keywords returns the words of a text that are terms, each once, as far as a query may be long.
func (e *episode) keywords(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	var query string
	seen := map[string]bool{}
	for _, w := range words {
		if len(e.task.index.Terms(w)) == 0 || seen[w] {
			continue
		}
		seen[w] = true
		longer := strings.TrimSpace(query + " " + w)
		if longer != e.task.shorten(longer) {
			break
		}
		query = longer
	}
	return query
}
