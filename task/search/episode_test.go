package search

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/task"
)

// play lets texts act and writes down what came of each.
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
		found + `; "" 1 D+`:                           {"?" + fact, "=" + p.Answer},
		`"" 1 D+; "" 0 D`:                             {"= THE " + p.Answer + "!", "=" + p.Answer}, // after its end nothing happens
		`"" 0 D`:                                      {wrong},
		found + "; " + found + `; "" -0.1 DC!`:        {"?" + fact, "?" + fact, "?" + fact}, // the third is one too many
		`"\n!\n" -0.1 !; ` + found + `; "" 0 DC`:      {"", "?" + fact, "?" + fact},         // no turn is left to answer in
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

func TestForeignStatesAreQuestionsThatNothingAnswers(t *testing.T) {
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

// referee is the rules once more: what a sequence of turns leads to, by a model that looks at the whole sequence.
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
		case body != "" && line[0] == '=' && Normalize(body) == answer:
			return strings.Join(append(course, `"" 1 D+`), "; ")
		case body != "" && line[0] == '=':
			return strings.Join(append(course, `"" 0 D`), "; ")
		case body != "" && line[0] == '?' && used < searches:
			used++
			var found []string
			for _, h := range naive(facts, plain(body), passages) {
				found = append(found, facts[h.Passage]+".")
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

func TestRandomEpisodesAgreeWithTheRulesWrittenOnceMore(t *testing.T) {
	corpus := Facts()
	facts := make([]string, len(corpus.Passages))
	for i, p := range corpus.Passages {
		facts[i] = strings.TrimSuffix(p, ".")
	}
	for _, s := range []Settings{{}, {MaxSearches: 1, Passages: 1}, {MaxSearches: 4, Passages: 9}} {
		made := newTask(t, s, 1)
		s.Resolve()
		for seed := range uint64(150) {
			r := rollout.Stream(seed, "search test episode", 0)
			p := made.Train(seed)
			fact := strings.TrimSuffix(p.Text, "?")
			pieces := []string{"?", "=", "?", " ", "\n", fact, fact[:4], fact[5:], p.Answer, "the ", " zz", "\xff", corpus.Passages[r.IntN(1600)]}
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
			if got, want := strings.Join(course, "; "), referee(facts, p.Text, p.Answer, s.MaxSearches, s.Passages, texts); got != want {
				t.Fatalf("seed %d, %q, %q:\n%s, want\n%s", seed, p.Text, texts, got, want)
			}
		}
	}
}

// plain puts spaces for what is no letter of the facts.
func plain(query string) string {
	return strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return ' '
		}
		return r
	}, query)
}

func FuzzEpisodesTakeAnyText(f *testing.F) {
	made := newTask(f, Settings{Format: Words}, 1)
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
