package prompts_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
)

// naive is METHODS 4 word by word, in fractions and by looking at every prompt, with rules in the place of expressions.
type naive struct {
	o     prompts.Options
	rules rules
	known map[string]*known
	at    rollout.Version // of the latest Next

	results, reported, zero, replayed uint64
}

type known struct {
	prompts.Prompt
	held     bool
	rate     *big.Rat        // nil: not asked yet
	version  rollout.Version // of the estimate
	number   uint64          // of the result
	lastUsed rollout.Version
	reuses   int

	p, before, difficulty float64 // NaN: not known
	tries, streak         int
	right, of             int // responses
}

// rules say in Go what the expressions of options say. Where one is nil the option is not given.
type rules struct {
	keep            func(k *known) bool
	score, interval func(k *known) float64
}

// expressions are options with expressions, and what they mean.
func expressions() []func(o *prompts.Options) rules {
	return []func(o *prompts.Options) rules{
		func(*prompts.Options) rules { return rules{} },
		func(o *prompts.Options) rules { // hard ones again and again
			o.Keep, o.Score, o.Interval = "pass_rate < 1", "1 - pass_rate", "pass_rate == 0 ? 3 : 1.5"
			return rules{
				func(k *known) bool { return k.p < 1 },
				func(k *known) float64 { return 1 - k.p },
				func(k *known) float64 {
					if k.p == 0 {
						return 3
					}
					return 1
				},
			}
		},
		func(o *prompts.Options) rules { // by variance and a difficulty that only some have
			o.Keep, o.Score = "true", "mean_pass_rate * (1 - mean_pass_rate) - difficulty / 8"
			return rules{
				keep: func(*known) bool { return true },
				score: func(k *known) float64 {
					m := float64(k.right) / float64(k.of)
					return m*(1-m) - k.difficulty/8
				},
			}
		},
		func(o *prompts.Options) rules { // in the order of the band
			o.Keep = "tries == 0 || abs(pass_rate_step) > 0.2 || streak > 1 || version % 2 == 0"
			return rules{keep: func(k *known) bool {
				return k.tries == 0 || math.Abs(k.p-k.before) > 0.2 || k.streak > 1 || k.version%2 == 0
			}}
		},
		func(o *prompts.Options) rules { // a condition and intervals that change as it is handed out
			o.Keep, o.Interval = "reuses < 2 && known(pass_rate)", "2 ** (reuses + streak)"
			return rules{
				keep:     func(k *known) bool { return k.reuses < 2 && k.tries > 0 },
				interval: func(k *known) float64 { return math.Pow(2, float64(k.reuses+k.streak)) },
			}
		},
		func(o *prompts.Options) rules { // the band, and intervals below 0 or not known
			o.Interval = "pass_rate > 0.5 ? -1 : difficulty"
			return rules{interval: func(k *known) float64 {
				switch {
				case k.p > 0.5:
					return -1
				case k.difficulty != k.difficulty:
					return 0
				}
				return k.difficulty
			}}
		},
	}
}

// rest is how many versions a prompt rests.
func (n *naive) rest(k *known) int {
	if n.rules.interval == nil {
		return n.o.Cooldown
	}
	return max(0, int(n.rules.interval(k)))
}

// judge finds out whether a prompt is held.
func (n *naive) judge(k *known) {
	if n.rules.keep != nil {
		k.held = n.rules.keep(k)
		return
	}
	k.held = k.rate != nil && k.rate.Sign() > 0 && k.rate.Cmp(big.NewRat(1, 1)) < 0 &&
		distance(k.rate).Cmp(decimal(n.o.Band)) <= 0
}

// before reports the order of two prompts.
func (n *naive) before(a, b *known) int {
	switch {
	case n.rules.score != nil:
		x, y := n.rules.score(a), n.rules.score(b)
		switch {
		case x > y || x == x && y != y:
			return -1
		case x < y || x != x && y == y:
			return 1
		}
	case a.rate == nil || b.rate == nil:
		if a.rate != nil {
			return -1
		}
		if b.rate != nil {
			return 1
		}
	default:
		return cmp.Or(distance(a.rate).Cmp(distance(b.rate)), cmp.Compare(a.version, b.version),
			cmp.Compare(a.number, b.number))
	}
	return cmp.Compare(a.number, b.number)
}

// decimal is the fraction that a float's shortest decimal says.
func decimal(f float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok {
		panic(f)
	}
	return r
}

// distance is |p - 1/2|.
func distance(p *big.Rat) *big.Rat {
	d := new(big.Rat).Sub(p, big.NewRat(1, 2))
	return d.Abs(d)
}

// floor is the greatest whole number not above f n.
func floor(f *big.Rat, n int) int64 {
	r := new(big.Rat).Mul(f, big.NewRat(int64(n), 1))
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}

func (n *naive) eligible() []*known {
	var es []*known
	for _, k := range n.known {
		cool := k.lastUsed == rollout.NoVersion || int(n.at)-int(k.lastUsed) >= n.rest(k)
		if k.held && cool && k.reuses < n.o.MaxReuse {
			es = append(es, k)
		}
	}
	slices.SortFunc(es, n.before)
	return es
}

func (n *naive) next(now rollout.Version, batch int) []prompts.Prompt {
	if now < n.at { // the trainer went back
		for _, k := range n.known {
			k.lastUsed, k.version = min(k.lastUsed, now), min(k.version, now)
			n.judge(k)
		}
	}
	n.at = now
	var ps []prompts.Prompt
	es := n.eligible()
	for _, k := range es[:min(len(es), int(floor(decimal(n.o.Fraction), batch)))] {
		ps = append(ps, k.Prompt)
		k.lastUsed = now
		k.reuses++
		n.replayed++
		n.judge(k)
	}
	return ps
}

func (n *naive) report(now rollout.Version, r prompts.Result) {
	n.results++
	k := n.known[r.ID]
	if k == nil {
		nan := math.NaN()
		k = &known{Prompt: r.Prompt, lastUsed: rollout.NoVersion, number: n.results, p: nan, before: nan, difficulty: nan}
		n.known[r.ID] = k
	}
	defer n.makeRoom()
	defer n.judge(k)
	if r.Difficulty != nil {
		k.difficulty = *r.Difficulty
	}
	if r.Total == 0 {
		return
	}
	n.reported++
	k.tries++
	k.streak++
	switch r.Correct {
	case 0, r.Total:
		n.zero++
	default:
		k.streak = 0
	}
	if !r.Replayed || k.reuses == 0 {
		k.lastUsed = now
	}
	p := big.NewRat(int64(r.Correct), int64(r.Total))
	k.Prompt, k.rate, k.version, k.number = r.Prompt, p, now, n.results
	k.before, k.p = k.p, float64(r.Correct)/float64(r.Total)
	k.right, k.of = k.right+r.Correct, k.of+r.Total
}

// remembered reports whether a prompt counts against max_prompts.
func (n *naive) remembered(k *known) bool { return k.held || k.reuses > 0 || n.scheduled() }

func (n *naive) scheduled() bool {
	return n.rules.keep != nil || n.rules.score != nil || n.rules.interval != nil
}

// makeRoom lets the prompts reported longest ago go, of those that are remembered.
func (n *naive) makeRoom() {
	var first *known
	remembered := 0
	for _, k := range n.known {
		if n.remembered(k) {
			remembered++
			if first == nil || k.number < first.number {
				first = k
			}
		}
	}
	if remembered > cmp.Or(n.o.MaxPrompts, 1<<20) {
		delete(n.known, first.ID)
	}
}

func (n *naive) stats() prompts.Stats {
	s := prompts.Stats{Eligible: len(n.eligible()), Reported: n.reported, ZeroVariance: n.zero, Replayed: n.replayed}
	for _, k := range n.known {
		if n.remembered(k) {
			s.Reuses.Add(int64(k.reuses))
		}
		if k.held && k.rate != nil {
			s.PassRates.Add(floor(k.rate, 100))
		}
		if k.held {
			s.Held++
			if k.reuses == n.o.MaxReuse {
				s.Spent++
			}
		}
	}
	return s
}

// text shows statistics by their bins.
func text(s prompts.Stats) string {
	return fmt.Sprintf("%d held, %d eligible, %d spent, %d reported, %d without variance, %d replayed, reuses %v, "+
		"pass rates %v",
		s.Held, s.Eligible, s.Spent, s.Reported, s.ZeroVariance, s.Replayed, s.Reuses.Bins(), s.PassRates.Bins())
}

func pick[T any](r *rand.Rand, xs ...T) T { return xs[r.IntN(len(xs))] }

func mustNew(t testing.TB, o prompts.Options) *prompts.Buffer {
	t.Helper()
	b, err := prompts.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restored returns a buffer restored from a snapshot of b, whose own snapshot must not differ.
func restored(t testing.TB, b *prompts.Buffer) *prompts.Buffer {
	t.Helper()
	whole := snapshotOf(t, b)
	fresh := mustNew(t, b.Options())
	if err := fresh.Restore(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, fresh), whole) {
		t.Fatal("the restored buffer's snapshot differs")
	}
	return fresh
}

// pair is a buffer and its model, driven alike.
type pair struct {
	b       *prompts.Buffer
	n       *naive
	r       *rand.Rand
	now     rollout.Version
	pending []prompts.Prompt // handed out, without results
	names   int
	total   int // responses per prompt, mostly

	handed, back int
}

func newPair(t *testing.T, seed uint64) *pair {
	r := rollout.Stream(seed, "test/prompts", 0)
	o := prompts.Options{
		Fraction: pick(r, 0, 0.25, 0.29, 0.5, 0.7, 0.75, 1), Band: pick(r, 0, 0.1, 0.2, 0.3, 0.4, 0.5),
		Cooldown: r.IntN(6), MaxReuse: 1 + r.IntN(5), MaxPrompts: pick(r, 0, 1, 5, 20),
	}
	rules := pick(r, expressions()...)(&o)
	return &pair{b: mustNew(t, o), n: &naive{o: o, rules: rules, known: map[string]*known{}}, r: r, names: 1 + r.IntN(60),
		total: pick(r, 4, 5, 10, 16)}
}

// step does something at random and returns what it was and, if they disagree, how.
func (p *pair) step(t *testing.T) (did, wrong string) {
	switch x := p.r.IntN(100); {
	case x < 25:
		p.now += rollout.Version(p.r.IntN(3))
		return "wait", ""
	case x == 25 && p.now > 0:
		p.now -= rollout.Version(p.r.IntN(min(int(p.now), 12) + 1))
		p.back++
		return "go back", ""
	case x == 26:
		p.b = restored(t, p.b)
		return "restore", ""
	case x < 60:
		batch := p.r.IntN(12)
		want, got := p.n.next(p.now, batch), p.b.Next(p.now, batch)
		if !reflect.DeepEqual(got, want) {
			wrong = fmt.Sprintf("got %v, want %v", got, want)
		}
		p.handed += len(got)
		p.pending = append(p.pending, got...)
		return fmt.Sprintf("Next(%d, %d)", p.now, batch), wrong
	default:
		results := p.results()
		if err := p.b.Report(p.now, results...); err != nil {
			wrong = err.Error()
		}
		for _, x := range results {
			p.n.report(p.now, x)
		}
		return fmt.Sprintf("Report(%d, %v)", p.now, results), wrong
	}
}

// results are up to three, of prompts handed out or any.
func (p *pair) results() []prompts.Result {
	var results []prompts.Result
	for range p.r.IntN(4) {
		x := prompts.Prompt{ID: "p" + strconv.Itoa(p.r.IntN(p.names)), Ref: p.r.Uint64()}
		replayed := len(p.pending) > 0 && p.r.IntN(2) == 0
		if replayed {
			i := p.r.IntN(len(p.pending))
			x = p.pending[i]
			p.pending = slices.Delete(p.pending, i, i+1)
		}
		g := pick(p.r, p.total, p.total, 2*p.total)
		result := prompts.Result{Prompt: x, Correct: p.r.IntN(g + 1), Total: g, Replayed: replayed}
		if p.n.scheduled() && p.r.IntN(3) == 0 {
			result.Difficulty = new(float64(p.r.IntN(8)))
			if !replayed && p.r.IntN(2) == 0 {
				result.Correct, result.Total = 0, 0
			}
		}
		results = append(results, result)
	}
	return results
}

func TestRandomOperationsAgreeWithTheDefinition(t *testing.T) {
	tests.OneGoroutine(t)
	var handed, twice, back, ties int
	seeds := tests.Count(150, 30)
	for seed := range uint64(seeds) {
		p := newPair(t, seed)
		for op := range 300 {
			did, wrong := p.step(t)
			if wrong != "" {
				t.Fatalf("seed %d, operation %d, %s of %+v: %s", seed, op, did, p.n.o, wrong)
			}
			if got, want := text(p.b.Stats()), text(p.n.stats()); got != want {
				t.Fatalf("seed %d, operation %d, %s of %+v: statistics:\n got %s\nwant %s", seed, op, did,
					p.n.o, got, want)
			}
			es := p.n.eligible()
			for i := 1; i < len(es); i++ {
				a, b := es[i-1], es[i]
				a.number, b.number = b.number, a.number // the order of a tie turns
				if p.n.before(a, b) > 0 {
					ties++
				}
				a.number, b.number = b.number, a.number
			}
		}
		for _, k := range p.n.known {
			if k.reuses > 1 {
				twice++
			}
		}
		handed += p.handed
		back += p.back
	}
	t.Logf("%d prompts handed out, %d of them more than once, %d ties, %d times back", handed, twice, ties, back)
	if handed < 13*seeds || twice < 2*seeds || ties < 66*seeds || back < seeds {
		t.Errorf("%d prompts handed out, %d of them more than once, %d ties, %d times back: the test shows little",
			handed, twice, ties, back)
	}
}
