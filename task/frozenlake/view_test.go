package frozenlake

import (
	"bytes"
	"image/png"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task/gridworld"
)

func TestWordsTellTheRules(t *testing.T) {
	made := newTask(t, Settings{SuccessRate: 0.5, Settings: gridworld.Settings{Format: gridworld.Words, ActionsPerTurn: 2}}, 1)
	p := made.Train(0)
	for _, part := range []string{"probability 0.5, and with 0.25 each", "<answer>Left, Down</answer>", "1 to 2 of Left, Down, Right, Up", "PFFF\nFHFH\nFFFH\nHFFG\n"} {
		if !strings.Contains(p.Text, part) {
			t.Errorf("%q is not in %q", part, p.Text)
		}
	}
	if p := newTask(t, Settings{Slippery: firm(), Settings: gridworld.Settings{Format: gridworld.Words}}, 1).Train(0); strings.Contains(p.Text, "slippery") {
		t.Errorf("firm ice is slippery in %q", p.Text)
	}
	e := made.Reset(p, 1)
	if step := e.Step("Left"); !step.Invalid || step.Reward != -0.1 || !strings.Contains(step.Text, "<answer>") || !strings.HasSuffix(step.Text, "PFFF\nFHFH\nFFFH\nHFFG\n") {
		t.Errorf("without a tag: %+v", step)
	}
	if step := e.Step("So: <answer>up</answer>"); step.Invalid || strings.Contains(step.Text, "<answer>") {
		t.Errorf("with a tag: %+v", step)
	}
}

func TestPicturesTellEveryPlaceAndTileApart(t *testing.T) {
	for _, tile := range []int{4, 8, 16} {
		made := newTask(t, Settings{Images: true, Tile: tile}, 1)
		if made.ImageSize() != 4*tile {
			t.Fatalf("image size %d, want %d", made.ImageSize(), 4*tile)
		}
		seen := map[string]string{}
		for _, l := range []lake{{"SF", "HG"}, {"FF", "HG"}, {"HF", "HG"}, {"GF", "HG"}} {
			for at := range 4 {
				_, file := made.view.prompt(l, at)
				_, after := made.view.observe(l, at, false)
				if !bytes.Equal(file, after) {
					t.Errorf("%s at %d looks otherwise after a turn", l, at)
				}
				what := strings.Join(rows(l, at, 'P'), "/")
				if l.tile(at) == hole {
					what = strings.Join(rows(l, at, 'X'), "/")
				}
				if before, ok := seen[string(file)]; ok && before != what {
					t.Errorf("%s looks like %s", what, before)
				}
				seen[string(file)] = what
			}
		}
		if len(seen) != 14 { // a player at the upper left corner, not in a hole, looks the same three times
			t.Errorf("%d pictures, want 14", len(seen))
		}
		p := made.Train(0)
		picture, err := png.Decode(bytes.NewReader(p.Image))
		if err != nil || picture.Bounds().Dx() != made.ImageSize() || picture.Bounds().Dy() != made.ImageSize() {
			t.Errorf("the prompt's picture: %v", err)
		}
		e := made.Reset(p, 1)
		if step := e.Step("R"); p.Text != cue || step.Text != cue || step.Image == nil {
			t.Errorf("beside pictures it says %q and %q", p.Text, step.Text)
		}
	}
	if made := newTask(t, Settings{}, 1); made.ImageSize() != 0 || made.Train(0).Image != nil {
		t.Error("a task in text has pictures")
	}
}
