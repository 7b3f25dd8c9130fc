package words_test

import (
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/words"
)

func TestPlural(t *testing.T) {
	for got, want := range map[string]string{
		words.Plural(1, "table"):             "1 table",
		words.Plural(0, "table"):             "0 tables",
		words.Plural(2, "entry", "entries"):  "2 entries",
		words.Plural(uint64(1), "rollout"):   "1 rollout",
		words.Plural(int64(30), "rollout"):   "30 rollouts",
		words.Percent(0.25, 0):               "25%",
		words.Percent(-0.0125, 1):            "-1.2%",
		words.Percent(math.NaN(), 0):         "–",
		words.Percent(math.Inf(1), 0):        "∞",
		words.Percent(math.Inf(-1), 0):       "−∞",
		words.Minus(words.Percent(-1e-4, 1)): "0.0%",
		words.Plural(2000, "rollout"):        "2,000 rollouts",
		words.Whole(1234567.4):               "1,234,567",
		words.Whole(math.Inf(1)):             "–",
		words.Fixed(-0.0004, 3):              "0.000",
		words.Signed(0.25, 3):                "+0.250",
		words.Signed(-0.25, 3):               "−0.250",
		words.Signed(0, 3):                   "0",
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
			len(line) > words.Columns && i < len(lines)-1 || strings.HasSuffix(line, " ") {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if got := strings.Join(strings.Fields(strings.TrimPrefix(wrapped, "  - ")), " "); got != text {
		t.Errorf("the words are %q, want %q", got, text)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "−1,000", -100: "−100",
		1234567: "1,234,567"} {
		if got := words.Thousands(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

func TestAmountsHaveThreeDigits(t *testing.T) {
	for _, c := range []struct {
		v, step float64
		want    string
	}{
		{0, 0.1, "0"}, {0.3, 0.1, "0.3"}, {0.30000000000000004, 0.05, "0.30"}, {1500, 500, "1500"}, {5120, 0, "5120"},
		{20000, 10000, "20k"}, {12500, 500, "12.5k"}, {1_500_000, 500_000, "1.5M"}, {2e9, 1e9, "2G"},
		{1e-5, 1e-5, "1e-05"},
		{276521, 0, "277k"}, {0.6372, 0, "0.637"}, {1.76, 0, "1.76"}, {-0.25, 0.05, "−0.25"}, {-2e-5, 0, "−2e-05"},
		{3e13, 0, "3e+13"}, {0.65, 0, "0.65"}, {999_999, 0, "1M"}, {9.996, 0, "10"}, {math.Inf(1), 0, "∞"},
	} {
		if got := words.Tick(c.v, c.step); got != c.want {
			t.Errorf("Tick(%v, %v) = %q, want %q", c.v, c.step, got, c.want)
		}
	}
}

func TestBytesHaveDecimalUnits(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 999: "999 B", 1000: "1 kB", 32_180: "32.2 kB", 999_999: "1 MB", 1.236e9: "1.24 GB", 2e12: "2 TB",
	} {
		if got := words.Bytes(n); got != want {
			t.Errorf("Bytes(%g) = %q, want %q", n, got, want)
		}
	}
}

func TestOneTypoApart(t *testing.T) {
	for typo, want := range map[string]bool{
		"capacity": true, "capcity": true, "capacityy": true, "cabacity": true, "cpaacity": true, "capacit": true,
		"acapacity": true,
		"capct":     false, "": false, "cabacityy": false, "ytcapaci": false,
	} {
		if got := words.OneTypoApart(typo, "capacity"); got != want || got != words.OneTypoApart("capacity", typo) {
			t.Errorf("OneTypoApart(%q, capacity) = %v, want %v", typo, got, want)
		}
	}
}
