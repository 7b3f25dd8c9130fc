package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// groupSize is the size of every group.
const groupSize = 4

// vocab bounds the token ids.
const vocab = 32000

// key identifies a rollout among all that are ever made. It is the rollout's text, and all other contents derive from
// it, so that whoever receives a rollout can check that it is the one that was inserted.
type key struct {
	producer, batch, row int
}

func (k key) String() string { return fmt.Sprintf("p%d-b%d-r%d", k.producer, k.batch, k.row) }

// parseKey parses what String wrote.
func parseKey(text string) (k key, err error) {
	if _, err = fmt.Sscanf(text, "p%d-b%d-r%d", &k.producer, &k.batch, &k.row); err != nil || text != k.String() {
		return k, fmt.Errorf("%.100q is the text of no rollout that was made here", text)
	}
	return k, nil
}

// hash is splitmix64 of the key's numbers.
func (k key) hash() uint64 {
	x := uint64(k.producer)<<48 ^ uint64(k.batch)<<12 ^ uint64(k.row)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// rollout makes the rollout of a key at a version. Most rollouts are short; some have up to longest tokens.
func (k key) rollout(longest int, v rollout.Version) *rollout.Rollout {
	h := k.hash()
	n := 8 + int((h>>8)%uint64(max(longest>>(h%6)-8, 1)))
	r := &rollout.Rollout{
		PromptID: fmt.Sprintf("prompt-%d", (k.producer*31+k.batch*7+k.row/groupSize)%997), Text: k.String(),
		Temperature: 1, TopP: 1, Reward: float32(h >> 60), Truncated: h>>59&1 == 1,
		Tokens: make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float32,
			n), Versions: make([]rollout.Version, n),
	}
	for i := range n {
		r.Tokens[i], r.Versions[i] = int32((h>>16+uint64(i)*(h>>40|1))%vocab), rollout.NoVersion
		if i >= n/4 {
			r.Mask[i], r.Versions[i], r.Logprobs[i] = 1, v, -float32(r.Tokens[i])/vocab
		}
	}
	return r
}

// makeGroups makes the groups of a batch.
func makeGroups(producer, batch, count, longest int, v rollout.Version) []rollout.Group {
	made := make([]rollout.Group, count)
	for i := range made {
		for j := range groupSize {
			made[i].Rollouts = append(made[i].Rollouts, key{producer, batch, i*groupSize + j}.rollout(longest, v))
		}
	}
	return made
}

// checkRollout returns a rollout's key, and an error unless the rollout is that of its key, bit for bit.
func checkRollout(r *rollout.Rollout, longest int) (key, error) {
	k, err := parseKey(r.Text)
	if err != nil {
		return k, err
	}
	want := k.rollout(longest, r.Version())
	switch {
	case r.PromptID != want.PromptID || r.Reward != want.Reward || r.Truncated != want.Truncated ||
		r.Temperature != 1 || r.TopP != 1:
		err = errors.New("its scalars differ")
	case !slices.Equal(r.Tokens, want.Tokens):
		err = errors.New("its tokens differ")
	case !bytes.Equal(r.Mask, want.Mask):
		err = errors.New("its mask differs")
	case !slices.Equal(r.Logprobs, want.Logprobs):
		err = errors.New("its log-probs differ")
	case !slices.Equal(r.Versions, want.Versions):
		err = errors.New("its versions differ")
	}
	if err != nil {
		return k, fmt.Errorf("rollout %s came back changed: %w", k, err)
	}
	return k, nil
}

// cloneRollout copies what checkRollout reads.
func cloneRollout(r *rollout.Rollout) *rollout.Rollout {
	c := *r
	c.PromptID, c.Text = strings.Clone(r.PromptID), strings.Clone(r.Text)
	c.Tokens, c.Mask = slices.Clone(r.Tokens), slices.Clone(r.Mask)
	c.Logprobs, c.Versions = slices.Clone(r.Logprobs), slices.Clone(r.Versions)
	return &c
}
