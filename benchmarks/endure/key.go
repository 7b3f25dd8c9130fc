package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/rollout"
)

// groupSize is that of every group.
const groupSize = 4

// key names a rollout among all that were ever made. It stands in the rollout's text, and everything else follows from it, so
// that whoever is handed the rollout can tell whether it is the one that went in.
type key struct {
	producer, batch, row int
}

func (k key) String() string { return fmt.Sprintf("p%d-b%d-r%d", k.producer, k.batch, k.row) }

// parseKey reads what String wrote.
func parseKey(text string) (k key, err error) {
	head, _, _ := strings.Cut(text, " ")
	if _, err = fmt.Sscanf(head, "p%d-b%d-r%d", &k.producer, &k.batch, &k.row); err != nil || head != k.String() {
		return k, fmt.Errorf("%.100q is the text of no rollout that was made here", text)
	}
	return k, nil
}

// mix is splitmix64 of the key's numbers.
func (k key) mix() uint64 {
	x := uint64(k.producer)<<48 ^ uint64(k.batch)<<12 ^ uint64(k.row)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// length is the number of tokens: short for most, up to longest for some.
func (k key) length(longest int) int {
	m := k.mix()
	span := longest >> (m % 6) // halves, again and again
	return 8 + int((m>>8)%uint64(max(span-8, 1)))
}

// token is the i-th token id.
func (k key) token(m uint64, i int) int32 { return int32((m>>16 + uint64(i)*(m>>40|1)) % vocab) }

const vocab = 32000

// rollout makes the rollout of a key, of a version.
func (k key) rollout(longest int, v rollout.Version) *rollout.Rollout {
	m, n := k.mix(), k.length(longest)
	r := &rollout.Rollout{
		PromptID: fmt.Sprintf("prompt-%d", (k.producer*31+k.batch*7+k.row/groupSize)%997), Text: k.String(), Temperature: 1, TopP: 1, Reward: float32(m >> 60), Truncated: m>>59&1 == 1,
		Tokens: make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float32, n), Versions: make([]rollout.Version, n),
	}
	for i := range n {
		r.Tokens[i], r.Versions[i] = k.token(m, i), rollout.NoVersion
		if i >= n/4 {
			r.Mask[i], r.Versions[i], r.Logprobs[i] = 1, v, -float32(r.Tokens[i])/vocab
		}
	}
	return r
}

// check tells whether a rollout is that of its key, bit for bit.
func check(r *rollout.Rollout, longest int) (key, error) {
	k, err := parseKey(r.Text)
	if err != nil {
		return k, err
	}
	want := k.rollout(longest, r.Version())
	switch {
	case r.PromptID != want.PromptID || r.Reward != want.Reward || r.Truncated != want.Truncated || r.Temperature != 1 || r.TopP != 1:
		err = errors.New("its scalars are others")
	case !slices.Equal(r.Tokens, want.Tokens):
		err = errors.New("its tokens are others")
	case !bytes.Equal(r.Mask, want.Mask):
		err = errors.New("its mask is another")
	case !slices.Equal(r.Logprobs, want.Logprobs):
		err = errors.New("its log-probs are others")
	case !slices.Equal(r.Versions, want.Versions):
		err = errors.New("its versions are others")
	}
	if err != nil {
		return k, fmt.Errorf("rollout %s came back changed: %w", k, err)
	}
	return k, nil
}

// groups makes the groups of a batch.
func groups(producer, batch, count, longest int, v rollout.Version) []rollout.Group {
	made := make([]rollout.Group, count)
	for i := range made {
		for j := range groupSize {
			k := key{producer, batch, i*groupSize + j}
			made[i].Rollouts = append(made[i].Rollouts, k.rollout(longest, v))
		}
	}
	return made
}
