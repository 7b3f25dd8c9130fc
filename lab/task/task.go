// Package task defines what a policy is asked and what its answers are worth.
//
// A [Task] gives endless training prompts and a fixed set of held-out prompts. It is also a [Verifier], which rewards
// one response to a prompt, or an [Environment], whose [Episode] takes turns with the policy and rewards each turn.
// [Begin] starts an episode of either. Some tasks can do more: a [Demonstrator] shows how a prompt is answered, an
// [Expert] advises during an episode, an [Actor] lists its actions, an [Alphabet] is small enough for a character
// vocabulary, a [Chancy] one leaves rewards to chance, a [Seeing] task has images, a [Selective] one leaves prompts out,
// a [Conversational] one is asked in a model's chat template, a [FewShot] one with [Examples] before each prompt, and a
// [Tabular] task is a table of transitions. The tasks are in the packages below; catalog finds them by name.
//
// Tasks are pure functions of their settings, a seed and their arguments, and safe for concurrent use; an episode
// belongs to one goroutine. Training prompts depend on the seed of the run. Held-out prompts do not, so runs with
// different seeds are evaluated on the same problems.
//
// The package also has what tasks share: [Order] visits a list in a fresh order every epoch, [Latency] simulates slow
// rewards, [VerifyLines] rewards a stream of JSON lines, and [Terse], [Words] and [Chat] are the formats of prompts
// and responses.
package task

import (
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Prompt is one problem that a policy is asked to solve, or the beginning of an episode.
type Prompt struct {
	ID     string // stable, unique within the task
	Text   string
	Image  []byte // PNG, shown before Text; nil: none
	Answer string // reference answer, in the form that the task's Verify expects; may be empty
	State  string // of an Environment: the initial state of its episodes, in its own notation
}

// Verdict is what a verifier thinks of one response.
type Verdict struct {
	Reward    float32
	Correct   bool
	Extracted string // the answer found in the response; empty: none found
}

// Task gives prompts. It is also either a [Verifier], if one response answers a prompt, or an [Environment], if the
// policy acts for several turns. Its methods are pure functions of the task's settings and their arguments, and safe
// for concurrent use.
type Task interface {
	// Train returns the i-th training prompt; the sequence does not end.
	Train(i uint64) Prompt
	// HeldOut returns the evaluation prompts, disjoint from every training prompt.
	HeldOut() []Prompt
}

// Verifier rewards responses. Verifiers also exist without a task and its settings. They are safe for concurrent use.
type Verifier interface {
	// Verify rewards a response to a prompt. It needs at most the prompt's answer.
	Verify(p Prompt, response string) Verdict
}

// Chancy is a Verifier whose rewards may be a matter of chance, drawn for each rollout.
type Chancy interface {
	Verifier
	// VerifyRollout is Verify for one rollout. What is random depends on the seed of the task and the rollout's number,
	// and not on the response. Verify gives the expected reward.
	VerifyRollout(p Prompt, response string, number uint64) Verdict
}

// AnswerChecker is a Verifier that can tell why a reference answer is unusable.
type AnswerChecker interface {
	// CheckAnswer returns nil if responses can be verified against the answer.
	CheckAnswer(answer string) error
}

// Demonstrator is a single-turn task that can show how a prompt is answered, for supervised warm-up. Environments have
// an [Expert] instead.
type Demonstrator interface {
	// Demonstrate returns a response that earns the full reward, without the end-of-sequence token.
	Demonstrate(p Prompt) string
}

// Selective is a Task with a list of prompts, which can leave some out: problems from files may be longer than a policy
// can read.
type Selective interface {
	// Training returns every training prompt once.
	Training() []Prompt
	// MaxPromptTokens returns the most tokens that the settings allow a prompt, 0 for as many as the policy holds.
	MaxPromptTokens() int
	// Without returns the task without the prompts of these IDs. Some training prompts must be left.
	Without(ids map[string]bool) Task
}

// Alphabet is a Task with a character vocabulary of its own.
type Alphabet interface {
	// Characters returns every character that prompts, answers and an environment's observations use, each once.
	Characters() string
}

// Seeing is a Task whose prompts or observations have images.
type Seeing interface {
	// ImageSize returns the side of its images in pixels: all are squares of one size. 0: no images with these
	// settings.
	ImageSize() int
}

// Conversational is a Task whose prompts and observations can be the messages of a user in a model's chat template.
type Conversational interface {
	// Chat reports whether they are, with these settings.
	Chat() bool
}

// Chats reports whether a task's prompts and observations are messages for a chat template.
func Chats(t Task) bool {
	c, ok := t.(Conversational)
	return ok && c.Chat()
}

// Formats of prompts and responses.
const (
	Terse = "terse" // as short as possible, for small models trained from scratch
	Words = "words" // instructions, and answers in tags, for pretrained models
	Chat  = "chat"  // the same as messages in a model's chat template, for instruct models
)

// InWords reports whether a format has the texts of Words.
func InWords(format string) bool { return format == Words || format == Chat }

// CheckFormat reports a format that is none of Terse, Words and Chat.
func CheckFormat(problems *option.Problems, format string) {
	problems.Check(format == Terse || InWords(format), "format", format, "%s, %s or %s", Terse, Words, Chat)
}

// Tags around an answer in the format Words.
const (
	answerOpen  = "<answer>"
	answerClose = "</answer>"
)

// TagAnswer puts an answer between <answer> and </answer>.
func TagAnswer(text string) string { return answerOpen + text + answerClose }

// TaggedAnswer returns the text between the last </answer> and the <answer> before it. It reports false if there is
// none.
func TaggedAnswer(response string) (string, bool) {
	end := strings.LastIndex(response, answerClose)
	if end < 0 {
		return "", false
	}
	start := strings.LastIndex(response[:end], answerOpen)
	if start < 0 {
		return "", false
	}
	return response[start+len(answerOpen) : end], true
}

// ExactVerdict rewards a response that equals the prompt's answer. A malformed response counts as no answer at all.
func ExactVerdict(p Prompt, response string, wellFormed bool) Verdict {
	switch {
	case !wellFormed:
		return Verdict{}
	case response != p.Answer:
		return Verdict{Extracted: response}
	}
	return Verdict{Reward: 1, Correct: true, Extracted: response}
}

// Sorted returns a copy of choices in the order of known.
func Sorted(choices, known []string) []string {
	return slices.SortedStableFunc(slices.Values(choices), func(a, b string) int {
		return slices.Index(known, a) - slices.Index(known, b)
	})
}

// CheckChoices reports each choice that is unknown or repeated.
func CheckChoices(problems *option.Problems, key string, choices, known []string) {
	list := strings.Join(known, ", ")
	for i, choice := range choices {
		if !slices.Contains(known, choice) {
			problems.Check(false, key, choice, "one of %s", list)
		} else {
			problems.Check(!slices.Contains(choices[:i], choice), key, choice, "each of %s at most once", list)
		}
	}
}
