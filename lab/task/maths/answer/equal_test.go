package answer

import (
	"testing"
)

func equal(a, b string) bool { return Equal(Parse(a), Parse(b)) }

// alike are groups of writings that say the same; writings of different groups never do.
func alike() [][]string {
	return [][]string{
		{"12", "12.0", "012", `\text{12}`, "$12$", `\mathbf{12}`, "1.2e1", `1.2\times10^1`, `\frac{24}{2}`, "24/2",
			`\sqrt{144}`, "|-12|", `\left|-12\right|`, "3\\cdot 4", "3*4", "2+10 = 12"},
		{"-7", "−7", "- 7", "(-7)", `-\frac{14}{2}`, `\frac{-14}{2}`, "-7.", `\sqrt[3]{-343}`},
		{"1234", "1,234", "1{,}234", `1,\!234`, `1\,234`, "1.234e3"},
		{"1, 234", "234, 1", `\{1, 234\}`, `1 \text{ and } 234`, `1\text{ or }234`, "x=1, x=234"},
		{`\frac12`, `\frac{1}{2}`, `\dfrac 12`, "0.5", ".5", "1/2", "½", `50\%`, `2^{-1}`, `\cos 60^\circ`,
			`\sin\frac{\pi}{6}`, `\log_4 2`, `\tfrac{1}2`, `\frac{\frac13}{\frac23}`},
		{`3\frac12`, "3 1/2", "3½", "7/2", "3.5", `\frac72`},
		{`\frac13`, `0.\overline{3}`, "1/3", `33\frac13\%`},
		{"0.333"}, {"0.3333333333333333"},
		{`\sqrt2`, `\sqrt{2}`, "sqrt(2)", "√2", "2^{1/2}", `2^{\frac12}`, `\frac{2}{\sqrt{2}}`, `\sqrt[4]{4}`,
			"1.41421356237309505"},
		{"1.414"}, {"1.4142135"},
		{`\pi`, "π", "pi", "3.14159265358979"}, {"3.14159"}, {`\frac{22}{7}`},
		{"e", "2.718281828459045", `\exp(1)`}, {"2.71828"},
		{"i", `\sqrt{-1}`, `-\frac1i`, `e^{i\pi/2}`}, {"-i"},
		{"x^2+3x+2", "(x+1)(x+2)", "2+3x+x^{2}", `y = (x+1)(x+2)`}, {"x^2+3x-2"}, {"y^2+3y+2"},
		{"5!!"}, {"2^{3}^{2}"}, {"1/2x"}, {"1 2"}, {"0.(3)"}, {"1.2.3"},
		{"|x|", `\sqrt{x^2}`}, {"x"}, {"-x"}, {"X"}, {"x_1", "x_{1}"}, {"x_2"}, {"x'"},
		{"AB", "A B"}, {"BA"}, {"A^T", `A^{T}`}, {`A^\top`}, {`A^TB^T`}, {"(BA)^T"},
		{"n!", `n\cdot(n-1)!`, `\frac{(n+1)!}{n+1}`}, {"(n-1)!"},
		{"f(2x)"}, {"2f(x)", "f(x)+f(x)"}, {`\sin 2x`, `\sin(2x)`, `2\sin x\cos x`}, {`2\sin x`}, {`\sin x^2`},
		{`\sin^2 x`, `1-\cos^2 x`},
		{`\ln 8`, `3\ln 2`, `2\ln2+\ln 2`}, {`\log 8`, `3\log 2`}, {`\log_{10} 8`},
		{"(1,2)", `\left( 1, 2 \right)`, "(1.0, 2)", "(a,b)=(1,2)"}, {"[1,2]", `1\le x\le 2`, `x \in [1,2]`},
		{"(1,2]", "1<t\\leq 2"}, {"[1,2)"}, {"(2,1)", `\begin{pmatrix}2\\1\end{pmatrix}`}, {"1,2", `\{2,1\}`},
		{`(-\infty,3)\cup(3,\infty)`, `(3,\infty)\cup(-\infty,3)`, `\mathbb{R}\setminus\{3\}`, `x\ne 3`,
			`x<3\text{ or }x>3`}, {`\mathbb{R}`, `(-\infty,\infty)`}, {`(-\infty,3)`}, {`(-\infty,3]`, `x\le3`, "3>=x"},
		{`[0,1]\cup[2,3]`, `[2,3]\cup[0,1]`}, {`[0,3]`, `[0,2]\cup[1,3]`, `[0,1)\cup[1,3]`}, {`[0,1)\cup(1,3]`},
		{`\emptyset`, `\varnothing`, `\{\}`, "∅"}, {`\infty`, `+\infty`}, {`-\infty`},
		{`1\pm\sqrt{6}`, `1+\sqrt6,1-\sqrt6`, `x = 1 \pm \sqrt{6}`}, {`\pm 3`, "3,-3", `\{-3,3\}`}, {`\pm1\pm2`},
		{`x+2y=3`, `2x+4y-6=0`, `y=\frac{3-x}{2}`}, {"x+2y=4"}, {"x+2y>3", "-2x-4y<-6"}, {"x+2y<3"}, {"x+2y\\ge 3"},
		{"1011_2", `1011_{2}`}, {"1011_3"}, {`\text{A5}_{11}`}, {`3:5`, "3 : 5"}, {"5:3"}, {"3:05"},
		{"8:34 \\text{ p.m.}"}, {"8:34 \\text{ a.m.}"},
		{`\begin{pmatrix}1&2\\3&4\end{pmatrix}`, `\begin{bmatrix} 1 & 2 \\ 3 & \frac{8}{2} \\ \end{bmatrix}`},
		{`\begin{pmatrix}1&3\\2&4\end{pmatrix}`}, {`\begin{pmatrix}1&2&3&4\end{pmatrix}`},
		{`\text{(C)}`, "C", `\textbf{C}`, "(C)"}, {"D"}, {`\text{East}`, "east"}, {`\text{west}`},
		{`\text{A, B}`, "A, B", "A,B"}, {"B, A"}, {`\text{no}`, "No"}, {`\text{on}`},
		{"{3, 8, 17}", `\{8,3,17\}`, "$\\{17, 8, 3\\}$", "{3,8,17}"}, {"{3, 8, -17}"}, {"{3, 8}"}, {"{8, 317}"},
		{"(3,8,17)"},
		{`\left(\begin{array}{cc}7&8\\9&6\end{array}\right)`, `\begin{pmatrix}7&8\\[1ex]9&6\end{pmatrix}`,
			`\begin{bmatrix}7&8\\ [2.5pt] 9&6\end{bmatrix}`, `\begin{array}{rr} 7&8\\9&6 \end{array}`,
			`2\begin{pmatrix}3.5&4\\4.5&3\end{pmatrix}`, `\frac{1}{2}\begin{pmatrix}14&16\\18&12\end{pmatrix}`,
			`-\begin{pmatrix}-7&-8\\-9&-6\end{pmatrix}`,
			`\begin{pmatrix}1&1\\1&1\end{pmatrix}+\begin{pmatrix}6&7\\8&5\end{pmatrix}`,
			`\begin{pmatrix}7&8\\9&6\end{pmatrix}\begin{pmatrix}1&0\\0&1\end{pmatrix}`,
			`\begin{pmatrix}8&7\\6&9\end{pmatrix} \cdot \begin{pmatrix}0&1\\1&0\end{pmatrix}`},
		{`\begin{pmatrix}7&9\\8&6\end{pmatrix}`}, {`2\begin{pmatrix}7&8\\9&6\end{pmatrix}`},
		{`\begin{pmatrix}0&1\\1&0\end{pmatrix}\begin{pmatrix}8&7\\6&9\end{pmatrix}`,
			`\begin{pmatrix}6&9\\8&7\end{pmatrix}`},
		{`\begin{pmatrix}7&8\\9&6\end{pmatrix}+\begin{pmatrix}1&2\end{pmatrix}`},
		{`\begin{pmatrix}7&8\\9&6\end{pmatrix}\begin{pmatrix}1&2\end{pmatrix}`},
		{`\left|\begin{array}{cc}7&8\\9&6\end{array}\right|`},
		{`\{x : 1.5 < x \le 2.5\}`, `(1.5,2.5]`, `\{ y \in \mathbb{R} \mid 1.5<y\le2.5 \}`,
			`\{t | \frac32 < t \leq \frac52\}`,
			`1.5<x\le 2.5`}, {`\{x : 1.5 \le x < 2.5\}`, `[1.5,2.5)`}, {`\{x : 1.5 < x < 2.5\}`},
		{`\{x \mid x<-1 \text{ or } x>1\}`, `(-\infty,-1)\cup(1,\infty)`}, {`\{x \mid x<-1 \text{ or } x\ge 1\}`},
		{`\{n \in \mathbb{Z} : 4 \le n < 7\}`, `\{4,5,6\}`, `\{n \in \mathbb{N} \mid 3<n\le 6\}`, "4,5,6"},
		{`\{n \in \mathbb{Z} : 4 < n \le 7\}`, `5,6,7`}, {`\{x : 4\le x<7\}`, "[4,7)"},
		{`\sum_{k=1}^{10} k^2`, "385", `\sum_{i=1}^{10} i^2`, `\sum_{k=0}^{9}(k+1)^2`}, {`\sum_{k=1}^{9} k^2`, "285"},
		{`\sum_{k=2}^{10} k^2`, "384"},
		{`\sum_{n=0}^{\infty} \frac{5}{3^n}`, `\frac{15}{2}`, `\sum_{n=0}^\infty 5\cdot\left(\frac13\right)^n`,
			`\sum_{n=1}^{\infty} 5(3)^{1-n}`}, {`\sum_{n=1}^{\infty} \frac{5}{3^n}`, `\frac{5}{2}`},
		{`\sum_{n=0}^{\infty} \left(-\frac12\right)^n`, `\frac23`}, {`2\sum_{k=1}^{3} 2^k`, "28"},
		{"e^{100}"}, {"e^{100}+1"}, {"10^{10^{10}}"}, {"10^{10^{10}}+1"}, {"2^{100}", `\frac{2^{101}}{2}`},
		{"2^{100}+1"},
		{`\frac{10000000000000001}{10000000000000000}\sqrt{5}`}, {`\sqrt5`}, {"10^{12}\\sqrt{5}+1"},
		{"10^{12}\\sqrt{5}"},
	}
}

// Every pair of writings is compared: 30,000 pairs, nearly all of them different.
func TestWritingsAreEqualWithinTheirGroupAndNowhereElse(t *testing.T) {
	var groups [][]Answer
	for _, texts := range alike() {
		var group []Answer
		for _, text := range texts {
			group = append(group, Parse(text))
		}
		groups = append(groups, group)
	}
	for i, one := range groups {
		for j, other := range groups {
			for _, a := range one {
				for _, b := range other {
					if got := Equal(a, b); got != (i == j) {
						t.Errorf("%v and %v: %v", a, b, got)
					}
				}
			}
		}
	}
}

// The meaning of a sign or a unit depends on the other side, so these cannot be groups.
func TestUnitsPercentAndDegreesDoNotContradict(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		equal bool
	}{
		{"12", `12\text{ cm}`, true}, {`12\text{ cm}`, `12\text{ centimeters}`, true},
		{`12\text{ cm}`, `12\text{ m}`, false}, {`12\text{ cm}`, `12\text{ cm}^2`, false},
		{`12\text{ cm}^2`, `12\text{ square centimeters}`, true}, {`12\text{ in}^3`, `12\text{ cubic inches}`, true},
		{`12 units^2`, `12\text{ sq. units}`, true}, {`12\text{ m}`, "12m", false},
		{`12\text{ dogs}`, `12\text{ brown dogs}`, true}, {`12\text{ dogs}`, `12\text{ cats}`, false},
		{`60\text{ mph}`, `60\text{ miles per hour}`, true}, {`5\text{ m}`, `5\text{ m/s}`, false},
		{`8:34\text{ p.m.}`, "8:34", false}, {`5\text{ km/h}`, `5\text{ m/h}`, false},
		{`\$5`, "5", true}, {`\$5`, `5\text{ dollars}`, true}, {`\$5`, `5\text{ cents}`, false}, {`-\$5`, "-5", true},
		{`\$5\text{ million}`, "5000000", true}, {`2\text{ thousand}`, "2000", true},
		{`50\%`, "50", true}, {`50\%`, "0.5", true}, {`50\%`, `\frac12`, true}, {`50\%`, `50\text{ percent}`, true},
		{`0.5\%`, "0.5", false}, {`0.5\%`, "0.005", true}, {`1\%`, "1", false}, {`50\%`, "5000", false},
		{`50\%`, `50^\circ`, false}, {`50\%`, `50\text{ cm}`, false}, {`50^\circ`, `50\text{ cm}`, false},
		{`50^\circ`, `\$50`, false},
		{`90^\circ`, "90", true}, {`90^{\circ}`, `\frac{\pi}{2}`, true}, {"90°", `90\text{ degrees}`, true},
		{`90^\circ`, `\pi`, false}, {`-90^\circ`, "-90", true}, {`22\frac12^\circ`, "22.5", true},
		{`22\frac12^\circ`, "11", false},
		{"x=2", "2", true}, {"x=2", "y=2", false}, {"x=2", "2=x", true}, {"x=2, y=3", "2, 3", true},
		{"x=2, y=3", "3, 2", false}, {"x=2, y=3", "y=3, x=2", true}, {"2+3=6", "6", false}, {"x=2=3", "3", false},
		{"x=2, 1", "1, 2", true}, {"x=2, 1", "x=1, x=2", true}, {"x=2, 1", "y=1, 2", false},
		{"x=2, 1", "x=2, y=1", false},
		{"x=2, 1", "2, -1", false}, {"(x,y)=(2,1)", "y=1, x=2", true}, {"(y,x)=(1,2)", "x=2, y=1", true},
		{"(x,y)=(2,1)", "x=1, y=2", false}, {"(x,y)=(2,1)", "2, 1", false}, {"x=2, y=1", "(2,1)", false},
		{"|AB|=1", "1", true}, {"|AB|=1", "-1", false}, {"|AB|=1", "|CD|=1", false}, {"|x|=3", "3", false},
		{"|z|=5", "5", true},
		{`\angle ABC = 60^\circ`, "60", true}, {`m\angle ABC = 60^\circ`, `60^\circ`, true},
		{`\angle ABC = 60`, "30", false},
		{`\angle ABC = 60`, `\angle ACB = 60`, false}, {`\frac{AB}{CD}=2`, "2", true},
		{`\frac{AB}{CD}=2`, `\frac{CD}{AB}=2`, false},
		{"[ABC]=6", "6", true}, {`\sin A=\frac35`, "0.6", true}, {`\tan\theta=2`, "2", true},
		{`\sin A=1`, `\cos A=1`, false},
		{`\sin x=\frac12`, `\frac12`, false}, {"f(x+1)=3", "3", true}, {"f(x+1)=3", "f(x)=3", false},
		{"f(x+1)=f(x)", "f(x)", false},
		{`P(X=2)=\frac14`, "0.25", true}, {`P(X=2)=\frac14`, `P(X=3)=\frac14`, false},
		{`P(A\cup B)=\frac14`, "0.25", true}, {`P(A\cup B)=\frac14`, `P(A\cap B)=\frac14`, false},
		{"x+2=5", "5", false}, {"2x=6", "6", false}, {"x^2=4", "4", false}, {"x+y=5", "5", false},
		{`\frac{y}{x}=2`, "2", false},
		{`S = {1, 2}`, `\{2,1\}`, true}, {`x \in {1, 2}`, "1, 2", true}, {"{1,234}", "1234", false},
		{"{1{,}234}", "1234", true},
		{`\{x : x > 2\}`, "y>2", true}, {`\{x : x > 2\}`, "x<2", false}, {"{x | x > 2}", `(2,\infty)`, true},
		{`\text{\$}5`, "5", true}, {`\text{\$}5`, `5\text{ cents}`, false}, {`5\text{ \$}`, `\$5`, true},
		{`\text{\$}5`, "-5", false},
		{`12\text{ pct}`, `12\%`, true}, {`12\text{ percentage}`, `12\text{ percent}`, true}, {"12 pct", "13%", false},
		{`12\text{ percentage points}`, `12\%`, false}, {`x \approx 2.83`, "2.83", true},
		{`x \approx 2.83`, "y=2.83", false},
		{`x=2\sqrt2\approx 2.83`, `2\sqrt2`, true}, {`x=2\sqrt2\approx 2.83`, `y=2\sqrt2`, false},
		{`x=2\sqrt2\approx 2.84`, `2\sqrt2`, false}, {`2\sqrt2\approx 2.84`, "2.84", false},
		{`2\sqrt2\approx 3`, "3", true},
		{`\frac{22}{7}\approx\pi`, `\pi`, false}, {`\sqrt2\approx 1.41`, "1.414", false},
		{"f(x)=x+1", "x+1", true}, {"f(0)=1", "f(x)=1", false}, {"f(0)=1", "1", true}, {"A=B", "B", false},
		{"A=B", `\text{(B)}`, false}, {"f(x)=c", `\text{(C)}`, false}, {"P(2)=0.5", `\frac12`, true},
		{"f(x)=x", "x", true}, {"f(x)=x+1", "g(x)=x+1", false}, {"x>5", `(5,\infty)`, true},
		{`(5,\infty)`, "y>5", true}, {"x>5", "y>5", false}, {`2\sqrt2\approx 2.83`, `2\sqrt{2}`, true},
		{`2\sqrt2\approx 2.93`, `2\sqrt{2}`, false},
		{`\frac23 \approx 0.67`, "0.67", true}, {"0.67", `\frac23`, false},
		{`\begin{pmatrix}1\\2\end{pmatrix}`, "(1,2)", true}, {`\begin{pmatrix}1\\2\end{pmatrix}`, "[1,2]", false},
		{`\begin{pmatrix}1&2\end{pmatrix}`, "(1,2)", false},
		{"(1,000, 2)", "(1000,2)", true}, {"(100,101)", "(100, 101)", true}, {"(100,101)", "100101", false},
		{"1011_2", "1011", false}, {"1011_2", "11", false}, {"24_{10}", "24", true}, {`\text{four}`, "4", true},
		{"4", `\text{five}`, false}, {"0.333...", "0.333", false}, {"(3)(1/2)", "1.5", true},
		{`3(\frac12)`, "1.5", true},
		{"", "", false}, {"$$", "$$", false}, {`\sum_{i} i`, `\sum_{i}i`, true}, {`\sum_{i} i`, `\sum_{i} j`, false},
		{"1/0", "1/0", true}, {"1/0", `\infty`, false},
	} {
		if got := equal(c.a, c.b); got != c.equal {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
		if got := equal(c.b, c.a); got != c.equal {
			t.Errorf("%q and %q: %v", c.b, c.a, got)
		}
	}
}

func TestNumbersBeyondTheBoundsAreNotComputed(t *testing.T) {
	for _, text := range []string{`(10^{300})^{130000}`, `10^{10^{10}}`, `1001!`, `2^{-200000}`, `\binom{5000}{2500}`,
		`(1000!)^{100}`, `(1/3)^{99999}`} {
		if v, ok := exact(Parse(text).meaning); ok {
			t.Errorf("%s is computed to %d bits", text, bits(v))
		}
	}
	for _, text := range []string{`10^{300}`, `1000!`, `2^{-10000}`, `1999^{1999}`} {
		if _, ok := exact(Parse(text).meaning); !ok {
			t.Errorf("%s is not computed", text)
		}
	}
}

func TestAmbiguousAnswersAreNotRead(t *testing.T) {
	for _, text := range []string{
		"", "1 2", "1.2.3", "0.(3)", "0.333...", "x2", "1/2x", `2\frac{4}{3}`, "2^3^2", "5!!", `\sqrt23`, `\sin(x)^2`,
		`\sin x/2`, "(1", "1)", `\frac{1}`, "x=(y=2)", "(1;2]3", `\begin{vmatrix}1\end{vmatrix}`, "+", "=",
		`\sum_{i=1}^n i`, `\int x\,dx`, `p \equiv 1 \pmod{4}`, `\{n : 1<n<4\}`,
		`\{n\in\mathbb{Z}: n>1\}`, `\{n\in\mathbb{N}: n<4\}`, `\{x : x\}`, `\{x \mid y>1\}`, `\{x\in\mathbb{Q}: x>1\}`,
		`\sum_{k=1}^{3} k+1`, `\sum_{k=1}^{\infty} k`, `\sum_{k=1}^{\infty} 2^k`, `\sum_{k=1}^{\infty} \frac{1}{k^2}`,
		`\sum_{k=1}^{3000} k`, `\sum_{k=1}^{3} \sqrt{k}`, `\sum_{k=3}^{1} k`, `\sum_{k=1}^{3} a_k`,
		`\begin{array}{c|c}1&2\end{array}`, "<", "__", `\frac`, `\text`, "[1,2,", "1,,2", `3\cdot`, `\unknown`, "@",
		"…",
	} {
		if err := Parse(text).Err(); err == nil {
			t.Errorf("%q is read as %+v", text, Parse(text).meaning)
		}
	}
}
