package words

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

var (
	_ task.Task          = (*Task)(nil)
	_ task.AnswerChecker = (*Task)(nil)
)

const both = "Use the words {words}.\n{opening}"

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

func TestOpeningsAreEitherTrainedOrHeldOut(t *testing.T) {
	for _, s := range []Settings{
		{},
		{PerPrompt: 2, Template: both, HeldOut: 10},
		{Openings: []string{"One", "Two", "Three"}, Words: []string{"cat"}},
	} {
		made := newTask(t, s, 4)
		s.Resolve()
		held, trained := map[string]bool{}, map[string]bool{}
		for _, p := range made.HeldOut() {
			held[opening(p.Text)] = true
		}
		epoch := len(s.Openings) - s.HeldOut
		for i := range uint64(epoch) {
			p := made.Train(i)
			trained[opening(p.Text)] = true
			if held[opening(p.Text)] {
				t.Errorf("%q is trained and held out", p.Text)
			}
		}
		if len(held) != s.HeldOut || len(trained) != epoch {
			t.Errorf("%d held out and %d trained in an epoch of %d", len(held), len(trained), epoch)
		}
	}
}

// opening returns the last line of a prompt.
func opening(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

func TestEveryPromptOfARunAsksForTheFixedWords(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	for i := range uint64(50) {
		p := made.Train(i)
		if p.Answer != "bird dog park" || strings.Contains(p.Text, "dog") {
			t.Errorf("%q asks for %q", p.Text, p.Answer)
		}
	}
}

func TestDrawnWordsStandInThePromptAndVary(t *testing.T) {
	made := newTask(t, Settings{PerPrompt: 3, Template: both}, 1)
	sets, ids := map[string]bool{}, map[string]string{}
	prompts := made.HeldOut()
	for i := range uint64(500) {
		prompts = append(prompts, made.Train(i))
	}
	for _, p := range prompts {
		sets[p.Answer] = true
		if known, ok := ids[p.ID]; ok && known != p.Text {
			t.Errorf("%s names %q and %q", p.ID, known, p.Text)
		}
		ids[p.ID] = p.Text
		if list := strings.ReplaceAll(p.Answer, " ", ", "); !strings.HasPrefix(p.Text, "Use the words "+list+".\n") ||
			strings.Count(list, ",") != 2 {
			t.Errorf("%q asks for %q", p.Text, p.Answer)
		}
		if v := made.Verify(p, p.Text); !v.Correct || v.Extracted != p.Answer {
			t.Errorf("%q does not contain its words: %+v", p.Text, v)
		}
	}
	if len(sets) < 500 { // of 7,140 sets of three
		t.Errorf("%d sets of words in %d prompts", len(sets), len(prompts))
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s := Settings{PerPrompt: 3, Template: both}
	tasktest.SeedOrdersTraining(t, newTask(t, s, 1), newTask(t, s, 1), newTask(t, s, 2), 200, 3)
}

func TestRewardIsTheShareOfWordsContained(t *testing.T) {
	for _, c := range []struct {
		answer, response string
		reward           float32
		extracted        string
	}{
		{"dog park", "A dog in the park.", 1, "dog park"},
		{"dog park", "The DOGS' Park's", 1, "dog park"},
		{"dog, park", "dog", 0.5, "dog"},
		{"dog park", "doghouse hotdog parked dogged", 0, ""},
		{"box bush", "boxes, bushes", 1, "box bush"},
		{"dog", "do\ng dog-house", 1, "dog"},
		{"dog dog park", "dog", 0.5, "dog"},
		{"dog", "dog1 dogé", 0, ""},
		{"Éclair", "éclairs", 1, "éclair"},
		{"dog cat fish bird", "bird and cat", 0.5, "cat bird"},
		{"dog", "", 0, ""},
		{"", "", 0, ""},
		{" , ", "dog", 0, ""},
	} {
		v := Verifier{}.Verify(task.Prompt{Answer: c.answer}, c.response)
		if v.Reward != c.reward || v.Correct != (c.reward == 1) || v.Extracted != c.extracted {
			t.Errorf("%q for %q: %+v, want %v %q", c.response, c.answer, v, c.reward, c.extracted)
		}
		if err := (Verifier{}).CheckAnswer(c.answer); (err != nil) != (strings.Trim(c.answer, " ,") == "") {
			t.Errorf("answer %q: %v", c.answer, err)
		}
	}
}

func TestBuiltInListsAreSound(t *testing.T) {
	common := newTask(t, Settings{Words: commonWords()}, 1)
	said := wordsOf(strings.Join(openings(), " "))
	if v := common.Verify(common.Train(0), strings.Join(said, " ")); v.Extracted != "" {
		t.Errorf("openings say %q", v.Extracted)
	}
	for _, w := range fixedWords() {
		if !strings.Contains(" "+common.Train(0).Answer+" ", " "+w+" ") {
			t.Errorf("%q is no common word", w)
		}
	}
	for _, w := range commonWords() { // no word is contained in another's forms
		if v := common.Verify(common.Train(0), w+"s "+w+"es"); v.Extracted != w {
			t.Errorf("forms of %q contain %q", w, v.Extracted)
		}
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{PerPrompt: 3, Template: both}, ""},
		{Settings{PerPrompt: 3, Words: []string{"a", "b", "c"}}, ""}, // all of them
		{Settings{PerPrompt: 3}, "template"},
		{Settings{PerPrompt: 37, Template: both}, "per_prompt"},
		{Settings{PerPrompt: -1, HeldOut: 256, Template: "x"}, "per_prompt held_out template"},
		{Settings{Words: []string{"dog", "Dog", "hot dog", ""}}, "words words words"},
		{Settings{Openings: []string{"One", "One", " "}}, "openings openings"},
		{Settings{Openings: []string{"One"}}, "held_out"},
		{Settings{HeldOut: -1}, "held_out"},
	})
}

func FuzzVerify(f *testing.F) {
	f.Add("dog park", "The Dog's PARKS")
	f.Add("İ", "i̇")
	f.Add("ẞ", "SS")
	f.Fuzz(func(t *testing.T, answer, response string) {
		v := Verifier{}.Verify(task.Prompt{Answer: answer}, response)
		if v.Correct != (v.Reward == 1) || !(v.Reward >= 0 && v.Reward <= 1) {
			t.Fatalf("%q for %q: %+v", response, answer, v)
		}
		usable := Verifier{}.CheckAnswer(answer) == nil
		if v := (Verifier{}).Verify(task.Prompt{Answer: answer}, fmt.Sprint("so ", answer)); v.Correct != usable {
			t.Fatalf("%q does not verify against itself: %+v", answer, v)
		}
	})
}
