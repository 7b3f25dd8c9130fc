// Package words gives a pretrained story model a reward that a program can verify: the model continues an opening, and
// its reward is the share of given words that the continuation contains.
//
// By default every prompt of the run asks for the same few words and shows only the opening ("Once upon a time, there
// was a bunny."), because a small story model cannot follow instructions: the policy learns from its rewards which
// words pay. For a model that can follow instructions, [Settings] draw different words for every prompt and a template
// names them.
//
// A word is contained if it occurs in the continuation as a whole word, in any case, with or without a plural -s or -es
// or a possessive 's ("dog" in "The dogs' dog's DOG.", not in "doghouse"). Openings are either for training or held
// out; the split is the same for every seed. The reference answer of a prompt is its words, separated by spaces or
// commas.
package words

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Slots of a template for the opening, and for the words separated by commas.
const (
	openingSlot = "{opening}"
	wordsSlot   = "{words}"
)

// Settings of the task. The zero value asks for the same three words after any of the built-in openings.
type Settings struct {
	Words     []string `yaml:"words"`      // that pay; none: three built-in ones, or 36 with per_prompt
	PerPrompt int      `yaml:"per_prompt"` // words drawn for every prompt; 0: all words on all prompts
	Openings  []string `yaml:"openings"`   // none: the built-in ones
	HeldOut   int      `yaml:"held_out"`   // openings kept for evaluation, fewer than all; 0: a quarter
	Template  string   `yaml:"template"`   // the prompt, with {opening} and perhaps {words}; empty: {opening}
}

// Resolve fills in the defaults.
func (s *Settings) Resolve() {
	if len(s.Words) == 0 {
		s.Words = fixedWords()
		if s.PerPrompt > 0 {
			s.Words = commonWords()
		}
	}
	if len(s.Openings) == 0 {
		s.Openings = openings()
	}
	s.HeldOut = cmp.Or(s.HeldOut, max(1, len(s.Openings)/4))
	s.Template = cmp.Or(s.Template, openingSlot)
}

// Validate reports every problem with the settings, each an [option.Error].
func (s Settings) Validate() error {
	s.Resolve()
	var problems option.Problems
	seen := map[string]bool{}
	for _, w := range s.Words {
		if w == "" || strings.IndexFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }) >= 0 {
			problems.Check(false, "words", w, "a single word of letters")
		} else {
			problems.Check(!seen[strings.ToLower(w)], "words", w, "each word once")
		}
		seen[strings.ToLower(w)] = true
	}
	clear(seen)
	for _, o := range s.Openings {
		if strings.TrimSpace(o) == "" {
			problems.Check(false, "openings", o, "the beginning of a story")
		} else {
			problems.Check(!seen[o], "openings", o, "each opening once")
		}
		seen[o] = true
	}
	problems.Check(s.PerPrompt >= 0 && s.PerPrompt <= len(s.Words), "per_prompt", s.PerPrompt,
		"0 (all) to %d, the number of words", len(s.Words))
	problems.Check(s.HeldOut >= 1 && s.HeldOut < len(s.Openings), "held_out", s.HeldOut,
		"0 (a quarter) or fewer than %d, the number of openings", len(s.Openings))
	if strings.Count(s.Template, openingSlot) != 1 {
		problems.Check(false, "template", s.Template, "%s exactly once", openingSlot)
	} else if s.PerPrompt > 0 && s.PerPrompt < len(s.Words) {
		problems.Check(strings.Contains(s.Template, wordsSlot), "template", s.Template,
			"%s too: per_prompt draws %d of %d words, "+
				"and the model cannot guess which; or leave per_prompt out", wordsSlot, s.PerPrompt, len(s.Words))
	}
	return problems.Err()
}

// heldOutSeed is the seed of the held-out prompts: a constant, so that all runs share them.
const heldOutSeed = 0x7265707269736533

// Task asks for stories that contain certain words. It is safe for concurrent use.
type Task struct {
	Verifier
	settings Settings
	seed     uint64
	train    []string // openings
	order    task.Order
	heldOut  []task.Prompt
}

// New returns the task; the seed orders its training prompts.
func New(s Settings, seed uint64) (*Task, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Resolve()
	t := &Task{settings: s, seed: seed}
	split := task.Order{Seed: heldOutSeed, Purpose: "words held-out", N: len(s.Openings)}
	for i := range s.Openings {
		opening := s.Openings[split.At(uint64(i))]
		if i < s.HeldOut {
			t.heldOut = append(t.heldOut, t.prompt(opening, heldOutSeed, uint64(i)))
		} else {
			t.train = append(t.train, opening)
		}
	}
	t.order = task.Order{Seed: seed, Purpose: "words train", N: len(t.train)}
	return t, nil
}

// Train returns the i-th training prompt: every opening once per epoch, in a fresh order.
func (t *Task) Train(i uint64) task.Prompt { return t.prompt(t.train[t.order.At(i)], t.seed, i) }

// HeldOut returns the evaluation prompts, one per held-out opening, the same for every seed.
func (t *Task) HeldOut() []task.Prompt { return slices.Clone(t.heldOut) }

// prompt asks for the words that the seed draws for prompt i.
func (t *Task) prompt(opening string, seed, i uint64) task.Prompt {
	words := t.settings.Words
	if n := t.settings.PerPrompt; 0 < n && n < len(words) {
		drawn := rollout.Stream(seed, "words drawn", i).Perm(len(words))[:n]
		slices.Sort(drawn)
		words = make([]string, n)
		for k, at := range drawn {
			words[k] = t.settings.Words[at]
		}
	}
	name := fnv.New64a()
	name.Write([]byte(opening))
	text := strings.NewReplacer(openingSlot, opening, wordsSlot, strings.Join(words, ", "))
	return task.Prompt{
		ID:     fmt.Sprintf("words/%016x/%s", name.Sum64(), strings.Join(words, "+")),
		Text:   text.Replace(t.settings.Template),
		Answer: strings.Join(words, " "),
	}
}

// Verifier rewards continuations without knowing the openings. It is safe for concurrent use.
type Verifier struct{}

// Verify rewards the share of the words of p.Answer that the response contains; with all of them it is correct.
// Extracted is the words found, in the order of the answer.
func (Verifier) Verify(p task.Prompt, response string) task.Verdict {
	wanted := wordsOf(p.Answer)
	if len(wanted) == 0 {
		return task.Verdict{}
	}
	said := map[string]bool{}
	for _, w := range wordsOf(response) {
		said[w] = true
	}
	var contained []string
	for _, w := range wanted {
		if said[w] || said[w+"s"] || said[w+"es"] {
			contained = append(contained, w)
		}
	}
	return task.Verdict{
		Reward:    float32(len(contained)) / float32(len(wanted)),
		Correct:   len(contained) == len(wanted),
		Extracted: strings.Join(contained, " "),
	}
}

// CheckAnswer returns an error for an answer without words.
func (Verifier) CheckAnswer(answer string) error {
	if len(wordsOf(answer)) == 0 {
		return fmt.Errorf("%.40q has no words: want the words that the response must contain, separated by spaces",
			answer)
	}
	return nil
}

// wordsOf returns the distinct words of a text in lower case, in order. An apostrophe ends a word, so a possessive 's
// is a word of its own.
func wordsOf(text string) []string {
	all := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
	})
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(w string) bool {
		again := seen[w]
		seen[w] = true
		return again
	})
}

// fixedWords returns the words of the default settings. A story model of 0.7M parameters at temperature 1 says each in
// 5% to 13% of continuations of 64 tokens. So most groups of 16 see a reward, and there is much to learn.
func fixedWords() []string { return []string{"bird", "dog", "park"} }

// commonWords returns words of children's stories, none a form of another.
func commonWords() []string {
	return []string{
		"apple", "ball", "bed", "bird", "boat", "book", "box", "cake", "car", "cat", "dog", "door",
		"fish", "flower", "friend", "game", "garden", "hat", "home", "house", "mom", "park", "rain", "river",
		"room", "school", "sky", "song", "star", "sun", "swing", "table", "toy", "train", "tree", "water",
	}
}

// openings returns the built-in openings: every hero with every beginning. None contains any of commonWords.
func openings() []string {
	var all []string
	for _, b := range beginnings() {
		for _, h := range heroes() {
			all = append(all, strings.Replace(b, "*", h, 1))
		}
	}
	return all
}

// beginnings have an asterisk in place of the hero. The model continues after a whole sentence or in the middle of one.
func beginnings() []string {
	return []string{
		"Once upon a time, there was a *.",
		"Once upon a time, there was a *. One day,",
		"One day, a * went",
		"There once was a * who liked to",
		"Once there lived a *. Every morning,",
		"A * woke up and wanted to",
		"It was a sunny day. A *",
		"Long ago, there was a * who was very",
	}
}

// heroes start with a consonant, since "a" precedes them.
func heroes() []string {
	return []string{
		"little girl named Lily", "little boy named Tim", "girl named Mia", "boy named Ben",
		"little girl named Sue", "little boy named Max", "kind girl named Anna", "shy boy named Sam",
		"bunny", "small frog", "brown bear", "baby duck", "tiny mouse", "clever fox",
		"big elephant", "happy monkey", "lazy turtle", "brave lion", "gentle horse", "hungry pig",
		"farmer", "kind queen", "young king", "funny clown", "wise man", "strong woman",
		"small robot", "silly monster", "friendly dragon", "good witch", "brave knight", "tired baker",
	}
}
