package prompts_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// ident names the prompts of a task with 100 of them.
func ident(number uint64) string { return fmt.Sprint("prompt ", number%100) }

func newChooser(t testing.TB, o prompts.Options, groups int) *prompts.Chooser {
	t.Helper()
	c, err := prompts.NewChooser(mustNew(t, o),
		prompts.ChooserOptions{Groups: groups, Ident: ident, Threshold: 1, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rewarded is a group with the given rewards.
func rewarded(rewards ...float32) []*rollout.Rollout {
	var rs []*rollout.Rollout
	for _, r := range rewards {
		rs = append(rs, &rollout.Rollout{Reward: r})
	}
	return rs
}

// choose returns what is chosen for jobs from .. to-1: the numbers, those replayed in brackets.
func choose(c *prompts.Chooser, from, to uint64, v rollout.Version) string {
	var out []string
	for job := from; job < to; job++ {
		n, replayed := c.Choose(job, v)
		s := fmt.Sprint(n)
		if replayed {
			s = "[" + s + "]"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestABlockTakesItsShareFromTheBufferFirst(t *testing.T) {
	o := open()
	o.Fraction = 0.75
	c := newChooser(t, o, 4)
	expect(t, "nothing is held yet", choose(c, 0, 8, 0), "0 1 2 3 4 5 6 7")
	for n := range uint64(5) { // of four, 2 are correct: those of 0.9 are not
		if err := c.Report(0, n, false, rewarded(1, 0.9, 2, -1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Report(0, 5, false, rewarded(0, 0.9, 0, -1)); err != nil {
		t.Fatal(err)
	}
	expect(t, "three of four, best first", choose(c, 8, 12, 1), "[0] [1] [2] 8")
	if err := c.Report(1, 100, false, rewarded(1, 0)); err != nil { // prompt 0 again, by another number
		t.Fatal(err)
	}
	expect(t, "the best are still the oldest", choose(c, 12, 14, 1), "[1] [2]")
	expect(t, "the rest of the block", choose(c, 14, 16, 9), "[3] 9")
	s := c.Stats()
	if s.Fresh != 10 || s.Replayed != 6 || s.Buffer.Replayed != 6 || s.Buffer.Held != 5 || s.Buffer.ZeroVariance != 1 {
		t.Errorf("statistics are %d fresh, %d replayed, %s", s.Fresh, s.Replayed, text(s.Buffer))
	}
}

func TestAChooserKeepsTheUseOfAReplayedPromptApartFromThatOfAFreshOne(t *testing.T) {
	o := open()
	o.Cooldown = 5
	c := newChooser(t, o, 1)
	told := func(v rollout.Version, prompt uint64, replayed bool) {
		t.Helper()
		if err := c.Report(v, prompt, replayed, rewarded(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	told(0, 7, false)
	expect(t, "at 5", choose(c, 0, 1, 5), "[7]")
	told(6, 107, false) // the same prompt by another number, in flight since before
	told(8, 7, true)
	expect(t, "at 10", choose(c, 1, 2, 10), "0")
	expect(t, "at 11", choose(c, 2, 3, 11), "[7]")
}

func TestARestoredChooserGoesOnWithinItsBlock(t *testing.T) {
	play := func(interrupt bool) string {
		o := open()
		o.Fraction, o.Cooldown, o.MaxReuse = 0.75, 1, 3
		c := newChooser(t, o, 4)
		var out []string
		for job := range uint64(60) {
			if interrupt && job%7 == 3 {
				whole := snapshotOf(t, c)
				c = newChooser(t, o, 4)
				if err := c.Restore(bytes.NewReader(whole)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(snapshotOf(t, c), whole) {
					t.Fatalf("job %d: the restored chooser's snapshot differs", job)
				}
			}
			v := rollout.Version(job / 4)
			n, replayed := c.Choose(job, v)
			out = append(out, fmt.Sprint(n, replayed))
			if err := c.Report(v, n, replayed, rewarded(1, float32(n%2), 0, float32(job%3))); err != nil {
				t.Fatal(err)
			}
		}
		s := c.Stats()
		if s.Fresh < 15 || s.Replayed < 15 {
			t.Errorf("%d fresh and %d replayed: the test shows little", s.Fresh, s.Replayed)
		}
		return fmt.Sprint(out, s.Fresh, s.Replayed, text(s.Buffer))
	}
	expect(t, "with interruptions", play(true), play(false))
}

func TestAChooserRefusesWhatItCannotUse(t *testing.T) {
	_, err := prompts.NewChooser(mustNew(t, open()),
		prompts.ChooserOptions{Ident: ident, Threshold: float32(math.NaN())})
	for _, part := range []string{"groups: 0: want 1", "threshold: NaN"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing from %v", part, err)
		}
	}
	c := newChooser(t, open(), 4)
	if err := c.Report(0, 1, false, nil); err == nil || !strings.Contains(err.Error(), "total is 0") {
		t.Errorf("a group without rollouts: %v", err)
	}
	whole := snapshotOf(t, c)
	for name, x := range map[string]struct {
		data []byte
		want string
	}{
		"other groups": {snapshotOf(t, newChooser(t, open(), 5)), "5 groups per batch and threshold 1 in the " +
			"snapshot, 4 and 1 here"},
		"a buffer's":   {snapshotOf(t, used(t)), "it begins with"},
		"other buffer": {snapshotOf(t, newChooser(t, small(), 4)), "options are"},
	} {
		if err := c.Restore(bytes.NewReader(x.data)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want %s", name, err, x.want)
		}
	}
	if !bytes.Equal(snapshotOf(t, c), whole) {
		t.Error("a refused snapshot changed the chooser")
	}
}

// Prompts that taught nothing twice in a row are passed over with probability 3/4: of the second epoch's, a quarter of
// them and all others are asked, and a run that was saved in between passes over the same.
func TestFreshPromptsArePassedOverByTheirHistory(t *testing.T) {
	o := open()
	o.Fraction, o.Skip = 0, "streak >= 2 ? 0.75 : 0"
	const n = 4000
	newOne := func() *prompts.Chooser {
		c, err := prompts.NewChooser(mustNew(t, o), prompts.ChooserOptions{
			Groups: 8, Ident: func(number uint64) string { return fmt.Sprint(number % n) }, Threshold: 1, Seed: 7,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := newOne()
	job, passed := uint64(0), func(c *prompts.Chooser, job uint64) uint64 {
		number, replayed := c.Choose(job, 0)
		if replayed {
			t.Fatalf("prompt %d comes from the buffer", number)
		}
		return number
	}
	for ; job < 2*n; job++ { // two epochs; every second prompt is dull
		if number := passed(c, job); number != job {
			t.Fatalf("job %d asks %d before anything was dull twice", job, number)
		}
		group := rewarded(1, 0)
		if job%2 == 0 {
			group = rewarded(1, 1)
		}
		if err := c.Report(0, job, false, group); err != nil {
			t.Fatal(err)
		}
	}
	var saved bytes.Buffer
	if err := c.Snapshot(&saved); err != nil {
		t.Fatal(err)
	}
	again := newOne()
	if err := again.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	dull, last := 0, uint64(0)
	for ; last < 3*n-1; job++ {
		last = passed(c, job)
		if other := passed(again, job); other != last {
			t.Fatalf("job %d asks %d, and %d after a restore", job, last, other)
		}
		if last%2 == 0 {
			dull++
		}
	}
	if mean := n / 2 / 4; dull < mean-80 || dull > mean+80 { // four standard deviations
		t.Errorf("%d of %d dull prompts were asked again, want about %d", dull, n/2, mean)
	}
	if s := c.Stats(); s.Skipped != uint64(n/2-dull) || s.Fresh+s.Skipped != last+1 {
		t.Errorf("%d fresh and %d passed over of %d", s.Fresh, s.Skipped, last+1)
	}
}

// If all are passed over, one in a thousand and one is asked: a run goes on.
func TestPassingOverEndsAfterAThousand(t *testing.T) {
	o := open()
	o.Fraction, o.Skip = 0, "1"
	c := newChooser(t, o, 4)
	for n := range uint64(100) {
		if err := c.Report(0, n, false, rewarded(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "each a thousand further", choose(c, 0, 3, 1), "1000 2001 3002")
}
