package gridworld

import (
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// startsSeed is the seed of the held-out starts: a constant, so that all runs share them.
const startsSeed = 0x7265707269736532

// DealStarts parts the cells that episodes may begin in: held of them are for evaluation, those of first among them first, the
// others are for training. Both lists are in rising order but for first, which stay in front. It is the same for all runs.
func DealStarts(cells, first []int, held int) (heldOut, train []int) {
	rest := slices.DeleteFunc(slices.Clone(cells), func(c int) bool { return slices.Contains(first, c) })
	heldOut = slices.Clone(first[:min(held, len(first))])
	dealt := rollout.Stream(startsSeed, "gridworld starts", uint64(len(cells))).Perm(len(rest))
	chosen := dealt[:min(held-len(heldOut), len(rest))]
	slices.Sort(chosen)
	for _, i := range chosen {
		heldOut = append(heldOut, rest[i])
	}
	for _, c := range cells {
		if !slices.Contains(heldOut, c) {
			train = append(train, c)
		}
	}
	return heldOut, train
}

// Alphabet returns the characters of texts, each once, in rising order.
func Alphabet(texts ...string) string {
	var characters []rune
	for _, text := range texts {
		characters = append(characters, []rune(text)...)
	}
	slices.Sort(characters)
	return string(slices.Compact(characters))
}
