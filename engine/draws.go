package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A server may change its distribution without a word: its start, a model's generation_config.json or a gateway sets
// top-k, top-p or a penalty. Two things give it away, in draws of the first token after some prompts:
//
//   - Draws do not follow log-probs that were taken before the change ([Report.probeDraws]).
//   - At a very high temperature every token of the vocabulary is about as likely as any other, unless few are left to
//     draw from ([Report.probeReach]).
//
// A penalty that is in the log-probs too shows in neither: the log-probs of the weights tell ([Report.probeScores]).

// draws are first tokens after a prompt, drawn at one temperature.
type draws struct {
	prompt  []int32
	repeats bool              // the prompt repeats its end
	n       int               // completions; those of servers that leave out the end of a text may have no token
	counts  map[int32]int     // of each token
	sums    map[int32]float64 // of the log-probs given for it
}

func (d *draws) add(list []Completion) {
	d.n += len(list)
	for _, c := range list {
		if len(c.Tokens) > 0 {
			d.counts[c.Tokens[0]]++
			d.sums[c.Tokens[0]] += float64(c.Logprobs[0])
		}
	}
}

// logprob returns the mean of the log-probs given for a token that was drawn.
func (d *draws) logprob(token int32) float64 { return d.sums[token] / float64(d.counts[token]) }

// sampler draws first tokens from a server.
type sampler struct {
	engine      Engine
	stop        []int32
	temperature float64
	topP        float64
}

// prompts returns draws yet to be made: after beginnings of a prompt, since what follows some is less certain than what
// follows others, and after the prompt with parts of its end repeated, as a model repeats on what a penalty keeps from
// being repeated.
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

func newDraws(prompt []int32, repeats bool) *draws {
	return &draws{prompt: prompt, repeats: repeats, counts: make(map[int32]int), sums: make(map[int32]float64)}
}

// draw adds n draws to d. Draws of parts of characters, which llama.cpp does not give, are draws without a token.
func (s sampler) draw(ctx context.Context, d *draws, n int) error {
	request := Request{Prompt: d.prompt, N: n,
		Sampling: Sampling{Temperature: s.temperature, TopP: s.topP, MaxTokens: 1, Stop: s.stop}}
	list, err := s.engine.Generate(ctx, request)
	part := func() bool { return errors.Is(err, ErrPartial) || errors.Is(err, errNoLogprobs) }
	if part() { // one of them is; by itself each other is given
		request.N = 1
		for range n {
			var one []Completion
			if one, err = s.engine.Generate(ctx, request); part() {
				one, err = make([]Completion, 1), nil
			}
			if err != nil {
				return err
			}
			list = append(list, one...)
		}
	}
	if err == nil {
		d.add(list)
	}
	return err
}

// fill draws n times after each prompt. It returns the list without prompts that the server refuses, because they are
// too long for it.
func (s sampler) fill(ctx context.Context, list []*draws, n int) (made []*draws, err error) {
	for _, d := range list {
		switch err := s.draw(ctx, d, n); {
		case err == nil:
			made = append(made, d)
		case !Refused(err):
			return nil, err
		}
	}
	return made, nil
}

// temperatures compares the log-probs of draws at a temperature with those of the same tokens at twice that, over pairs
// of draws that are added. Log-probs of the distributions that were sampled from are z/T and z/2T less a normaliser, so
// that the differences between tokens are halved; those of the logits alone stay as they are.
type temperatures struct{ xx, xy float64 }

func (t *temperatures) add(once, twice *draws) {
	var x, y []float64
	for token := range once.counts {
		if twice.counts[token] > 0 {
			x, y = append(x, once.logprob(token)), append(y, twice.logprob(token))
		}
	}
	meanX, meanY := mean(x), mean(y)
	for i := range x {
		t.xx += (x[i] - meanX) * (x[i] - meanX)
		t.xy += (x[i] - meanX) * (y[i] - meanY)
	}
}

// raw reports whether log-probs are those of the logits, and whether the pairs tell. Rounding in bfloat16, and batches
// of other sizes, move a log-prob by some hundredths; 0.5 is more than five times what that makes of the product.
func (t *temperatures) raw() (raw, known bool) {
	const halved, same, noise = 0.5, 1, 0.5
	off := (t.xy/t.xx - (halved+same)/2) * math.Sqrt(t.xx)
	return off > 0, math.Abs(off) > noise
}

// claim compares the share of draws that were of some tokens with the probability that the server gave them.
type claim struct {
	probability, drawn float64 // means over the draws, in [0, 1]
	n                  int     // draws
}

// evidence returns how much the draws say against the probability, in nats: had they followed it, a share as far from it
// would have a chance of exp(-evidence) at most (the bound of Chernoff and Hoeffding).
func (c claim) evidence() float64 {
	const rounding = 0.1     // of the logit of the probability
	const certain = 1 - 1e-3 // a probability of 1 has been rounded
	const impossible = 1.2   // rounding does not make a sum of probabilities as large
	if c.probability > impossible {
		return math.Inf(1)
	}
	p := min(max(c.probability, 1-certain), certain)
	odds := p / (1 - p)
	if c.drawn > p {
		odds *= math.Exp(rounding)
	} else {
		odds *= math.Exp(-rounding)
	}
	q := odds / (1 + odds)
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

func (c claim) with(probability float64, drawn, n int) claim {
	all := float64(c.n + n)
	return claim{probability: (c.probability*float64(c.n) + probability*float64(n)) / all,
		drawn: (c.drawn*float64(c.n) + float64(drawn)) / all, n: c.n + n}
}

// changed says what may change a distribution unseen, and what comes of it.
func changed(what string) Lack {
	return Lack{What: what, Remedy: "turn off top-k, top-p, min-p and penalties where the server or a gateway sets them; " +
		"vLLM takes them from the model's folder unless it is started with --generation-config vllm",
		Lost: "the ratios of every token are wrong: tokens were drawn from another distribution than their log-probs are of"}
}

// probeDraws finds out whether draws follow their log-probs. Where that is in doubt it draws more, up to some hundred
// after each prompt.
func (r *Report) probeDraws(ctx context.Context, s sampler, list []*draws) error {
	const doubt, refuted, most = 1, 14, 512
	for {
		made := claims(list)
		if len(made) == 0 {
			r.Unknown = append(r.Unknown, "whether its draws follow its log-probs: no token was likely enough to see it")
			return nil
		}
		worst := slices.MaxFunc(made, func(a, b claim) int { return cmp.Compare(a.evidence(), b.evidence()) })
		switch n := list[0].n; {
		case worst.evidence() > refuted:
			r.Lacks = append(r.Lacks, changed(fmt.Sprintf("its draws do not follow its log-probs: %.1f%% of %d were tokens "+
				"whose log-probs add up to %.1f%%", 100*worst.drawn, worst.n, 100*worst.probability)))
			return nil
		case worst.evidence() < doubt || n >= most:
			return nil
		default:
			for _, d := range list {
				if err := s.draw(ctx, d, n); err != nil {
					return err
				}
			}
		}
	}
}

// probeReach finds out whether the server draws from the whole vocabulary. At a temperature far above the spread of
// logits the mean log-prob of draws is that of one in so many tokens; a part of them drawn from has larger ones.
func (r *Report) probeReach(ctx context.Context, s sampler, prompt []int32) error {
	s.temperature, s.topP = 100, 1
	list, err := s.fill(ctx, []*draws{newDraws(prompt, false)}, several)
	if err != nil {
		return err
	}
	if len(list) == 0 || len(list[0].counts) == 0 {
		r.Unknown = append(r.Unknown, fmt.Sprintf("whether it draws from the whole vocabulary: it does not sample at "+
			"temperature %g", s.temperature))
		return nil
	}
	// The second moment is what is left of the logits' spread, and of the chance in so many draws of it.
	sum, squares, n := 0.0, 0.0, 0.0
	for token, count := range list[0].counts {
		x := list[0].logprob(token)
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
		vocabulary = 1 + int(slices.Max(slices.Collect(maps.Keys(list[0].counts))))
	}
	// What rounds log-probs, or leaves out a few tokens that no text has, moves the mean by less.
	const slack = 0.02
	if reach := math.Exp(entropy); reach*math.Exp(slack) < float64(vocabulary) {
		r.Lacks = append(r.Lacks, changed(fmt.Sprintf("at temperature %g it draws as if it chose among %.0f tokens of %d",
			s.temperature, reach, vocabulary)))
	}
	return nil
}

// probeScores compares the log-probs of draws with those that the weights give.
func (r *Report) probeScores(ctx context.Context, s sampler, list []*draws, score Score) error {
	off, n := 0.0, 0
	for _, d := range list {
		tokens := slices.Sorted(maps.Keys(d.counts))
		scores, err := score(ctx, d.prompt, tokens, s.temperature)
		if err != nil {
			return err
		}
		for i, token := range tokens {
			off += math.Abs(d.sums[token] - float64(d.counts[token])*float64(scores[i]))
			n += d.counts[token]
		}
	}
	const slack = 0.15 // weights of 8 bits make 0.05
	if off /= float64(n); off > slack {
		r.Lacks = append(r.Lacks, changed(fmt.Sprintf("its log-probs differ from those of the model's weights by %.2f, in "+
			"the mean of %d draws", off, n)))
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
