package prompts_test

import (
	"bytes"
	"cmp"
	"fmt"
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

// naive is METHODS 4 word by word, in fractions and by looking at every prompt.
type naive struct {
	o     prompts.Options
	known map[string]*known
	at    rollout.Version // of the latest Next

	reported, zero, replayed uint64
}

type known struct {
	prompts.Prompt
	held     bool
	rate     *big.Rat
	version  rollout.Version // of the estimate
	number   uint64          // of the result
	lastUsed rollout.Version
	reuses   int
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
		if k.held && int(n.at)-int(k.lastUsed) >= n.o.Cooldown && k.reuses < n.o.MaxReuse {
			es = append(es, k)
		}
	}
	slices.SortFunc(es, func(a, b *known) int {
		return cmp.Or(distance(a.rate).Cmp(distance(b.rate)), cmp.Compare(a.version, b.version),
			cmp.Compare(a.number, b.number))
	})
	return es
}

func (n *naive) next(now rollout.Version, batch int) []prompts.Prompt {
	if now < n.at { // the trainer went back
		for _, k := range n.known {
			k.lastUsed, k.version = min(k.lastUsed, now), min(k.version, now)
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
	}
	return ps
}

func (n *naive) report(now rollout.Version, r prompts.Result) {
	n.reported++
	if r.Correct == 0 || r.Correct == r.Total {
		n.zero++
	}
	k := n.known[r.ID]
	if k == nil {
		k = &known{}
		n.known[r.ID] = k
	}
	if !r.Replayed || k.reuses == 0 {
		k.lastUsed = now
	}
	p := big.NewRat(int64(r.Correct), int64(r.Total))
	k.Prompt, k.rate, k.version, k.number = r.Prompt, p, now, n.reported
	defer n.makeRoom()
	k.held = p.Sign() > 0 && p.Cmp(big.NewRat(1, 1)) < 0 && distance(p).Cmp(decimal(n.o.Band)) <= 0
}

// makeRoom lets the prompts reported longest ago go, of those that are held or were replayed.
func (n *naive) makeRoom() {
	var first *known
	remembered := 0
	for _, k := range n.known {
		if k.held || k.reuses > 0 {
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
		if k.held || k.reuses > 0 {
			s.Reuses.Add(int64(k.reuses))
		}
		if k.held {
			s.Held++
			s.PassRates.Add(floor(k.rate, 100))
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
	return &pair{b: mustNew(t, o), n: &naive{o: o, known: map[string]*known{}}, r: r, names: 1 + r.IntN(60),
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
		results = append(results, prompts.Result{Prompt: x, Correct: p.r.IntN(g + 1), Total: g, Replayed: replayed})
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
				if distance(es[i].rate).Cmp(distance(es[i-1].rate)) == 0 {
					ties++
				}
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
