package replay

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/advantage"
)

func TestTheZeroOptionsAreTheDocumentedDefaults(t *testing.T) {
	o := mustNew(t, Options{}).Options()
	if o.Capacity != 4096 || o.Retention != KeepNewest || o.Sampler != Distinct || o.Shards != 1 ||
		o.Advantage != advantage.Group || o.PositiveThreshold != 1 || o.LeaseTimeout != time.Minute || o.Clock == nil {
		t.Errorf("got %+v", o)
	}
}

func TestEveryProblemOfTheOptionsIsToldAtOnce(t *testing.T) {
	o := Options{
		Capacity: -1, CapacityBytes: -2, Retention: "lru", PositiveFraction: 1, PositiveThreshold: float32(math.NaN()),
		Sampler: "random", MaxStaleness: -3, MaxUses: -4, MinSize: -5, Shards: -6, Advantage: "best",
		Vocab: -7, MaxTokens: -8, LeaseTimeout: -time.Second,
	}
	_, err := New(o)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"capacity is -1: allowed is 1 to", "capacity_bytes is -2: allowed is 0 (not bounded) or at least 1",
		"retention is lru: allowed is fifo or positive", "positive_fraction is 1: allowed is at least 0 and below 1",
		"positive_threshold is NaN", "sampler is random: allowed is one of [lifo fifo uniform distinct epoch unseen least_used prioritized]",
		"max_staleness is -3", "max_uses is -4", "min_size is -5", "shards is -6: allowed is 1 to 65536",
		"advantage is best: allowed is [group no_std leave_one_out batch group_batch gae]", "vocab is -7", "max_tokens is -8", "lease_timeout is -1s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from\n%v", want, err)
		}
	}
	var one *OptionError
	if !errors.As(err, &one) || one.Key != "shards" {
		t.Errorf("the first problem is %v", one)
	}
}

func TestOptionsThatDoNotFitOneAnotherAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"capacity is 10: allowed is a multiple of the 4 shards, one for each trainer": {Capacity: 10, Shards: 4},
		"retention is positive: allowed is fifo with sampler fifo":                    {Retention: KeepPositive, Sampler: FIFO},
		"positive_fraction is 0.5: allowed is 0 with retention fifo":                  {PositiveFraction: 0.5},
		"positive_fraction is 0.9: allowed is what leaves room":                       {Capacity: 4, Retention: KeepPositive, PositiveFraction: 0.9},
		"max_uses is 2: allowed is 0 or 1 with sampler lifo":                          {MaxUses: 2, Sampler: LIFO},
		"min_size is 9: allowed is 0 to 8, the capacity of a shard":                   {Capacity: 16, Shards: 2, MinSize: 9},
		"capacity_bytes is 1: allowed is 0 (not bounded) or at least 1 per s":         {CapacityBytes: 1, Shards: 2},
	} {
		if _, err := New(o); err == nil || err.Error() != strings.Split(err.Error(), "\n")[0] || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want only %s", err, want)
		}
	}
}
