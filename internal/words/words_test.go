package words_test

import (
	"math"
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
