package main

import (
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func TestARolloutIsCheckedBitForBit(t *testing.T) {
	k := key{3, 17, 2}
	if got, err := checkRollout(k.rollout(256, 5), 256); err != nil || got != k {
		t.Fatalf("an unchanged rollout: %v, %v", got, err)
	}
	for name, spoil := range map[string]func(*rollout.Rollout){
		"token":    func(r *rollout.Rollout) { r.Tokens[3] ^= 1 },
		"log-prob": func(r *rollout.Rollout) { r.Logprobs[len(r.Logprobs)-1] /= 2 },
		"mask":     func(r *rollout.Rollout) { r.Mask[0] = 1 },
		"version":  func(r *rollout.Rollout) { r.Versions[len(r.Versions)-1]++ },
		"reward":   func(r *rollout.Rollout) { r.Reward++ },
		"length":   func(r *rollout.Rollout) { r.Tokens = r.Tokens[1:] },
		"text":     func(r *rollout.Rollout) { r.Text = "p3-b17-r3" },
		"no key":   func(r *rollout.Rollout) { r.Text = "p3-b17" },
	} {
		r := k.rollout(256, 5)
		spoil(r)
		if _, err := checkRollout(r, 256); err == nil {
			t.Errorf("%s: a changed rollout passed", name)
		}
	}
}
