package cluster

import (
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// A copy lacks messages if there are fewer than from where the log begins to its last. What is not trimmed yet, and what
// has not come yet, is not missing.
func TestACopyLacksMessages(t *testing.T) {
	p := placement{First: 100}
	for what, each := range map[string]struct {
		first, last, there uint64
		lacks              bool
	}{
		"whole":                            {100, 200, 101, false},
		"not trimmed yet":                  {50, 200, 151, false},
		"behind, and not trimmed yet":      {50, 80, 31, false},
		"nothing has come":                 {0, 0, 0, false},
		"all is trimmed, and none is left": {100, 99, 0, false},
		"without its front":                {101, 200, 100, true},
		"without one in the middle":        {100, 200, 100, true},
		"nothing is left":                  {201, 200, 0, true},
	} {
		c := server.StreamState{FirstSeq: each.first, LastSeq: each.last, Msgs: each.there}
		if p.lacks(c) != each.lacks {
			t.Errorf("%s: lacks messages: %v", what, !each.lacks)
		}
	}
}

// A copy that lacks messages at one look is not called damaged yet.
func TestACopyLacksMessagesTwice(t *testing.T) {
	p := placement{Log: "log", First: 1}
	copies := func(messages uint64) map[string]server.StreamDetail {
		return map[string]server.StreamDetail{"log": {State: server.StreamState{LastSeq: 10, Msgs: messages}}}
	}
	for _, l := range []look{{}, {now: copies(9)}, {now: copies(9), before: copies(10)}, {now: copies(10), before: copies(9)}} {
		if l.lacks(p) {
			t.Errorf("%+v lacks messages", l)
		}
	}
	if l := (look{now: copies(8), before: copies(9)}); !l.lacks(p) {
		t.Errorf("%+v lacks nothing", l)
	}
}

// Copies of several nodes may be damaged. Documents that others read are not changed in place.
func TestSeveralCopiesMayBeDamaged(t *testing.T) {
	var p placement
	if !p.setDamaged("a", true) || p.setDamaged("a", true) || !p.setDamaged("b", true) {
		t.Error("what is news is not told")
	}
	read := p
	if !p.setDamaged("a", false) || p.setDamaged("a", false) || !slices.Equal(p.Damaged, []string{"b"}) {
		t.Errorf("damaged: %q", p.Damaged)
	}
	if !slices.Equal(read.Damaged, []string{"a", "b"}) {
		t.Errorf("a reader sees %q", read.Damaged)
	}
	if avoided := read.avoided(3); !slices.Equal(avoided, read.Damaged) {
		t.Errorf("of three copies two are damaged, and those of %q are not read", avoided)
	}
	if avoided := read.avoided(2); len(avoided) > 0 {
		t.Errorf("both copies are damaged, and those of %q are not read", avoided)
	}
}
