package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A server may change its distribution without a word: its start, a model's generation_config.json or a gateway sets
// top-k, top-p or a penalty. Two things give it away, in draws of the first token after some prompts:
//
//   - Draws do not follow log-probs that were taken before the change ([Report.probeDraws]).
//   - At a very high temperature every token of the vocabulary is about equally likely; if few are left to draw from,
//     their log-probs are too large ([Report.probeReach]).
//
// A penalty or a min-p that is also in the log-probs shows in neither; only the weights' log-probs reveal it
// ([Report.probeScores]).

// draws are first tokens after a prompt, drawn at one temperature.
type draws struct {
	prompt  []int32
	repeats bool // the prompt repeats its end
	n       int  // completions; one that is part of a character has no token
	counts  map[int32]int
	sums    map[int32]float64 // of the log-probs given for each token
}

func newDraws(prompt []int32, repeats bool) *draws {
	return &draws{prompt: prompt, repeats: repeats, counts: make(map[int32]int), sums: make(map[int32]float64)}
}

func (d *draws) add(list []Completion) {
	for _, c := range list {
		if c.Finish == Aborted && len(c.Tokens) == 0 {
			continue
		}
		d.n++
		if len(c.Tokens) > 0 {
			d.counts[c.Tokens[0]]++
			d.sums[c.Tokens[0]] += float64(c.Logprobs[0])
		}
	}
}

// logprob returns the mean of the log-probs given for a token that was drawn.
func (d *draws) logprob(token int32) float64 { return d.sums[token] / float64(d.counts[token]) }

// prompts returns draws yet to be made: after the beginnings of a prompt, since what follows some is less certain than
// what follows others, and after the prompt followed by part of its end: there a model repeats itself, unless a penalty
// stops it.
func prompts(prompt []int32) []*draws {
	const beginnings, tail = 4, 32
	var list []*draws
	for i := range min(len(prompt), beginnings) {
		list = append(list, newDraws(prompt[:len(prompt)-i], false))
	}
	end := prompt[max(0, len(prompt)-tail):]
	for _, n := range slices.Compact([]int{(len(end) + 1) / 2, (len(end)*3 + 3) / 4}) {
		list = append(list, newDraws(slices.Concat(prompt, end[:n]), true))
	}
	return list
}

// sampler draws first tokens from a server.
type sampler struct {
	engine      Engine
	stop        []int32
	temperature float64
	topP        float64
}

// draw adds n draws to d.
func (s sampler) draw(ctx context.Context, d *draws, n int) error {
	generate := s.engine.Generate
	if e, ok := s.engine.(interface {
		firstTokens(context.Context, Request) ([]Completion, error)
	}); ok {
		generate = e.firstTokens
	}
	const atOnce = 16 // servers bound n, and how many requests wait
	for n > 0 {
		list, err := generate(ctx, Request{Prompt: d.prompt, N: min(n, atOnce),
			Sampling: Sampling{Temperature: s.temperature, TopP: s.topP, MaxTokens: 1, Stop: s.stop}})
		if err != nil {
			return err
		}
		d.add(list)
		n -= atOnce
	}
	return nil
}

// fill draws n times after each prompt. It returns the list without prompts that the server refuses, which may be too
// long for it. If it refuses them all, that is the error.
func (s sampler) fill(ctx context.Context, list []*draws, n int) (made []*draws, err error) {
	var refusal error
	for _, d := range list {
		switch err := s.draw(ctx, d, n); {
		case err == nil:
			made = append(made, d)
		case Refused(err):
			refusal = err
		default:
			return nil, err
		}
	}
	if len(made) == 0 {
		return nil, refusal
	}
	return made, nil
}

// Rounding in bfloat16, and batches of other sizes, move a logit by some hundredths, and so a log-prob by as much over
// the temperature.
const rounding = 0.1

// noise is what rounding makes of a log-prob at a temperature, at most.
func noise(temperature float64) float64 { return rounding / min(temperature, 1) }

// temperatures compares the log-probs of draws at a temperature with those of the same tokens at twice that, over pairs
// of draws that are added. Log-probs of the distributions that were sampled from are z/T less a normaliser, so
// their differences between tokens at 2T, doubled, are those at T. If the log-probs are of the logits alone, the
// doubled differences are twice those at T.
type temperatures struct{ xx, xy float64 }

func (t *temperatures) add(once, twice *draws, temperature float64) {
	var x, y []float64
	for token := range once.counts {
		if twice.counts[token] > 0 {
			scale := min(temperature, 1) // so that rounding is the same at all temperatures
			x, y = append(x, scale*once.logprob(token)), append(y, 2*scale*twice.logprob(token))
		}
	}
	meanX, meanY := mean(x), mean(y)
	for i := range x {
		t.xx += (x[i] - meanX) * (x[i] - meanX)
		t.xy += (x[i] - meanX) * (y[i] - meanY)
	}
}

// raw reports whether log-probs are those of the logits, and whether the pairs tell: whether their slope is as far from
// what is in the middle as five times the rounding takes it.
func (t *temperatures) raw() (raw, known bool) {
	const same, doubled = 1, 2
	off := (t.xy/t.xx - (same+doubled)/2.) * math.Sqrt(t.xx)
	return off > 0, math.Abs(off) > 5*rounding
}

// claim compares the share of draws that were of some tokens with the probability that the server gave them.
type claim struct {
	probability, drawn float64 // means over the draws
	n                  int     // draws
}

// evidence returns how much the draws say against the probability, in nats: had they followed it, a share as far from
// it would have a chance of exp(-evidence) at most (the bound of Chernoff and Hoeffding). off is how far rounding may have
// moved the logit of the probability.
func (c claim) evidence(off float64) float64 {
	const certain = 1 - 1e-3 // a probability of 1 has been rounded
	if c.probability > math.Exp(2*off) {
		return math.Inf(1)
	}
	p := min(max(c.probability, 1-certain), certain)
	if c.drawn < p {
		off = -off
	}
	q := 1 / (1 + (1-p)/p*math.Exp(-off))
	if (c.drawn > p) != (c.drawn > q) {
		return 0
	}
	kl := 0.0
	if c.drawn > 0 {
		kl += c.drawn * math.Log(c.drawn/q)
	}
	if c.drawn < 1 {
		kl += (1 - c.drawn) * math.Log((1-c.drawn)/(1-q))
	}
	return float64(c.n) * kl
}

func (c claim) with(probability float64, drawn, n int) claim {
	all := float64(c.n + n)
	return claim{probability: (c.probability*float64(c.n) + probability*float64(n)) / all,
		drawn: (c.drawn*float64(c.n) + float64(drawn)) / all, n: c.n + n}
}

// claims returns what a server claims of the most likely token after each prompt, and of all tokens that are likely
// enough to be among the draws: over all prompts, and over those alone that repeat their end.
func claims(list []*draws) []claim {
	var all, repeats [2]claim
	for _, d := range list {
		const expected = 4 // draws of a token: it misses among them in 2 of 100 cases
		most, share, drawn, top := 0.0, 0.0, 0, 0
		for token, count := range d.counts {
			p := math.Exp(d.logprob(token))
			if p*float64(d.n) < expected {
				continue
			}
			share, drawn = share+p, drawn+count
			if p > most {
				most, top = p, count
			}
		}
		if most == 0 {
			continue
		}
		for _, to := range []*[2]claim{&all, &repeats} {
			if to == &all || d.repeats {
				to[0], to[1] = to[0].with(most, top, d.n), to[1].with(share, drawn, d.n)
			}
		}
	}
	return slices.DeleteFunc([]claim{all[0], all[1], repeats[0], repeats[1]}, func(c claim) bool { return c.n == 0 })
}

const plainServer = "turn off top-k, top-p, min-p and penalties where the server or a gateway sets them; vLLM " +
	"takes them from the model's folder unless it is started with --generation-config vllm"

// probeDraws finds out whether draws follow their log-probs. Where that is in doubt it draws more.
func (r *Report) probeDraws(ctx context.Context, s sampler, list []*draws) error {
	const doubt, refuted = 1, 14 // nats
	for n := several; ; n *= 2 {
		made := claims(list)
		if len(made) == 0 {
			r.Unknown = append(r.Unknown, "whether its draws follow its log-probs: no token was likely enough to see it")
			return nil
		}
		worst, against := made[0], 0.0
		for _, c := range made {
			if e := c.evidence(noise(s.temperature)); e > against {
				worst, against = c, e
			}
		}
		switch {
		case against > refuted:
			r.Lacks = append(r.Lacks, Lack{What: fmt.Sprintf("its draws do not follow its log-probs: %.1f%% of %d draws "+
				"were tokens to which these give %.1f%%", 100*worst.drawn, worst.n, 100*worst.probability),
				Remedy: plainServer,
				Lost: "the ratios of every token are wrong: tokens are drawn from another distribution than their " +
					"log-probs are of"})
			return nil
		case against < doubt || n >= mostDraws:
			return nil
		}
		for _, d := range list {
			if err := s.draw(ctx, d, n); err != nil {
				return err
			}
		}
	}
}

// probeReach finds out whether the server draws from the whole vocabulary. At a temperature far above the spread of
// logits the mean log-prob of draws is that of one in so many tokens; a part of them drawn from has larger ones.
func (r *Report) probeReach(ctx context.Context, s sampler, prompt []int32) error {
	s.temperature, s.topP = 100, 1
	d := newDraws(prompt, false)
	if err := s.draw(ctx, d, several); err != nil && !Refused(err) {
		return err
	}
	if len(d.counts) == 0 {
		r.Unknown = append(r.Unknown, fmt.Sprintf("whether it draws from the whole vocabulary: it does not sample at "+
			"temperature %g", s.temperature))
		return nil
	}
	// What is left of the logits' spread takes half its variance from the entropy, and the mean of so many draws is off
	// by three of its standard errors at most.
	sum, squares, n := 0.0, 0.0, 0.0
	for token, count := range d.counts {
		x := d.logprob(token)
		sum, squares, n = sum+float64(count)*x, squares+float64(count)*x*x, n+float64(count)
	}
	entropy := -sum / n
	variance := max(squares/n-entropy*entropy, 0)
	entropy += min(variance/2+3*math.Sqrt(variance/n), 0.2)
	vocabulary := 0
	if e, ok := s.engine.(interface{ vocabulary() int }); ok {
		vocabulary = e.vocabulary()
	}
	if vocabulary == 0 { // not known: the ids of draws that are even reach almost to the end
		vocabulary = 1 + int(slices.Max(slices.Collect(maps.Keys(d.counts))))
	}
	const slack = 0.035 // bfloat16 rounds log-probs of 8 to 16 by 0.031, and servers leave out tokens that no text has
	if reach := math.Exp(entropy); reach*math.Exp(slack) < float64(vocabulary) {
		r.Lacks = append(r.Lacks, Lack{What: fmt.Sprintf("at temperature %g it draws as if it chose among %.0f tokens of %d",
			s.temperature, reach, vocabulary),
			Remedy: plainServer + "; or a gateway lets no temperature above some limit through: then accept it",
			Lost: "ratios compare a log-prob over the whole vocabulary with the server's over a part of it: they are " +
				"biased"})
	}
	return nil
}

// probeScores compares the log-probs of draws with those that the weights give.
func (r *Report) probeScores(ctx context.Context, s sampler, list []*draws, score Score) error {
	off, n := 0.0, 0
	for _, d := range list {
		tokens := slices.Sorted(maps.Keys(d.counts))
		if len(tokens) == 0 {
			continue
		}
		scores, err := score(ctx, d.prompt, tokens, s.temperature)
		if err != nil {
			return err
		}
		for i, token := range tokens {
			off += math.Abs(d.sums[token] - float64(d.counts[token])*float64(scores[i]))
			n += d.counts[token]
		}
	}
	off /= float64(max(n, 1))
	switch slack := 1.5 * noise(s.temperature); { // weights of 8 bits make a third of it
	case n == 0:
		r.Unknown = append(r.Unknown, "whether its log-probs are the model's: it drew no token")
	case off > slack:
		r.Lacks = append(r.Lacks, Lack{What: fmt.Sprintf("its log-probs differ from those of the model's weights by %.2f, "+
			"in the mean of %d draws", off, n), Remedy: "serve these weights, unquantised, and " + plainServer,
			Lost: "the first ratios of every rollout are wrong by as much"})
	}
	return nil
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(len(x), 1))
}
