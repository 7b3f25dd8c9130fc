package main

import (
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/task/transcript"
)

// episodesOf decodes what play --json printed.
func episodesOf(t *testing.T, text string) []transcript.Transcript {
	t.Helper()
	var list []transcript.Transcript
	for line := range strings.Lines(text) {
		var one transcript.Transcript
		decode(t, line, &one)
		list = append(list, one)
	}
	return list
}

func TestPlayPrintsAnEpisodeInWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"an expert": {"", []string{"arithmetic", "--policy", "expert", "--set", "max=30"},
			"arithmetic, episode 1, prompt arithmetic/SUM\n  SUM=\nturn 1: ANSWER\n    reward 1\n" +
				"over, success after 1 turn, reward 1\n"},
		"a line": {"7\n8\n", []string{"arithmetic", "--set", "max=30"},
			"arithmetic, episode 1, prompt arithmetic/SUM\n  SUM=\nturn 1> 7\n    reward 0\n" +
				"over, no success after 1 turn, reward 0\n"},
		"a line without an end": {"x", []string{"arithmetic", "--set", "max=30"},
			"arithmetic, episode 1, prompt arithmetic/SUM\n  SUM=\nturn 1> x\n    reward 0, no action\n" +
				"over, no success after 1 turn, reward 0\n"},
		"nobody": {"", []string{"arithmetic", "--episodes", "3", "--set", "max=30"},
			"arithmetic, episode 1, prompt arithmetic/SUM\n  SUM=\nturn 1> \nleft after 0 turns, reward 0\n"},
	} {
		e := episodesOf(t, succeeds(t, "", "play", "arithmetic", "--set", "max=30", "--policy", "expert", "--json"))[0]
		want := strings.NewReplacer("SUM", strings.TrimSuffix(e.Text, "="), "ANSWER", e.Turns[0].Action).Replace(c.want)
		if got := succeeds(t, c.stdin, append([]string{"play"}, c.args...)...); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

func TestPlayByHandTakesSeveralTurns(t *testing.T) {
	t.Parallel()
	got := succeeds(t, "R\r\nwhat?\nD\n", "play", "frozenlake", "--set", "slippery=false")
	for _, want := range []string{
		"  PFFF\n  FHFH\n", "turn 1 [L, D, R, U]> R\n    reward 0\n  SPFF\n", "turn 2 [L, D, R, U]> what?\n" +
			"    reward -0.1, no action\n  SPFF\n",
		"turn 3 [L, D, R, U]> D\n    reward 0\n", "over, no success after 3 turns, reward -0.1\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	left := episodesOf(t, call(t, "R\n", "play", "frozenlake", "--set", "slippery=false", "--episodes", "2",
		"--json").stdout)
	if len(left) != 1 || left[0].Ended != transcript.EndedLeft || len(left[0].Turns) != 1 ||
		left[0].Turns[0].Action != "R" {
		t.Errorf("a game that was left: %+v", left)
	}
}

// On a lake that is not slippery the expert takes the six steps of a shortest path; random actions seldom reach the
// goal.
func TestTheExpertArrivesAndRandomActionsSeldomDo(t *testing.T) {
	t.Parallel()
	play := func(who string) (arrived int, reward float64, list []transcript.Transcript) {
		list = episodesOf(t, succeeds(t, "", "play", "frozenlake", "--set", "slippery=false", "--policy", who,
			"--episodes", "40", "--json"))
		for _, e := range list {
			if e.Success {
				arrived++
			}
			reward += e.Reward
		}
		return arrived, reward, list
	}
	arrived, reward, list := play("expert")
	if arrived != 40 || reward != 40 || len(list[39].Turns) != 6 || list[39].Episode != 40 ||
		list[0].Ended != transcript.EndedDone {
		t.Errorf("experts arrive %d times of 40, for %g, the last in %d turns", arrived, reward, len(list[39].Turns))
	}
	arrived, _, list = play("random")
	if again, _, _ := play("random"); arrived > 10 || again != arrived {
		t.Errorf("chance arrives %d times of 40, the second time %d", arrived, again)
	}
	actions := map[string]int{}
	for _, e := range list {
		for _, turn := range e.Turns {
			actions[turn.Action]++
		}
	}
	if len(actions) != 4 {
		t.Errorf("chance has the actions %v", actions)
	}
}

func TestPlayWithAModelIsGreedyOrSampled(t *testing.T) {
	t.Parallel()
	dir := modelFolder(t)
	args := []string{"play", "arithmetic", "--policy", dir, "--episodes", "6", "--max-tokens", "5", "--json"}
	greedy := succeeds(t, "", args...)
	list := episodesOf(t, greedy)
	if len(list) != 6 || len(list[0].Turns) != 1 {
		t.Fatalf("episodes %+v", list)
	}
	if again := succeeds(t, "", args...); again != greedy {
		t.Errorf("greedy games differ:\n%s%s", greedy, again)
	}
	if warm := succeeds(t, "", append(args, "--temperature", "1")...); warm == greedy {
		t.Errorf("sampled games are the greedy ones:\n%s", warm)
	}
	var c completion
	decode(t, succeeds(t, "", "generate", "--model", dir, "--prompt", list[3].Text, "--temperature", "0",
		"--max-tokens", "5", "--json"), &c)
	if c.Text != list[3].Turns[0].Action {
		t.Errorf("play says %q, generate %q", list[3].Turns[0].Action, c.Text)
	}
}

func TestHeldOutEpisodesUseHeldOutPrompts(t *testing.T) {
	t.Parallel()
	args := []string{"play", "arithmetic", "--set", "max=6", "--set", "held_out=18", "--policy", "expert", "--json",
		"--episodes"}
	held := map[string]bool{}
	for _, e := range episodesOf(t, succeeds(t, "", append(args, "18", "--held-out")...)) {
		held[e.Prompt] = true
	}
	if len(held) != 18 {
		t.Errorf("%d of 18 held-out prompts are played", len(held))
	}
	for _, e := range episodesOf(t, succeeds(t, "", append(args, "50")...)) {
		if held[e.Prompt] {
			t.Errorf("%s is held out, and played as a training prompt", e.Prompt)
		}
	}
	fails(t, call(t, "", append(args, "19", "--held-out")...),
		"--episodes: 19: want at most 18, the number of held-out prompts")
}

func TestFramesAreWrittenAndNamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "frames")
	args := []string{"play", "frozenlake", "--set", "images=true", "--set", "slippery=false", "--policy", "expert"}
	e := episodesOf(t, succeeds(t, "", append(args, "--json", "--frames", dir)...))[0]
	names := []string{e.Frame}
	for _, turn := range e.Turns[:len(e.Turns)-1] {
		names = append(names, turn.Frame)
	}
	seen := map[string]bool{}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := png.Decode(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		seen[name] = true
	}
	if len(seen) != 6 || e.Turns[5].Frame != "" {
		t.Errorf("6 frames before 6 turns are wanted, not %q", names)
	}
	if out := succeeds(t, "", append(args, "--frames", dir)...); !strings.Contains(out, "  ["+e.Turns[0].Frame+"]\n") {
		t.Errorf("%s is not named in\n%s", e.Turns[0].Frame, out)
	}
	if out := succeeds(t, "", args...); !strings.Contains(out, "  [an image; --frames DIR writes it to a file]\n") {
		t.Errorf("images are not mentioned in\n%s", out)
	}
}

func TestTransitionsArePrintedLikeGymnasiums(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args            []string
		states, actions int
	}{
		"a small lake":    {[]string{"frozenlake", "--set", "size=4", "--set", "slippery=true"}, 16, 4},
		"a large lake":    {[]string{"frozenlake", "--set", "size=8", "--set", "slippery=false"}, 64, 4},
		"a less slippery": {[]string{"frozenlake", "--set", "success_rate=0.75"}, 16, 4},
		"a cliff":         {[]string{"cliffwalking", "--set", "slippery=false"}, 48, 4},
	} {
		var table map[string]map[string][][4]any
		if err := json.Unmarshal([]byte(succeeds(t, "", append([]string{"play", "--dump-transitions"}, c.args...)...)),
			&table); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(table) != c.states {
			t.Errorf("%s: %d states, want %d", name, len(table), c.states)
		}
		for state, actions := range table {
			if len(actions) != c.actions {
				t.Errorf("%s: state %s has %d actions", name, state, len(actions))
			}
			for action, outcomes := range actions {
				sum := 0.0
				for _, o := range outcomes {
					p, ok := o[0].(float64)
					_, done := o[3].(bool)
					if sum += p; !ok || !done {
						t.Errorf("%s: state %s, action %s: outcome %v", name, state, action, o)
					}
				}
				if sum < 1-1e-12 || sum > 1+1e-12 {
					t.Errorf("%s: state %s, action %s: probabilities add up to %v", name, state, action, sum)
				}
			}
		}
	}
}

func TestPlayRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	model := modelFolder(t)
	for want, args := range map[string][]string{
		"name: chess: want one of arithmetic":                             {"chess"},
		"--episodes: 0: want 1 or more":                                   {"arithmetic", "--episodes", "0"},
		`--policy: "random": want expert, a model folder: task`:           {"arithmetic", "--policy", "random"},
		`--policy: "/nowhere": want expert, random, a model folder: read`: {"frozenlake", "--policy", "/nowhere"},
		"colour: unknown key: want one of":                                {"arithmetic", "--set", "colour=red"},
		"max: abc: want a whole number":                                   {"arithmetic", "--set", "max=abc"},
		`--set "max": want key=value`:                                     {"arithmetic", "--set", "max"},
		"held_out: 400: want 0 (400) to":                                  {"arithmetic", "--set", "max=5"},
		"--dump-transitions: task arithmetic is not tabular":              {"arithmetic", "--dump-transitions"},
		"--frames: x: task arithmetic has no images":                      {"arithmetic", "--frames", "x"},
		"--frames: x: task frozenlake has no images as it is set": {"frozenlake", "--frames", "x", "--policy",
			"expert"},
		": want a model that can read the task's prompts: encode prompt": {"frozenlake", "--policy", model},
		"want a model with a vision tower for images of": {"frozenlake", "--set", "images=true",
			"--policy", model},
		"--max-tokens: max_tokens: 0: want 1 or more": {"arithmetic", "--policy", model,
			"--max-tokens", "0"},
	} {
		if out := fails(t, call(t, "", append([]string{"play", "--json"}, args...)...), want); out != "" {
			t.Errorf("reprise play %v wrote %q", args, out)
		}
	}
}
