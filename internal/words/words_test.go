package words_test

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/words"
)

func TestPlural(t *testing.T) {
	for got, want := range map[string]string{
		words.Plural(1, "table"):            "1 table",
		words.Plural(0, "table"):            "0 tables",
		words.Plural(2, "entry", "entries"): "2 entries",
		words.Plural(uint64(1), "rollout"):  "1 rollout",
		words.Plural(int64(30), "rollout"):  "30 rollouts",
		words.Percent(0.25, 0):              "25%",
		words.Percent(-0.0125, 1):           "-1.2%",
		words.Percent(math.NaN(), 0):        "–",
		words.Percent(math.Inf(1), 0):       "∞",
		words.Percent(math.Inf(-1), 0):      "−∞",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParagraphsWrapBetweenWords(t *testing.T) {
	text := strings.Repeat("staleness and noise ", 30) + strings.Repeat("x", 150)
	wrapped := words.Wrap("  - ", text)
	lines := strings.Split(strings.TrimSuffix(wrapped, "\n"), "\n")
	for i, line := range lines {
		if mark := map[bool]string{true: "  - ", false: "    "}[i == 0]; !strings.HasPrefix(line, mark) ||
			len(line) > 110 && i < len(lines)-1 || strings.HasSuffix(line, " ") {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if got := strings.Join(strings.Fields(strings.TrimPrefix(wrapped, "  - ")), " "); got != text {
		t.Errorf("the words are %q, want %q", got, text)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100",
		1234567: "1,234,567"} {
		if got := words.Thousands(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}
