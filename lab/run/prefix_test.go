package run

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// Sums below 2000 have up to four digits: half of them are one or two tokens. A group begins with them or not, as a
// whole; they are of the right answer, masked, and part of what is rewarded and of the turn's limit of 4 tokens.
func TestAGroupBeginsWithAPrefixOfTheAnswer(t *testing.T) {
	c := small(t, "task.max=1000", "generate.max_tokens=4", "policy.positions=32")
	g, start, w := maker(t, c)
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	plain, _, _ := maker(t, c)
	g.prefixes = prefixes{made.(task.Demonstrator), Prefix{Share: 0.5}.withDefaults(), 1}
	lengths := make(map[int]int)
	for n := range uint64(200) {
		p := made.Train(n)
		job := pipeline.Job{Number: n, Size: 3, Prompt: p, PromptNumber: n}
		group, _ := generated(t, g, w, job, 0)
		in, err := g.encodePrompt(p)
		if err != nil {
			t.Fatal(err)
		}
		prompt := len(in.Tokens)
		prefix := slices.Index(group[0].Mask, 1) - prompt
		lengths[prefix]++
		answer := g.prefixes.Demonstrate(p)
		if prefix == 0 {
			if alone, _ := generated(t, plain, w, job, 0); alone[0].Text != group[0].Text {
				t.Fatalf("job %d, without a prefix, answers %q, want %q", n, group[0].Text, alone[0].Text)
			}
		}
		if most := len(answer) / 2; prefix > most {
			t.Fatalf("job %d begins with %d tokens of %q", n, prefix, answer)
		}
		for _, r := range group {
			if !strings.HasPrefix(r.Text, answer[:prefix]) || slices.Index(r.Mask, 1) != prompt+prefix ||
				len(r.Tokens)-prompt > 4 {
				t.Fatalf("job %d: %q with mask %v after a prompt of %d, for %q", n, r.Text, r.Mask, prompt, answer)
			}
			for i := range prefix {
				if at := prompt + i; r.Logprobs[at] != 0 || r.Versions[at] != rollout.NoVersion {
					t.Fatalf("job %d: token %d of the prefix has log-prob %g of version %d", n, i, r.Logprobs[at], r.Versions[at])
				}
			}
			if err := r.Validate(rollout.Limits{}); err != nil {
				t.Fatal(err)
			}
		}
		// The policy goes on from there as if it had written the prefix.
		r := group[2]
		scores, err := start.model.Score(t.Context(), start.weights, []policy.Input{{Tokens: r.Tokens, Mask: r.Mask}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range r.Mask {
			if m == 1 && math.Abs(float64(scores[0].Logprobs[i]-r.Logprobs[i])) > 1e-4 {
				t.Fatalf("job %d: token %d has log-prob %g, the policy says %g", n, i, r.Logprobs[i], scores[0].Logprobs[i])
			}
		}
	}
	// Half of the groups, 4 standard deviations either way, and of those with room for two as many with one.
	if n := 200 - lengths[0]; n < 100-28 || n > 100+28 || lengths[1] < 20 || lengths[2] < 15 || len(lengths) != 3 {
		t.Errorf("how often prefixes have each number of tokens: %v", lengths)
	}
	g.prefixes.Share, g.prefixes.Of = 1, prefixOfReplayed
	for _, replayed := range []bool{false, true} {
		job := pipeline.Job{Number: 1, Size: 2, Prompt: made.Train(1), Replayed: replayed}
		group, _ := generated(t, g, w, job, 0)
		in, err := g.encodePrompt(job.Prompt)
		if begun := slices.Index(group[0].Mask, 1) > len(in.Tokens); err != nil || begun != replayed {
			t.Errorf("of replayed prompts alone: a prefix where replayed is %t: %t (%v)", replayed, begun, err)
		}
	}
}

// The latest right answer to a prompt is what its next group begins like; a wrong one is not, nor that of another prompt.
func TestAGroupBeginsWithAPrefixOfAnEarlierAnswer(t *testing.T) {
	c := small(t, "task.max=1000", "generate.prefix={share: 1, source: replay}")
	g, _, w := maker(t, c)
	made, err := c.newTask()
	if err != nil {
		t.Fatal(err)
	}
	g.prefixes = prefixes{nil, c.Generate.Prefix.withDefaults(), 1}
	in, err := g.encodePrompt(made.Train(0))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(reward float32, text string) *rollout.Rollout {
		tokens, err := g.encodeTurn(text)
		if err != nil {
			t.Fatal(err)
		}
		r := rollout.New(made.Train(0).ID, in.Tokens, rollout.Completion{Tokens: tokens, Logprobs: make([]float32, len(tokens))})
		r.Reward = reward
		return r
	}
	kept := c.newAnswers()
	kept.keep([]*rollout.Rollout{answer(1, "1111"), answer(0, "2222")})
	kept.keep([]*rollout.Rollout{answer(1, "3333"), answer(0, "4444")})
	dir := t.TempDir()
	restored := c.newAnswers()
	if err := errors.Join(kept.save(dir), restored.restore(dir)); err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"3", ""} {
		job := pipeline.Job{Size: 2, Prompt: made.Train(uint64(n))}
		job.Earlier = restored.Answer(job)
		group, _ := generated(t, g, w, job, 0)
		prefix := strings.Repeat(want, slices.Index(group[0].Mask, 1)-len(in.Tokens))
		if want != "" && prefix == "" || !strings.HasPrefix(group[1].Text, prefix) || len(prefix) > 2 {
			t.Errorf("prompt %d: %q begins with %q, want one or two times %q", n, group[1].Text, prefix, want)
		}
		if want == "" && !slices.Contains(group[0].Mask[len(in.Tokens):len(in.Tokens)+1], 1) {
			t.Errorf("prompt %d, whose answers nobody kept, begins with a prefix", n)
		}
	}
}

func TestPrefixesThatCannotBeAreRefusedByKey(t *testing.T) {
	for set, want := range map[string]string{
		"generate.prefix.share=2":                                       "generate.prefix.share: 2: want 0 (no group begins so) to 1",
		"generate.prefix.length=0.5":                                    "generate.prefix.share: 0: want more than 0 with source, length or of",
		"generate.prefix={share: 1, length: 1}":                         "generate.prefix.length: 1: want a share of the answer's tokens",
		"generate.prefix={share: 1, source: old}":                       "generate.prefix.source: old: want expert or replay",
		"generate.prefix={share: 1, source: replay};generate.experts=1": "generate.prefix.source: replay: want expert with generate.experts 1",
		"generate.prefix={share: 1, of: hard}":                          "generate.prefix.of: hard: want all or replayed",
		"generate.prefix={share: 1, of: replayed}":                      "generate.prefix.of: replayed: want all with prompts.fraction 0",
		"generate.prefix.share=1;task={name: sokoban}":                  "generate.prefix.share: 1: want 0: rollouts of task sokoban are episodes",
		"generate.prefix.share=1;task={name: cliffwalking}":             "generate.prefix.share: 1: want 0: rollouts of task cliffwalking are episodes",
	} {
		if _, err := Load("", strings.Split(set, ";")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", set, err, want)
		}
	}
}
