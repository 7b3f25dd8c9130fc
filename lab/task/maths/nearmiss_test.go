package maths

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout"
)

// chance draws the parts of near misses.
type chance struct{ *rand.Rand }

// in returns a number from low to high.
func (c chance) in(low, high int) int { return low + c.IntN(high-low+1) }

// some returns n different numbers from low to high.
func (c chance) some(n, low, high int) []int {
	var list []int
	for len(list) < n {
		if v := c.in(low, high); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// of returns n different texts of a list.
func (c chance) of(n int, list ...string) []string {
	var texts []string
	for _, i := range c.some(n, 0, len(list)-1) {
		texts = append(texts, list[i])
	}
	return texts
}

// joined writes numbers with a text between them.
func joined(list []int, between string) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", between), "[]")
}

// nearMisses make an answer and another that differs in one place and, by construction, in value.
func nearMisses() map[string]func(chance) (string, string) {
	f := fmt.Sprintf
	return map[string]func(chance) (string, string){
		"a digit": func(c chance) (string, string) {
			a := []byte(strconv.Itoa(c.in(100, 999_999)))
			b, at := slices.Clone(a), c.IntN(len(a))
			b[at] = '1' + (b[at]-'0'+byte(c.IntN(8)))%9 // another digit, not 0
			return string(a), string(b)
		},
		"two digits swapped": func(c chance) (string, string) {
			d := c.some(3, 1, 9)
			return joined(d, ""), joined([]int{d[0], d[2], d[1]}, "")
		},
		"a digit more": func(c chance) (string, string) {
			n := c.in(1, 9999)
			return f("%d", n), f("%d%d", n, c.in(0, 9))
		},
		"a leading digit": func(c chance) (string, string) {
			n := c.in(1, 9999)
			return f("%d", n), f("%d%d", c.in(1, 9), n)
		},
		"the sign": func(c chance) (string, string) { n := c.in(1, 999); return f("%d", n), f("-%d", n) },
		"a fraction's sign": func(c chance) (string, string) {
			n := c.in(1, 9)
			return f(`\frac{%d}{10}`, n), f(`-\frac{%d}{10}`, n)
		},
		"off by one": func(c chance) (string, string) { n := c.in(-99, 99); return f("%d", n), f("%d", n+1) },
		"a thousands' comma": func(c chance) (string, string) {
			n := c.some(2, 100, 999)
			return f("%d,%d", n[0], n[1]), f("%d,%d", n[1], n[0])
		},
		"turned over": func(c chance) (string, string) {
			n := c.some(2, 1, 30)
			return f(`\frac{%d}{%d}`, n[0], n[1]), f(`\frac{%d}{%d}`, n[1], n[0])
		},
		"a numerator": func(c chance) (string, string) {
			n, d := c.some(2, 1, 30), c.in(2, 30)
			return f(`\frac{%d}{%d}`, n[0], d), f(`\frac{%d}{%d}`, n[1], d)
		},
		"a denominator": func(c chance) (string, string) {
			n, d := c.in(1, 30), c.some(2, 2, 30)
			return f(`\frac{%d}{%d}`, n, d[0]), f("%d/%d", n, d[1])
		},
		"a mixed number": func(c chance) (string, string) { // n + 1/d is not n times 1/d, nor (10 n + 1)/d
			n, d := c.in(2, 9), c.in(2, 9)
			return f(`%d\frac{1}{%d}`, n, d), c.of(1, f(`\frac{%d}{%d}`, n, d), f(`\frac{%d1}{%d}`, n, d))[0]
		},
		"the decimal point": func(c chance) (string, string) {
			d := c.some(4, 1, 9)
			return f("%d%d.%d%d", d[0], d[1], d[2], d[3]), f("%d.%d%d%d", d[0], d[1], d[2], d[3])
		},
		"cut off": func(c chance) (string, string) { // sevenths do not end
			n := c.in(1, 6)
			return f(`\frac{%d}{7}`, n), f("%.*f", c.in(1, 7), float64(n)/7)
		},
		"what repeats": func(c chance) (string, string) {
			d := c.some(2, 1, 8)
			wrong := c.of(1, f("0.%d%d", d[0], d[1]), f(`0.%d\overline{%d}`, d[0], d[1]),
				f(`0.\overline{%d%d}`, d[1], d[0]))[0]
			return f(`0.\overline{%d%d}`, d[0], d[1]), wrong
		},
		"a power of ten": func(c chance) (string, string) {
			n, e := c.in(1, 9), c.some(2, -7, 9)
			return f(`%d \times 10^{%d}`, n, e[0]), f(`%d \times 10^{%d}`, n, e[1])
		},
		"an end that is open": func(c chance) (string, string) {
			a := c.in(-20, 20)
			ends := c.of(2, "()", "[]", "(]", "[)")
			inside := f("%d, %d", a, a+c.in(1, 20))
			return ends[0][:1] + inside + ends[0][1:], ends[1][:1] + inside + ends[1][1:]
		},
		"an end": func(c chance) (string, string) {
			a, b := c.in(-20, 0), c.some(2, 1, 20)
			return f("[%d, %d)", a, b[0]), f("[%d, %d)", a, b[1])
		},
		"infinity": func(c chance) (string, string) {
			a := c.in(-20, 20)
			return f(`(%d, \infty)`, a), c.of(1, f(`(-\infty, %d)`, a), f(`[%d, \infty)`, a), f(`(%d, \infty)`, a+1))[0]
		},
		"a union": func(c chance) (string, string) {
			a := c.in(-20, 20)
			b := a + c.in(2, 9)
			return f(`(-\infty, %d) \cup (%d, \infty)`, a, b),
				c.of(1, f(`(-\infty, %d] \cup (%d, \infty)`, a, b), f(`(%d, %d)`, a, b),
					f(`(-\infty, %d) \cup (%d, \infty)`, a, b+1))[0]
		},
		"a relation": func(c chance) (string, string) {
			relations := c.of(2, "<", ">", `\le`, `\ge`, "=")
			n := c.in(-20, 20)
			return f("x %s %d", relations[0], n), f("x %s %d", relations[1], n)
		},
		"the order of a tuple": func(c chance) (string, string) {
			n := c.some(3, -20, 20)
			return "(" + joined(n, ", ") + ")", "(" + joined([]int{n[1], n[0], n[2]}, ", ") + ")"
		},
		"an entry of a tuple": func(c chance) (string, string) {
			n := c.some(3, -20, 20)
			return f("(%d, %d)", n[0], n[1]), f("(%d, %d)", n[0], n[2])
		},
		"the kind of brackets": func(c chance) (string, string) {
			n := c.in(-20, 20)
			inside := f("%d, %d", n, n+c.in(1, 9))
			ends := c.of(2, "(%s)", "[%s]", `\{%s\}`)
			return f(ends[0], inside), f(ends[1], inside)
		},
		"an element": func(c chance) (string, string) {
			n := c.some(4, -20, 20)
			return joined(n[:3], ", "), joined([]int{n[0], n[3], n[2]}, ", ")
		},
		"an element less": func(c chance) (string, string) {
			n := c.some(3, -20, 20)
			return joined(n, ", "), joined(n[:2], c.of(1, ", ", " and ", " or ")[0])
		},
		"an element more": func(c chance) (string, string) {
			n := c.some(3, -20, 20)
			return `\{` + joined(n[:2], ", ") + `\}`, `\{` + joined(n, ", ") + `\}`
		},
		"one of two": func(c chance) (string, string) { n := c.in(1, 99); return f(`\pm %d`, n), f("%d", n) },
		"one root": func(c chance) (string, string) {
			n := c.in(1, 20)
			return f(`%d \pm \sqrt{2}`, n),
				c.of(1, f(`%d + \sqrt{2}`, n), f(`-%d \pm \sqrt{2}`, n), f(`%d \pm \sqrt{3}`, n))[0]
		},
		"a unit": func(c chance) (string, string) {
			units := c.of(2, "cm", "m", "km", "inches", "feet", "seconds", "minutes", "hours", "grams", "kg")
			n := c.in(1, 999)
			return f(`%d \text{ %s}`, n, units[0]), f(`%d \text{ %s}`, n, units[1])
		},
		"a number with a unit": func(c chance) (string, string) {
			n := c.some(2, 1, 999)
			return f(`%d \text{ cm}`, n[0]), f(`%d \text{ cm}`, n[1])
		},
		"a square of a unit": func(c chance) (string, string) {
			n, e := c.in(1, 99), c.some(2, 2, 3)
			return f(`%d \text{ cm}^%d`, n, e[0]), f(`%d \text{ cm}^%d`, n, e[1])
		},
		"money": func(c chance) (string, string) { n := c.in(1, 99); return f(`\$%d`, n), f(`%d \text{ cents}`, n) },
		"a percentage": func(c chance) (string, string) { // 40% is 0.4 and 40
			n := c.in(2, 99)
			return f(`%d\%%`, n), c.of(1, f("%d", 100*n), f("0.00%02d", n), f(`%d\%%`, n+1), f("%d", n-1))[0]
		},
		"a small percentage": func(c chance) (string, string) { n := c.in(1, 9); return f(`0.%d\%%`, n), f("0.%d", n) },
		"degrees": func(c chance) (string, string) {
			n := c.some(2, 1, 359)
			return f(`%d^\circ`, n[0]), c.of(1, f(`%d^\circ`, n[1]), f(`%d\%%`, n[0]))[0]
		},
		"a base": func(c chance) (string, string) {
			b := c.some(2, 3, 9)
			digits := f("1%d%d", c.in(0, 2), c.in(0, 2))
			return digits + f("_%d", b[0]), c.of(1, digits+f("_%d", b[1]), digits)[0]
		},
		"a time": func(c chance) (string, string) {
			n := c.some(2, 1, 5)
			return f("%d:0%d", n[0], n[1]), f("%d:%d0", n[0], n[1])
		},
		"a ratio": func(c chance) (string, string) {
			n := c.some(2, 1, 9)
			return f("%d:%d", n[0], n[1]), f("%d:%d", n[1], n[0])
		},
		"a term": func(c chance) (string, string) {
			n := c.some(3, 1, 20)
			return f("%dx^2 + %dx + %d", n[0], n[1], n[2]),
				c.of(1, f("%dx^2 + %dx", n[0], n[1]), f("%dx^2 + %d", n[0], n[2]),
					f("%dx + %d", n[1], n[2]))[0]
		},
		"a term's sign": func(c chance) (string, string) {
			n := c.some(3, 1, 20)
			return f("%dx^2 - %dx + %d", n[0], n[1], n[2]), c.of(1, f("%dx^2 + %dx + %d", n[0], n[1], n[2]),
				f("%dx^2 - %dx - %d", n[0], n[1], n[2]), f("-%dx^2 - %dx + %d", n[0], n[1], n[2]))[0]
		},
		"a coefficient": func(c chance) (string, string) {
			n := c.some(3, 2, 20)
			return f("%dx^3 - %d", n[0], n[1]), f("%dx^3 - %d", n[2], n[1])
		},
		"an exponent": func(c chance) (string, string) {
			e, n := c.some(2, 2, 9), c.in(1, 20)
			return f("x^%d + %d", e[0], n), f("x^%d + %d", e[1], n)
		},
		"a variable": func(c chance) (string, string) {
			v, n := c.of(2, "x", "y", "t", "k"), c.in(2, 20)
			return f("%d%s + 1", n, v[0]), f("%d%s + 1", n, v[1])
		},
		"a name": func(c chance) (string, string) {
			v, n := c.of(2, "x", "y", "t", "k"), c.in(2, 20)
			return f("%s = %d", v[0], n), f("%s = %d", v[1], n)
		},
		"a factor": func(c chance) (string, string) {
			n := c.some(3, 1, 20)
			return f("(x + %d)(x - %d)", n[0], n[1]),
				c.of(1, f("(x + %d)(x - %d)", n[1], n[0]), f("(x + %d)(x + %d)", n[0], n[1]),
					f("(x + %d)(x - %d)", n[0], n[2]))[0]
		},
		"brackets in a product": func(c chance) (string, string) {
			n := c.some(2, 2, 20)
			return f("%d(x + %d)", n[0], n[1]), f("%dx + %d", n[0], n[1])
		},
		"brackets under a power": func(c chance) (string, string) {
			n := c.in(1, 20)
			return f("(x + %d)^2", n), f("x^2 + %d", n*n)
		},
		"brackets after a minus": func(c chance) (string, string) {
			n := c.in(1, 20)
			return f("y - (x - %d)", n), f("y - x - %d", n)
		},
		"what a fraction holds": func(c chance) (string, string) {
			n := c.some(2, 2, 20)
			return f(`\frac{x + %d}{%d}`, n[0], n[1]), f(`x + \frac{%d}{%d}`, n[0], n[1])
		},
		"a root for a number": func(c chance) (string, string) {
			n := c.in(2, 99)
			return f(`\sqrt{%d}`, n), f("%d", n)
		},
		"what a root holds": func(c chance) (string, string) { // a sqrt b is sqrt(a²b)
			n := c.some(2, 2, 9)
			return f(`%d\sqrt{%d}`, n[0], n[1]), c.of(1, f(`%d\sqrt{%d}`, n[1], n[0]), f(`\sqrt{%d}`, n[0]*n[1]))[0]
		},
		"a degree of a root": func(c chance) (string, string) {
			n := c.in(2, 99)
			return f(`\sqrt[3]{%d}`, n), f(`\sqrt{%d}`, n)
		},
		"pi": func(c chance) (string, string) {
			n := c.in(1, 20)
			return f(`%d\pi`, n), c.of(1, f("%d", n), f("%.2f", 3.14*float64(n)), f(`%d\pi`, n+1), f(`%d\pi^2`, n))[0]
		},
		"pi below": func(c chance) (string, string) {
			n := c.some(2, 1, 9)
			return f(`\frac{%d\pi}{%d}`, n[0], n[1]), f(`\frac{%d}{%d\pi}`, n[0], n[1])
		},
		"a power turned over": func(c chance) (string, string) { // a^b = b^a only for 2 and 4
			n := c.some(2, 3, 9)
			return f("%d^{%d}", n[0], n[1]), c.of(1, f("%d^{%d}", n[1], n[0]), f(`%d \cdot %d`, n[0], n[1]))[0]
		},
		"an exponent of e": func(c chance) (string, string) {
			n := c.in(1, 99)
			return f("e^{%d}", n), f("e^{%d} + 1", n)
		},
		"an argument of ln": func(c chance) (string, string) {
			n := c.some(2, 2, 99)
			return f(`\ln %d`, n[0]), f(`\ln %d`, n[1])
		},
		"a base of log": func(c chance) (string, string) {
			b := c.some(2, 2, 9)
			return f(`\log_{%d} 7`, b[0]), f(`\log_{%d} 7`, b[1])
		},
		"a function": func(c chance) (string, string) {
			v := c.of(2, `\sin`, `\cos`, `\tan`, `\ln`)
			return v[0] + " x", v[1] + " x"
		},
		"a factorial":          func(c chance) (string, string) { n := c.in(3, 40); return f("%d!", n), f("%d!", n-1) },
		"a factorial's number": func(c chance) (string, string) { n := c.in(3, 40); return f("%d!", n), f("%d", n) },
		"a binomial": func(c chance) (string, string) { // rises in k below n/2
			n := c.in(10, 30)
			k := c.in(1, n/2-1)
			return f(`\binom{%d}{%d}`, n, k), f(`\binom{%d}{%d}`, n, k+1)
		},
		"a line": func(c chance) (string, string) {
			n := c.some(2, 2, 20)
			return f("y = %dx + %d", n[0], n[1]), c.of(1, f("y = %dx - %d", n[0], n[1]), f("y = %dx + %d", n[1], n[0]),
				f("x = %dy + %d", n[0], n[1]))[0]
		},
		"a conjugate": func(c chance) (string, string) {
			n := c.some(2, 1, 20)
			return f("%d + %di", n[0], n[1]),
				c.of(1, f("%d - %di", n[0], n[1]), f("%d + %di", n[1], n[0]), f("%d + %d", n[0], n[1]))[0]
		},
		"a transpose": func(c chance) (string, string) {
			n := c.some(4, -9, 9)
			m := `\begin{pmatrix} %d & %d \\ %d & %d \end{pmatrix}`
			return f(m, n[0], n[1], n[2], n[3]), f(m, n[0], n[2], n[1], n[3])
		},
		"an entry of a matrix": func(c chance) (string, string) {
			n := c.some(5, -9, 9)
			m := `\begin{pmatrix} %d & %d \\ %d & %d \end{pmatrix}`
			return f(m, n[0], n[1], n[2], n[3]), f(m, n[0], n[4], n[2], n[3])
		},
		"a choice": func(c chance) (string, string) {
			v := c.of(2, "A", "B", "C", "D", "E")
			return f(`\text{(%s)}`, v[0]), f("(%s)", v[1])
		},
		"a word": func(c chance) (string, string) {
			v := c.of(2, "even", "odd", "prime", "east", "west")
			return f(`\text{%s}`, v[0]), v[1]
		},
		"a set in a tuple": func(c chance) (string, string) {
			n := c.some(2, 1, 9)
			return f("(%d, %d)", n[0], n[1]), f(`(%d, \{%d\})`, n[0], n[1])
		},
		"a set in a set": func(c chance) (string, string) {
			n := c.in(1, 9)
			return f(`\{%d, %d\}`, n, n+1), f(`\{%d, \{%d\}\}`, n, n+1)
		},
		"a sum": func(c chance) (string, string) {
			n := c.in(2, 40)
			return f(`\sum_{k=1}^{%d} k`, n), f(`\sum_{k=1}^{%d} k`, n+1)
		},
		"a sequence": func(c chance) (string, string) {
			n := c.some(2, 2, 9)
			return f("%dn + %d", n[0], n[1]), f("%d(n + 1) + %d", n[0], n[1])
		},
	}
}

// response writes an answer as a response.
func (c chance) response(answer string) string {
	return c.of(1, `Thus $\boxed{`+answer+`}$.`, "So\n\\[\\boxed{"+answer+"}\\]", `The answer is $`+answer+`$.`,
		"Therefore\n\\[\n"+answer+"\n\\]", "#### "+answer)[0]
}

// writeNearMisses names a file for the pairs, for other verifiers: make bench-verifiers.
var writeNearMisses = flag.String("write-near-misses", "", "write the pairs to this file, as JSON lines")

// Each answer is read, as it is right for itself, and none is right for the other.
func TestNoNearMissIsAccepted(t *testing.T) {
	var written bytes.Buffer
	lines := json.NewEncoder(&written)
	judge := func(response, answer string, correct bool) task.Verdict {
		if err := lines.Encode(pair{response, answer, correct}); err != nil {
			t.Fatal(err)
		}
		return Verifier{}.Verify(task.Prompt{Answer: answer}, response)
	}
	c := chance{rollout.Stream(31, "near misses", 0)}
	kinds := nearMisses()
	each := tests.Count(32, 4)
	misses, unread := 0, map[string]int{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for range each {
			answer, wrong := kinds[kind](c)
			for range 2 {
				if v := judge(c.response(answer), answer, true); !v.Correct {
					unread[kind]++
					t.Logf("%s: %q is refused for itself: %+v", kind, answer, v)
				}
				misses++
				if response := c.response(wrong); judge(response, answer, false).Correct {
					t.Errorf("%s: %q is accepted for %q", kind, response, answer)
				}
				answer, wrong = wrong, answer
			}
		}
	}
	if misses < 64*each || len(unread) > 0 {
		t.Errorf("%d near misses of %d kinds, refused for themselves: %v", misses, len(kinds), unread)
	}
	if *writeNearMisses != "" {
		if err := os.WriteFile(*writeNearMisses, written.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
