package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// zipf is a server whose model has 2,000 tokens. Its logits depend on the last two tokens, after which it likes to
// repeat what followed them before. Its log-probs have the noise of rounding and of other requests beside it.
type zipf struct {
	Engine
	rng *rand.Rand
	tampering
}

// tampering is what a gateway does to requests and answers. The zero value does nothing.
type tampering struct {
	raw        bool    // log-probs are of the logits at temperature 1
	stretch    float64 // multiplies temperatures
	highest    float64 // of temperatures
	topK       int
	topP, minP float64
	repetition float64 // divides positive logits of tokens in the prompt, and multiplies negative ones
	greedy     bool
	shift      float64 // added to log-probs

	// What honest servers do.
	limit   float64 // temperatures above it are refused; 0: none
	most    int     // completions of a request; 0: any number
	aborted bool    // every tenth completion is ended by others, before its first token
	parts   bool    // a tenth of the probability is of parts of characters, which come without a token
	unknown bool    // how many tokens there are is not known
}

const zipfTokens = 2000

func (z *zipf) logits(prompt []int32) []float64 {
	last, before := prompt[len(prompt)-1], prompt[max(0, len(prompt)-2)]
	rng := rand.New(rand.NewPCG(uint64(last), uint64(before)))
	exponent := 0.8 + 1.7*rng.Float64()
	logits := make([]float64, zipfTokens)
	for rank, token := range rng.Perm(zipfTokens) {
		logits[token] = 12 - exponent*math.Log(float64(rank+1)) + 0.3*rng.NormFloat64()
	}
	for i := 1; i < len(prompt)-1; i++ {
		if prompt[i] == last && prompt[i-1] == before {
			logits[prompt[i+1]] = 15
		}
	}
	return logits
}

func softmax(logits []float64, temperature float64) []float64 {
	p := make([]float64, len(logits))
	most := slices.Max(logits)
	for i, z := range logits {
		p[i] = math.Exp((z - most) / temperature)
	}
	return normalised(p)
}

func normalised(p []float64) []float64 {
	sum := 0.0
	for _, x := range p {
		sum += x
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// distributions returns what tokens are drawn from, and what their log-probs are of.
func (z *zipf) distributions(prompt []int32, temperature float64) (drawn, given []float64) {
	logits := z.logits(prompt)
	given = softmax(logits, 1)
	if z.repetition != 0 {
		for i, v := range logits {
			switch {
			case !slices.Contains(prompt, int32(i)):
			case v > 0:
				logits[i] = v / z.repetition
			default:
				logits[i] = v * z.repetition
			}
		}
	}
	if z.stretch != 0 {
		temperature *= z.stretch
	}
	if z.highest != 0 {
		temperature = min(temperature, z.highest)
	}
	drawn = softmax(logits, temperature)
	if z.topK == 0 && z.topP == 0 && z.minP == 0 && !z.greedy {
		if !z.raw {
			given = drawn
		}
		return drawn, given
	}
	order := make([]int, len(drawn))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(drawn[b], drawn[a]) })
	before, most := 0.0, drawn[order[0]]
	for rank, token := range order {
		p := drawn[token]
		if z.topK > 0 && rank >= z.topK || z.topP > 0 && before >= z.topP || p < z.minP*most || z.greedy && rank > 0 {
			drawn[token] = 0
		}
		before += p
	}
	if normalised(drawn); !z.raw {
		given = drawn
	}
	return drawn, given
}

func (z *zipf) Generate(_ context.Context, r Request) ([]Completion, error) {
	if z.limit > 0 && r.Temperature > z.limit || z.most > 0 && r.N > z.most {
		return nil, &statusError{http.StatusBadRequest, "out of range"}
	}
	drawn, given := z.distributions(r.Prompt, r.Temperature)
	list := make([]Completion, r.N)
	for i := range list {
		if z.aborted && i%10 == 0 {
			list[i].Finish = Aborted
			continue
		}
		u, token := z.rng.Float64(), 0
		if z.parts {
			if u /= 0.9; u >= 1 {
				list[i].Finish = Length
				continue
			}
		}
		for ; token < len(drawn)-1; token++ {
			if u -= drawn[token]; u < 0 {
				break
			}
		}
		logprob := math.Log(given[token]) + z.shift
		if z.parts {
			logprob += math.Log(0.9)
		}
		logprob += 0.04 / min(r.Temperature, 1) * z.rng.NormFloat64() * (1 - given[token])
		list[i] = Completion{Tokens: []int32{int32(token)}, Versions: make([]rollout.Version, 1), Finish: Length,
			Logprobs: []float32{float32(min(0, logprob))}}
	}
	return list, nil
}

func (z *zipf) Version(context.Context) (rollout.Version, error) { return 0, nil }
func (z *zipf) Health(context.Context) error                     { return nil }
func (z *zipf) String() string                                   { return "zipf" }
func (z *zipf) vocabulary() int {
	if z.unknown {
		return 0
	}
	return zipfTokens
}

func (z *zipf) score(_ context.Context, prompt, tokens []int32, temperature float64) ([]float32, error) {
	p := softmax(z.logits(prompt), temperature)
	list := make([]float32, len(tokens))
	for i, token := range tokens {
		list[i] = float32(math.Log(p[token]))
	}
	return list, nil
}

// Servers are refused if what they draw, or the log-probs that they give, is not of the model at the temperature that
// was asked for. Honest ones are not.
func TestTamperedServersAreRefused(t *testing.T) {
	probe := func(seed uint64, length int, how tampering, temperature float64, scored bool) *Report {
		t.Helper()
		z := &zipf{rng: rand.New(rand.NewPCG(seed, 1)), tampering: how}
		p := Probing{Sampling: Sampling{Temperature: temperature, TopP: 1, MaxTokens: 8}}
		for range length {
			p.Prompt = append(p.Prompt, int32(z.rng.IntN(zipfTokens)))
		}
		if scored {
			p.Score = z.score
		}
		r, err := Probe(t.Context(), z, p)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const follow, reach, ignore, differ = "do not follow", "as if it chose among", "ignore the temperature", "differ from"
	for _, c := range []struct {
		name   string
		how    tampering
		scored bool
		says   []string // one of them; none: it is not refused
	}{
		{"honest", tampering{}, false, nil},
		{"honest, scored", tampering{}, true, nil},
		{"honest, temperatures up to 2", tampering{limit: 2}, false, nil},
		{"honest, at most 16 completions", tampering{most: 16}, false, nil},
		{"honest, with completions that others end", tampering{aborted: true}, false, nil},
		{"honest, with parts of characters", tampering{parts: true}, false, nil},
		{"honest, of an unknown vocabulary", tampering{unknown: true}, false, nil},
		{"log-probs 0.2 too large", tampering{shift: 0.2}, false, []string{follow}},
		{"the likeliest token alone", tampering{greedy: true}, false, []string{reach}},
		{"the likeliest token alone, raw log-probs", tampering{greedy: true, raw: true}, false, []string{follow}},
		{"temperatures up to 2", tampering{highest: 2}, false, []string{reach}},
		{"temperatures of 0.8 times, raw log-probs", tampering{stretch: 0.8, raw: true}, false, []string{follow, ignore}},
		{"top-k 3", tampering{topK: 3}, false, []string{reach}},
		{"top-k 3, raw log-probs", tampering{topK: 3, raw: true}, false, []string{follow, ignore}},
		{"top-k 50", tampering{topK: 50}, false, []string{reach}},
		{"top-p 0.8", tampering{topP: 0.8}, false, []string{reach}},
		{"top-p 0.8, raw log-probs", tampering{topP: 0.8, raw: true}, false, []string{follow, ignore}},
		{"top-p 0.9", tampering{topP: 0.9}, false, []string{reach}},
		{"min-p 0.1, raw log-probs", tampering{minP: 0.1, raw: true}, false, []string{follow, ignore}},
		{"a repetition penalty of 1.1, raw log-probs", tampering{repetition: 1.1, raw: true}, false, []string{follow, ignore}},
		{"a repetition penalty of 1.3, scored", tampering{repetition: 1.3}, true, []string{differ}},
	} {
		temperatures, seeds := []float64{1, 0.7}, uint64(8)
		if len(c.says) == 0 {
			temperatures, seeds = append(temperatures, 0.1, 60), 18
		}
		for _, temperature := range temperatures {
			if c.how.limit > 0 && temperature > c.how.limit {
				continue
			}
			for seed := range seeds {
				length := 12
				if len(c.says) == 0 {
					length = 1 + int(seed%12)
				}
				r := probe(seed, length, c.how, temperature, c.scored)
				said, found := fmt.Sprint(r.Err()), len(c.says) == 0 && r.Err() == nil
				for _, says := range c.says {
					found = found || strings.Contains(said, says)
				}
				if !found {
					t.Errorf("%s at temperature %g, seed %d: %s", c.name, temperature, seed, said)
				}
			}
		}
	}
	if r := probe(1, 12, tampering{raw: true}, 1, false); r.Err() != nil {
		t.Errorf("log-probs of the logits at temperature 1 are refused: %v", r.Err())
	}
	if r := probe(1, 12, tampering{raw: true}, 0.7, false); !strings.Contains(fmt.Sprint(r.Err()), ignore) {
		t.Errorf("log-probs of the logits at temperature 0.7: %v", r.Err())
	}
}
