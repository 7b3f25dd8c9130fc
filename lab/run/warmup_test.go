package run

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// lessons returns demonstrations of a game and the policy that they are written for.
func lessons(t *testing.T, rules counting, noise float64, n int, assignments ...string) ([]*rollout.Rollout, *Start) {
	t.Helper()
	c := counts(t, rules, append([]string{"warmup.steps=0"}, assignments...)...)
	s := begin(t, c)
	var list []*rollout.Rollout
	for i := range n {
		d, err := demonstrator{s.textModel, rules, c.Seed, noise}.demonstrate(i)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	return list, s
}

// turnsOf splits the tokens of a demonstration at the ends of turns: what was said, and whether it is to be imitated.
func turnsOf(s *Start, d *rollout.Rollout) (said []string, imitated []bool) {
	eos := s.tokenizer.EOS()[0]
	for at := 0; ; {
		end := slices.Index(d.Tokens[at:], eos)
		if end < 0 {
			return said, imitated
		}
		text := s.tokenizer.Decode(d.Tokens[at : at+end])
		said = append(said, text[strings.LastIndex(text, ">")+1:])
		imitated = append(imitated, d.Mask[at+end] == 1)
		at += end + 1
	}
}

func TestDemonstrationsAreTheExpertsTurnsAndTheAnswers(t *testing.T) {
	for name, rules := range map[string]counting{"text": {turns: 9}, "images": {turns: 9, size: 8}} {
		list, s := lessons(t, rules, 0, 40)
		for i, d := range list {
			p := rules.Train(rollout.Stream(1, "warmup", uint64(i)).Uint64())
			e := rules.Reset(p, 0)
			in, err := s.encodePrompt(p)
			if err != nil {
				t.Fatal(err)
			}
			tokens, mask, images := in.Tokens, make([]uint8, len(in.Tokens)), in.Images
			for {
				turn, err := s.encodeTurn(e.(task.Expert).Advise())
				if err != nil {
					t.Fatal(err)
				}
				step := e.Step(s.tokenizer.Decode(turn))
				tokens, mask = append(tokens, turn...), append(mask, 1, 1)
				if step.Done {
					break
				}
				if in, err = s.encodeObservation(step, tokens[len(tokens)-1]); err != nil {
					t.Fatal(err)
				}
				tokens, mask, images = append(tokens, in.Tokens...), append(mask, make([]uint8, len(in.Tokens))...),
					append(images, in.Images...)
			}
			if !reflect.DeepEqual(d.Tokens, tokens) || !reflect.DeepEqual(d.Mask, mask) ||
				len(d.Images) != len(images) || len(images) > 0 && !reflect.DeepEqual(d.Images, images) {
				t.Errorf("%s: demonstration %d is %v, mask %v, want %v, %v", name, i, d.Tokens, d.Mask, tokens, mask)
			}
			if err := d.Validate(rollout.Limits{}); err != nil {
				t.Errorf("%s: demonstration %d: %v", name, i, err)
			}
		}
	}
}

// Where chance has a share of the turns it plays about that share of them; its actions are not imitated, and what the
// expert does from where they led is.
func TestNoiseIsPlayedButNotImitated(t *testing.T) {
	list, s := lessons(t, counting{turns: 9}, 0.4, 200)
	expert, noise, wrong := 0, 0, 0
	for i, d := range list {
		p := counting{}.Train(rollout.Stream(1, "warmup", uint64(i)).Uint64())
		e := counting{turns: 9}.Reset(p, 0)
		said, imitated := turnsOf(s, d)
		for turn, text := range said {
			advice := e.(task.Expert).Advise()
			switch {
			case imitated[turn] && text != advice:
				t.Fatalf("demonstration %d, turn %d: %q is imitated, the expert says %q", i, turn, text, advice)
			case imitated[turn]:
				expert++
			default:
				noise++
				if text != advice {
					wrong++
				}
			}
			if step := e.Step(text); step.Invalid || step.Done != (turn == len(said)-1) {
				t.Fatalf("demonstration %d, turn %d: %q leads to %+v", i, turn, text, step)
			}
		}
		if !slices.Contains(imitated, true) {
			t.Errorf("demonstration %d has nothing to imitate", i)
		}
	}
	// 0.4 of 900 or so turns, less the few of episodes that were played again: standard deviation 0.016.
	if share := float64(noise) / float64(noise+expert); share < 0.33 || share > 0.45 {
		t.Errorf("chance played %.3f of %d turns, want about 0.4", share, noise+expert)
	}
	if share := float64(wrong) / float64(noise); share < 0.4 || share > 0.6 {
		t.Errorf("chance did otherwise than the expert in %.3f of its turns, want about half", share)
	}
}

// A demonstration that chance would have all turns of is shown without it.
func TestEveryDemonstrationHasSomethingToImitate(t *testing.T) {
	list, _ := lessons(t, counting{turns: 2}, 0.95, 100)
	for i, d := range list {
		if !slices.Contains(d.Mask, 1) {
			t.Errorf("demonstration %d has nothing to imitate", i)
		}
	}
}

func TestDemonstrationsEndWithTheLastTurnThatFits(t *testing.T) {
	list, s := lessons(t, counting{turns: 9, slip: 1}, 0, 5, "policy.positions=16")
	for i, d := range list { // 4 tokens to read and 2 to write in each turn, of which the third would end at 18
		if said, _ := turnsOf(s, d); len(said) != 2 || len(d.Tokens) > 16 {
			t.Errorf("demonstration %d has the turns %q in %d tokens", i, said, len(d.Tokens))
		}
	}
	c := counts(t, counting{turns: 9}, "warmup.steps=0", "policy.positions=5")
	_, err := demonstrator{begin(t, c).textModel, counting{turns: 9}, 1, 0}.demonstrate(0)
	if err == nil || !strings.Contains(err.Error(), "policy.positions: 5: want more") {
		t.Errorf("a turn that does not fit: %v", err)
	}
}

// chatty is a counting game whose experts say it in as many words.
type chatty struct{ counting }

func (c chatty) Reset(p task.Prompt, seed uint64) task.Episode {
	return talker{c.counting.Reset(p, seed).(*count)}
}

type talker struct{ *count }

func (t talker) Advise() string { return strings.Repeat(t.count.Advise(), 3) }

// What the expert says is imitated in vain where rollouts end before it can be said.
func TestWarmupRefusesTurnsLongerThanRollouts(t *testing.T) {
	for name, k := range map[string]struct {
		max  string
		want string
	}{
		"too long": {"2", "generate.max_tokens: 2: want 3 or more"},
		"just":     {"3", ""}, // the end-of-sequence token may be missing
	} {
		c := counts(t, counting{turns: 3}, "warmup.steps=1", "generate.max_tokens="+k.max).WithTask("chatty",
			func(uint64) (task.Task, error) { return chatty{counting{turns: 3}}, nil })
		_, err := Begin(context.Background(), c, nil)
		if k.want == "" && err != nil || k.want != "" && (err == nil || !strings.HasPrefix(err.Error(), k.want)) {
			t.Errorf("%s: %v, want %q", name, err, k.want)
		}
	}
	if _, err := Begin(context.Background(), small(t, "generate.max_tokens=1", "task.max=9", "task.held_out=20"), nil); err != nil { // 16 of 36 sums have two digits
		t.Errorf("answers of which most can be said: %v", err)
	}
}

// able is a policy that can compare two digits.
func able() []string {
	return []string{"policy.hidden=32", "policy.intermediate=64", "policy.layers=2"}
}

// success returns the greedy success on the held-out problems.
func success(t *testing.T, c Config, s *Start) float64 {
	t.Helper()
	return evaluated(t, c, s, evaluationRows).Pass1
}

func TestWarmupFromExpertsRaisesSuccess(t *testing.T) {
	tests.Long(t)
	for name, k := range map[string]struct {
		rules counting
		noise float64
	}{"text": {counting{turns: 6}, 0.2}, "images": {counting{turns: 6, size: 8}, 0}} {
		set := append(able(), "warmup.batch=32", "warmup.learning_rate=0.01", "evaluate.samples=0")
		raw := counts(t, k.rules, append(slices.Clip(set), "warmup.steps=0")...)
		warm := counts(t, k.rules, append(slices.Clip(set), "warmup.steps=150")...)
		warm.Warmup.Noise = k.noise
		before, after := success(t, raw, begin(t, raw)), success(t, warm, begin(t, warm))
		if before > 0.4 || after < 0.8 {
			t.Errorf("%s: success %.2f before, %.2f after", name, before, after)
		}
	}
}

func TestWarmupEndsWhereEpisodesSucceedOftenEnough(t *testing.T) {
	tests.Long(t)
	steps := func(until string) (last int) {
		c := counts(t, counting{turns: 6}, "warmup.batch=32", "warmup.learning_rate=0.01", "warmup.steps=150",
			"warmup.until="+until)
		if _, err := Begin(context.Background(), c, func(step int, _ float64) { last = step }); err != nil {
			t.Fatal(err)
		}
		return last
	}
	low, high, never := steps("0.3"), steps("0.7"), steps("0")
	if !(low < high && high < never) || low%warmupEvery != 0 || never != 150 {
		t.Errorf("warm-ups until 0.3, 0.7 and never end after %d, %d and %d steps", low, high, never)
	}
}

// Few updates of reinforcement learning teach what a short warm-up left open.
func TestLearningFromEpisodesRaisesSuccess(t *testing.T) {
	tests.Long(t)
	c := counts(t, counting{turns: 5}, append(able(), "warmup.steps=30", "warmup.batch=16",
		"warmup.learning_rate=0.003", "pipeline.mode=sync",
		"pipeline.batch=64", "pipeline.group=8", "replay.capacity=128", "budget.updates=40",
		"learner.learning_rate=0.003", "evaluate.every=20", "evaluate.samples=0")...)
	dir := filepath.Join(t.TempDir(), "run")
	sum := train(t, c, dir)
	run, err := results.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	mean := func(updates []results.Update) (success, turns, invalid float64) {
		n := float64(len(updates))
		for _, u := range updates {
			success += u.Success.Float() / n
			turns += u.Turns.Float() / n
			invalid += u.Invalid.Float() / n
		}
		return success, turns, invalid
	}
	first, longer, wrong := mean(run.Updates[:4])
	last, shorter, right := mean(run.Updates[32:])
	if !(first < 0.7 && last > 0.9 && shorter < longer-0.5 && right < wrong/2) {
		t.Errorf("success %.2f, %.2f turns, %.3f of them invalid; afterwards %.2f, %.2f, %.3f", first, longer, wrong,
			last, shorter, right)
	}
	if sum.RewardLast.Float() < sum.RewardFirst.Float()+0.1 || sum.RewardLast.Float() > sum.Expert.Reward+1e-6 {
		t.Errorf("reward %v before, %v after, an expert's is %v", sum.RewardFirst.Float(), sum.RewardLast.Float(),
			sum.Expert.Reward)
	}
}
