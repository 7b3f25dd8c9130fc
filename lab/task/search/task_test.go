package search

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
	"github.com/reprise-rl/reprise/rollout"
)

var (
	_ task.Environment = (*Task)(nil)
	_ task.Alphabet    = (*Task)(nil)
	_ task.Expert      = (*episode)(nil)
)

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

func TestHeldOutQuestionsAreAboutOtherBeings(t *testing.T) {
	for _, n := range []int{100, 7, 800} {
		made := newTask(t, Settings{HeldOut: n}, 3)
		held := map[string]bool{}
		ids := map[string]bool{}
		for _, p := range made.HeldOut() {
			held[strings.Fields(p.Text)[0]] = true
			ids[p.ID] = true
		}
		if len(ids) != n || len(held) != (n+3)/4 {
			t.Errorf("%d held out: %d different, after %d beings", n, len(ids), len(held))
		}
		trained := map[string]bool{}
		epoch := 1600 - (n+3)/4*4
		for i := range uint64(epoch) {
			p := made.Train(i)
			if held[strings.Fields(p.Text)[0]] {
				t.Fatalf("training question %d, %q, is after a being held out", i, p.Text)
			}
			trained[p.ID] = true
		}
		if len(trained) != epoch {
			t.Errorf("%d of %d training questions in an epoch", len(trained), epoch)
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	tasktest.SeedOrdersTraining(t, newTask(t, Settings{}, 1), newTask(t, Settings{}, 1), newTask(t, Settings{}, 2), 300,
		5)
}

// corpora of every kind: made up, SQuAD in both formats, text with questions.
func variety(t testing.TB) map[string]Settings {
	root := folder(t, map[string]string{
		"squad/rivers.json": rivers,
		"text/a.txt":        "The owl hunts at night — in “silence”.\n\nThe lark sings at dawn.",
		"q.jsonl": `{"question": "When does the owl hunt?", "answers": ["at night", "night"]}` + "\n" +
			`{"question": "When does the lark sing?", "answer": "dawn"}` + "\n" + `{"question": "Über was?", "answer": "nichts"}`,
	})
	return map[string]Settings{
		"made up":       {},
		"made up words": {Format: task.Words, MaxSearches: 1, Passages: 1, HeldOut: 50},
		"squad":         {Corpus: filepath.Join(root, "squad"), HeldOut: 1},
		"squad terse": {Corpus: filepath.Join(root, "squad/rivers.json"), HeldOut: 1, Format: task.Terse,
			PassageLength: 30},
		"text": {Corpus: filepath.Join(root, "text"), Questions: filepath.Join(root, "q.jsonl"), HeldOut: 1,
			Template: "{question} #"},
	}
}

func TestExpertsAnswerEveryQuestionWithinTheLimitsAndTheAlphabet(t *testing.T) {
	for name, s := range variety(t) {
		made := newTask(t, s, 5)
		alphabet := made.Characters()
		for i, r := range alphabet {
			if strings.ContainsRune(alphabet[:i], r) {
				t.Errorf("%s: %q occurs twice", name, r)
			}
		}
		written := func(text string) {
			t.Helper()
			for _, r := range text {
				if !strings.ContainsRune(alphabet, r) {
					t.Errorf("%s: %q of %q is not in the alphabet", name, r, text)
				}
			}
		}
		prompts := made.HeldOut()
		for i := range uint64(200) {
			prompts = append(prompts, made.Train(i))
		}
		for _, p := range prompts {
			written(p.Text)
			e := made.Reset(p, 9).(task.Expert)
			for turn := 1; ; turn++ {
				said := e.Advise()
				written(said)
				step := e.Step(said)
				written(step.Text)
				if turn > made.MaxTurns() || step.Invalid {
					t.Fatalf("%s: %q: turn %d, %q, %+v", name, p.Text, turn, said, step)
				}
				if step.Done {
					if step.Reward != 1 || !step.Correct || step.Cut || step.Text != "" || turn < 2 {
						t.Errorf("%s: %q ends in turn %d with %+v", name, p.Text, turn, step)
					}
					break
				}
			}
		}
	}
}

func TestExpertsOfMadeUpFactsSearchOnce(t *testing.T) {
	made := newTask(t, Settings{Passages: 1}, 1)
	for i := range uint64(100) {
		p := made.Train(i)
		e := made.Reset(p, 0).(task.Expert)
		fact := strings.TrimSuffix(p.Text, "?")
		if said := e.Advise(); said != "?"+fact {
			t.Fatalf("%q: %q", p.Text, said)
		}
		if step := e.Step(e.Advise()); step.Text != "\n"+fact+" "+p.Answer+".\n" {
			t.Fatalf("%q finds %q", p.Text, step.Text)
		}
		if said := e.Advise(); said != "="+p.Answer {
			t.Fatalf("%q: %q", p.Text, said)
		}
	}
}

func TestExpertsAnswerInTheLastTurnEvenAfterMistakes(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	p := made.Train(0)
	for mistakes := range made.MaxTurns() {
		e := made.Reset(p, 0).(task.Expert)
		for range mistakes {
			e.Step("kova")
		}
		var step task.Step
		for !step.Done {
			step = e.Step(e.Advise())
		}
		if !step.Correct {
			t.Errorf("after %d mistakes: %+v", mistakes, step)
		}
	}
}

func TestExpertsTryOtherQueries(t *testing.T) {
	root := folder(t, map[string]string{"a.json": `{"data": [{"title": "Owls", "paragraphs": [
		{"context": "They hunt at night.", "qas": [{"question": "When are hares caught?", "answers": [{"text": "night"}]},
			{"question": "Which star?", "answers": [{"text": "Vega"}]}]}]},
		{"title": "Hares", "paragraphs": [{"context": "Some hares are caught."}]}]}`})
	made := newTask(t, Settings{Corpus: root, HeldOut: 1, Passages: 1, Format: task.Terse}, 1)
	prompts := append(made.HeldOut(), made.Train(0))
	for _, p := range prompts {
		e := made.Reset(p, 0).(task.Expert)
		var said []string
		for {
			text := e.Advise()
			said = append(said, text)
			if e.Step(text).Done {
				break
			}
		}
		if p.Answer == "Vega" { // nowhere: it tries, and knows it nevertheless
			if len(said) != 3 || !strings.HasPrefix(said[0], "?") || !strings.HasPrefix(said[1], "?") ||
				said[0] == said[1] || said[2] != "=Vega" {
				t.Errorf("%q: %q", p.Text, said)
			}
			continue
		}
		if want := []string{"?Owls", "=night"}; !reflect.DeepEqual(said, want) {
			t.Errorf("%q: %q, want %q", p.Text, said, want)
		}
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{Penalty: -1, MaxSearches: 16, Passages: 20, PassageLength: 20, QueryLength: 8}, ""},
		{Settings{Questions: "x"}, "questions"},
		{Settings{Format: "xml", Template: "?"}, "format template"},
		{Settings{Template: "{question}{question}"}, "template"},
		{Settings{MaxSearches: -1, Passages: 21, PassageLength: 19, QueryLength: 1001, HeldOut: -1, Penalty: 2},
			"max_searches passages passage_length query_length held_out penalty"},
		{Settings{Penalty: -0.5, MaxSearches: 17}, "max_searches penalty"},
	})
}

func TestTasksThatCannotBeMadeSayWhy(t *testing.T) {
	root := folder(t, map[string]string{"text/a.txt": "A text.", "q.jsonl": "{}", "squad/rivers.json": rivers})
	for want, s := range map[string]Settings{
		"held_out: 801: want at most 800, half of the 1600 questions": {HeldOut: 801},
		"held_out: 100: want at most 1, half of the 2 questions":      {Corpus: filepath.Join(root, "squad")},
		"questions: \"\": want a file of JSON lines":                  {Corpus: filepath.Join(root, "text")},
		"corpus: ": {Corpus: filepath.Join(root, "none")},
		"q.jsonl: line 1: field question: missing: want a string": {Corpus: filepath.Join(root, "text"),
			Questions: filepath.Join(root, "q.jsonl")},
		"penalty: 3: want 0 (0.1) to 1, or -1 for none": {Penalty: 3},
	} {
		if made, err := New(s, 1); err == nil || made != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// play writes down the result of each turn.
func play(e task.Episode, texts ...string) string {
	var course []string
	for _, text := range texts {
		s := e.Step(text)
		var flags string
		if s.Done {
			flags = "D"
		}
		if s.Cut {
			flags += "C"
		}
		if s.Correct {
			flags += "+"
		}
		if s.Invalid {
			flags += "!"
		}
		course = append(course, fmt.Sprintf("%q %g %s", s.Text, s.Reward, flags))
	}
	return strings.Join(course, "; ")
}

func TestEpisodesGoByTheRules(t *testing.T) {
	made := newTask(t, Settings{Passages: 1}, 1)
	p := made.Train(0)
	fact := strings.TrimSuffix(p.Text, "?")
	found := fmt.Sprintf("%q 0 ", "\n"+fact+" "+p.Answer+".\n")
	wrong := "=" + p.Answer + "x"
	for want, texts := range map[string][]string{
		found + `; "" 1 D+`: {"?" + fact, "=" + p.Answer},
		// after its end nothing happens
		`"" 1 D+; "" 0 D`: {"= THE " + p.Answer + "!", "=" + p.Answer},
		`"" 0 D`:          {wrong},
		// the third is one too many
		found + "; " + found + `; "" -0.1 DC!`: {"?" + fact, "?" + fact, "?" + fact},
		// no turn is left to answer in
		`"\n!\n" -0.1 !; ` + found + `; "" 0 DC`:      {"", "?" + fact, "?" + fact},
		`"\n!\n" -0.1 !; "\n!\n" -0.1 !; "" -0.1 DC!`: {"x", "\xff\x00", "rus"},
		`"\n!\n" -0.1 !; "\n-\n" 0 ; "" 1 D+`:         {"kova", "?zzzz", "=" + p.Answer},
	} {
		if got := play(made.Reset(p, 1), texts...); got != want {
			t.Errorf("%q:\n%s, want\n%s", texts, got, want)
		}
	}
}

func TestPenaltiesAreThoseOfTheSettings(t *testing.T) {
	for set, want := range map[float64]float32{0: -0.1, 0.25: -0.25, 1: -1, -1: 0} {
		made := newTask(t, Settings{Penalty: set}, 1)
		if step := made.Reset(made.Train(0), 0).Step("?"); step.Reward != want || !step.Invalid {
			t.Errorf("penalty %g: %+v", set, step)
		}
	}
}

func TestOnlyTheFirstCharactersOfAQueryCount(t *testing.T) {
	made := newTask(t, Settings{QueryLength: 8}, 1)
	being := made.Train(0).Text[:4]
	for query, found := range map[string]bool{
		"éé, " + being:            true, // eight characters in ten bytes
		"éé, " + being + "zzz":    true, // the ninth to eleventh would make it another word
		"ééé, " + being:           false,
		"zzzzzzzz " + being:       false,
		being + " " + being + "x": true,
	} {
		if got := play(made.Reset(made.Train(0), 0), "?"+query); strings.Contains(got, being) != found {
			t.Errorf("%q finds %s", query, got)
		}
	}
}

func TestForeignStatesHaveNoRightAnswer(t *testing.T) {
	made := newTask(t, Settings{}, 1)
	for _, state := range []string{"", "{", "7", `{"answers": 3}`, `{"question": "kova eats?"}`} {
		e := made.Reset(task.Prompt{Text: "kova eats?", State: state}, 1).(task.Expert)
		for turn := 0; turn < made.MaxTurns(); turn++ {
			if step := e.Step(e.Advise()); step.Correct || step.Reward > 0 {
				t.Errorf("%q: %+v", state, step)
			}
		}
	}
}

// referee is a second implementation of the rules: it plays a whole sequence of turns.
func referee(facts []string, question, answer string, searches, passages int, texts []string) string {
	var course []string
	used := 0
	for turn, text := range texts {
		last := turn == searches
		line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		var body string
		if line != "" {
			body = strings.TrimSpace(line[1:])
		}
		var s string
		switch {
		case body != "" && line[0] == '=' && normalize(body) == answer:
			return strings.Join(append(course, `"" 1 D+`), "; ")
		case body != "" && line[0] == '=':
			return strings.Join(append(course, `"" 0 D`), "; ")
		case body != "" && line[0] == '?' && used < searches:
			used++
			var found []string
			for _, h := range naive(facts, letters(body), passages) {
				found = append(found, facts[h.passage]+".")
			}
			if len(found) == 0 {
				found = []string{"-"}
			}
			s = fmt.Sprintf("%q 0 ", "\n"+strings.Join(found, "\n")+"\n")
			if last {
				s = `"" 0 DC`
			}
		case last:
			s = `"" -0.1 DC!`
		case body != "" && line[0] == '?':
			s = `"\n=\n" -0.1 !`
		default:
			s = `"\n!\n" -0.1 !`
		}
		if course = append(course, s); last {
			break
		}
	}
	return strings.Join(course, "; ")
}

func TestRandomEpisodesAgreeWithTheReferee(t *testing.T) {
	corpus := facts()
	facts := make([]string, len(corpus.passages))
	for i, p := range corpus.passages {
		facts[i] = strings.TrimSuffix(p, ".")
	}
	for _, s := range []Settings{{}, {MaxSearches: 1, Passages: 1}, {MaxSearches: 4, Passages: 9}} {
		made := newTask(t, s, 1)
		s.Resolve()
		for seed := range uint64(150) {
			r := rollout.Stream(seed, "search test episode", 0)
			p := made.Train(seed)
			fact := strings.TrimSuffix(p.Text, "?")
			pieces := []string{"?", "=", "?", " ", "\n", fact, fact[:4], fact[5:], p.Answer, "the ", " zz", "\xff",
				corpus.passages[r.IntN(1600)]}
			var texts []string
			for range made.MaxTurns() {
				text := []string{"?", "?", "=", ""}[r.IntN(4)]
				for range r.IntN(5) {
					text += pieces[r.IntN(len(pieces))]
				}
				texts = append(texts, text)
			}
			var course []string
			e := made.Reset(p, seed)
			for _, text := range texts {
				step := play(e, text)
				course = append(course, step)
				if strings.Contains(step[strings.LastIndex(step, " "):], "D") {
					break
				}
			}
			if got, want := strings.Join(course, "; "), referee(facts, p.Text, p.Answer, s.MaxSearches, s.Passages,
				texts); got != want {
				t.Fatalf("seed %d, %q, %q:\n%s, want\n%s", seed, p.Text, texts, got, want)
			}
		}
	}
}

// letters replaces everything but the letters of the facts by spaces.
func letters(query string) string {
	return strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return ' '
		}
		return r
	}, query)
}

func FuzzEpisodesTakeAnyText(f *testing.F) {
	made := newTask(f, Settings{Format: task.Words}, 1)
	terse := newTask(f, Settings{}, 1)
	f.Add("?kova", "=rus", "<search>kova</search>")
	f.Add("<answer>\xff</answer>", "", "\x00")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, m := range []*Task{made, terse} {
			e := m.Reset(m.Train(3), 0)
			total := float32(0)
			for turn, text := range []string{a, b, c} {
				s := e.Step(text)
				total += s.Reward
				if s.Correct && s.Reward != 1 || s.Done && s.Text != "" || turn == 2 && !s.Done {
					t.Fatalf("%q: %+v", text, s)
				}
			}
			if total > 1 || total < -0.3001 {
				t.Fatalf("%q %q %q: reward %g", a, b, c, total)
			}
		}
	})
}

func BenchmarkEpisode(b *testing.B) {
	made := newTask(b, Settings{}, 1)
	i := uint64(0)
	for b.Loop() {
		e := made.Reset(made.Train(i), i).(task.Expert)
		for !e.Step(e.Advise()).Done {
		}
		i++
	}
}

// The recall is that of the expert's first query; the questions are people's, about paragraphs of Wikipedia.
func TestXQuADIsFoundByItsQuestions(t *testing.T) {
	path := "../../../../shared/data/wiki/xquad.en.json"
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s: not there: it is for trying, and no part of the repository", path)
	}
	made := newTask(t, Settings{Corpus: path, Passages: 3}, 1)
	found := 0
	for i := range uint64(1000) {
		p := made.Train(i)
		e := made.Reset(p, 0).(*episode)
		e.Step(made.protocol.write(query, p.Text[strings.LastIndex(p.Text, "Question: ")+10:]))
		if e.found {
			found++
		}
	}
	if found < 930 {
		t.Errorf("%d of 1000 questions find their answer among three passages", found)
	}
	t.Logf("%d of 1000 questions find their answer among three of %d passages", found, len(made.passages))
}
