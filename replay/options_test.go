package replay

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/option"
)

func TestTheZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	o := mustNew(t, Options{}).Options()
	if o.Capacity != 4096 || o.Retention != KeepNewest || o.Sampler != Distinct || o.Shards != 1 ||
		o.Advantage != advantage.Group || *o.PositiveThreshold != 1 || o.LeaseSeconds != 60 || o.Clock == nil {
		t.Errorf("got %+v", o)
	}
}

func TestEveryProblemOfTheOptionsIsToldAtOnce(t *testing.T) {
	o := Options{
		Capacity: -1, CapacityBytes: -2, Retention: "lru", PositiveFraction: 1, PositiveThreshold: new(float32(math.NaN())),
		Sampler: "random", MaxStaleness: -3, MaxUses: -4, MinSize: -5, Shards: -6, Advantage: "best",
		Vocab: -7, MaxTokens: -8, LeaseSeconds: -1,
	}
	_, err := New(o)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"capacity: -1: want 1 to", "capacity_bytes: -2: want 0 (no limit) or at least 1",
		"retention: lru: want fifo or positive", "positive_fraction: 1: want at least 0 and below 1",
		"positive_threshold: NaN", "sampler: random: want one of [lifo fifo uniform distinct epoch unseen least_used prioritized]",
		"max_staleness: -3", "max_uses: -4", "min_size: -5", "shards: -6: want 1 to 65536",
		"advantage: best: want [group no_std leave_one_out batch group_batch gae]", "vocab: -7", "max_tokens: -8", "lease_seconds: -1",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from\n%v", want, err)
		}
	}
	var one *option.Error
	if !errors.As(err, &one) || one.Key != "shards" {
		t.Errorf("the first problem is %v", one)
	}
}

func TestOptionsThatDoNotFitOneAnotherAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"capacity: 10: want a multiple of the 4 shards, one for each trainer": {Capacity: 10, Shards: 4},
		"retention: positive: want fifo with sampler fifo":                    {Retention: KeepPositive, Sampler: FIFO},
		"positive_fraction: 0.5: want 0 with retention fifo":                  {PositiveFraction: 0.5},
		"positive_fraction: 0.9: want room for at least one":                  {Capacity: 4, Retention: KeepPositive, PositiveFraction: 0.9},
		"max_uses: 2: want 0 or 1 with sampler lifo":                          {MaxUses: 2, Sampler: LIFO},
		"min_size: 9: want 0 to 8, the capacity of a shard":                   {Capacity: 16, Shards: 2, MinSize: 9},
		"capacity_bytes: 1: want 0 (no limit) or at least 1 per s":            {CapacityBytes: 1, Shards: 2},
	} {
		if _, err := New(o); err == nil || err.Error() != strings.Split(err.Error(), "\n")[0] || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want only %s", err, want)
		}
	}
}

func TestVersionsAreANumberOrInf(t *testing.T) {
	for text, want := range map[string]Versions{`"inf"`: Versions(math.Inf(1)), `12`: 12, `0.5`: 0.5} {
		var v Versions
		if err := json.Unmarshal([]byte(text), &v); err != nil || v != want {
			t.Errorf("%s is %v, %v", text, v, err)
		}
		if b, err := json.Marshal(v); err != nil || string(b) != text {
			t.Errorf("%v is written as %s, %v", v, b, err)
		}
	}
	for _, text := range []string{`"much"`, `"auto"`, `NaN`, `-inf`, `1e999`, ``} {
		var v Versions
		if err := v.UnmarshalYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), "give a number, or inf") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
