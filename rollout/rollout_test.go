package rollout

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestASpanSummarisesThePolicysTokens(t *testing.T) {
	// good() has versions 3, 3, 5, with mean 11/3.
	r := good()
	s := r.Span()
	if s != (Span{Least: 3, Greatest: 5, Sum: 11, Tokens: 3}) || r.Version() != 3 {
		t.Fatalf("got %+v, version %d", s, r.Version())
	}
	if s.MeanCeil() != 4 {
		t.Errorf("mean rounded up is %d", s.MeanCeil())
	}
	none := (&Rollout{Tokens: []int32{1}, Mask: []uint8{0}, Versions: []Version{-1}}).Span()
	if none.Least != NoVersion || none.Greatest != NoVersion || none.MeanCeil() != NoVersion {
		t.Errorf("without policy tokens: %+v", none)
	}
}

func TestMeanStalenessRoundsDownToWholeVersions(t *testing.T) {
	random := Stream(3, "span", 0)
	for range 1000 {
		s := Span{Tokens: 1 + random.IntN(5)}
		for range s.Tokens {
			s.Sum += int64(random.IntN(9))
		}
		v := Version(8 + random.IntN(5))
		if got, want := v-s.MeanCeil(), Version(math.Floor(float64(v)-float64(s.Sum)/float64(s.Tokens))); got != want {
			t.Fatalf("%+v at %d: %d, want %d", s, v, got, want)
		}
	}
}

func TestNewFillsInWhatThePromptLacks(t *testing.T) {
	prompt, answer := []int32{5, 6}, []int32{7, 8, 9}
	got := New("2+2", prompt, Completion{Tokens: answer, Logprobs: []float32{-0.5, 0, -2}, Version: 3, Reward: 1})
	want := &Rollout{
		PromptID: "2+2", Tokens: []int32{5, 6, 7, 8, 9}, Mask: []uint8{0, 0, 1, 1, 1},
		Logprobs: []float32{0, 0, -0.5, 0, -2},
		Versions: []Version{NoVersion, NoVersion, 3, 3, 3}, Temperature: 1, TopP: 1, Reward: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := got.Validate(Limits{}); err != nil {
		t.Error(err)
	}
	prompt[0], answer[0] = 99, 99
	if !reflect.DeepEqual(got, want) {
		t.Error("the rollout shares the caller's tokens")
	}
	if err := New("p", prompt,
		Completion{Tokens: answer, Logprobs: make([]float32, 2)}).Validate(Limits{}); err == nil {
		t.Error("a completion with too few log-probs was accepted")
	}
}

func TestBytesCountThePayload(t *testing.T) {
	// good(): prompt 3, text 4, mask 5, 2 turns of 13, scalars 13, tokens, logprobs, versions,
	// advantages, values and ref_logprobs 6 x 20, images 2, meta 5 + 4.
	if got, want := good().Bytes(), int64(3+4+5+26+13+120+2+9); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	r := good()
	r.Advantage = new(float32)
	if r.Bytes() != good().Bytes()+4 {
		t.Error("a given advantage is not counted")
	}
	// 5 ends and 4 ids of 4 bytes, 10 experts of 2.
	if got := fromEngine().Bytes() - good().Bytes(); got != 4*(5+4)+2*10 {
		t.Errorf("what engines add counts as %d bytes", got)
	}
}

func TestStreamsAreReproducibleAndIndependent(t *testing.T) {
	draw := func(seed uint64, purpose string, index uint64) uint64 { return Stream(seed, purpose, index).Uint64() }
	first := draw(1, "a", 2)
	if draw(1, "a", 2) != first {
		t.Error("the same stream gave other numbers")
	}
	for name, other := range map[string]uint64{"seed": draw(2, "a", 2), "purpose": draw(1, "b", 2),
		"index": draw(1, "a", 3)} {
		if other == first {
			t.Errorf("another %s gave the same numbers", name)
		}
	}
}

// conversation is two turns with tokens of the environment before, between and after.
func conversation() *Rollout {
	return &Rollout{
		PromptID: "p", Temperature: 0.7, TopP: 0.9, Reward: 5, Truncated: true, Text: "whole",
		Meta:     map[string]string{"k": "v"},
		Tokens:   []int32{10, 11, 12, 13, 14, 15, 16},
		Mask:     []uint8{0, 1, 1, 0, 0, 1, 0},
		Logprobs: []float32{0, -1, -2, 0, 0, -3, 0},
		Versions: []Version{NoVersion, 4, 5, NoVersion, NoVersion, 7, NoVersion},
		Turns:    []Turn{{Start: 1, End: 4, Reward: 1}, {Start: 5, End: 7, Reward: 2, Done: true}},
		Values:   []float32{0, 1, 2, 3, 4, 5, 6}, RefLogprobs: []float32{0, -1, -1, 0, 0, -1, 0},
	}
}

func TestStepsAreTheTurnsWithWhatCameBefore(t *testing.T) {
	whole := conversation()
	steps, err := whole.Steps()
	if err != nil {
		t.Fatal(err)
	}
	first, second := conversation(), conversation()
	first.Tokens, first.Mask = []int32{10, 11, 12, 13}, []uint8{0, 1, 1, 0}
	first.Logprobs, first.Versions = []float32{0, -1, -2, 0}, []Version{NoVersion, 4, 5, NoVersion}
	first.Values, first.RefLogprobs = []float32{0, 1, 2, 3}, []float32{0, -1, -1, 0}
	first.Reward, first.Text, first.Truncated, first.Turns = 1, "", false, []Turn{{Start: 1, End: 4, Reward: 1}}
	// What the policy produced before is masked out, and of no version.
	second.Mask = []uint8{0, 0, 0, 0, 0, 1, 0}
	second.Logprobs = []float32{0, 0, 0, 0, 0, -3, 0}
	second.Versions = []Version{NoVersion, NoVersion, NoVersion, NoVersion, NoVersion, 7, NoVersion}
	second.Reward, second.Text, second.Turns = 2, "", []Turn{{Start: 5, End: 7, Reward: 2, Done: true}}
	if want := []*Rollout{first, second}; !reflect.DeepEqual(steps, want) {
		t.Errorf("got %+v and %+v,\nwant %+v and %+v", *steps[0], *steps[1], *want[0], *want[1])
	}
	if !reflect.DeepEqual(whole, conversation()) {
		t.Errorf("the rollout became %+v", whole)
	}
	for i, step := range steps {
		if err := step.Validate(Limits{}); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if &step.Tokens[0] != &whole.Tokens[0] || &step.Values[0] != &whole.Values[0] {
			t.Errorf("step %d does not share the tokens", i)
		}
		if v := step.Version(); v != []Version{4, 7}[i] {
			t.Errorf("step %d is of version %d", i, v)
		}
	}
	// To append to a step does not write into the whole.
	_ = append(steps[0].Tokens, 99)
	_ = append(steps[0].Values, 99)
	if whole.Tokens[4] != 14 || whole.Values[4] != 4 {
		t.Errorf("the rollout became %+v", whole)
	}
}

func TestARolloutWithoutTurnsIsOneStep(t *testing.T) {
	r := conversation()
	r.Turns = nil
	if steps, err := r.Steps(); err != nil || len(steps) != 1 || steps[0] != r {
		t.Errorf("got %v, %v", steps, err)
	}
}

func TestOptionalFieldsStayAbsentInSteps(t *testing.T) {
	r := conversation()
	r.Values, r.RefLogprobs, r.Advantages = nil, nil, []float32{1, 2, 3, 4, 5, 6, 7}
	steps, err := r.Steps()
	if err != nil || steps[0].Values != nil || steps[0].RefLogprobs != nil || len(steps[0].Advantages) != 4 ||
		len(steps[1].Advantages) != 7 {
		t.Errorf("got %+v, %v", steps, err)
	}
}

func TestStepsHaveTheSamplingMaskAndTheExpertsOfTheirTokens(t *testing.T) {
	r := conversation()
	r.RoutedExperts = []uint16{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61}
	for _, ids := range [][]int32{nil, {9, 11}, {12}, nil, nil, {15, 16, 17}, nil} {
		r.SamplingMask.Append(ids...)
	}
	steps, fault := r.Steps()
	if fault != nil {
		t.Fatal(fault)
	}
	for i, want := range []IDLists{
		{Ends: []int32{0, 2, 3, 3}, IDs: []int32{9, 11, 12}},
		{Ends: []int32{0, 0, 0, 0, 0, 3, 3}, IDs: []int32{15, 16, 17}},
	} {
		step, n := steps[i], 2*len(steps[i].Tokens)
		if err := step.Validate(Limits{}); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if !reflect.DeepEqual(step.SamplingMask, want) || cap(step.SamplingMask.IDs) != len(want.IDs) {
			t.Errorf("step %d has %+v, want %+v", i, step.SamplingMask, want)
		}
		if !reflect.DeepEqual(step.RoutedExperts, r.RoutedExperts[:n]) || cap(step.RoutedExperts) != n {
			t.Errorf("step %d has experts %v", i, step.RoutedExperts)
		}
	}
	if list := r.SamplingMask.At(5); r.SamplingMask.Len() != 7 || !reflect.DeepEqual(list, []int32{15, 16, 17}) ||
		len(r.SamplingMask.At(0)) != 0 {
		t.Errorf("the rollout became %+v", r.SamplingMask)
	}
}

func TestListsExtendWithEmptyOnesForTokensThatHaveNone(t *testing.T) {
	var l IDLists
	if l.Extend(2, IDLists{}, 3); !reflect.DeepEqual(l, IDLists{}) {
		t.Errorf("nothing after nothing is %+v", l)
	}
	var more IDLists
	more.Append(7, 9)
	l.Extend(2, more, 2)
	if want := (IDLists{Ends: []int32{0, 0, 2, 2}, IDs: []int32{7, 9}}); !reflect.DeepEqual(l, want) {
		t.Errorf("2 tokens without lists, one with and one without: %+v, want %+v", l, want)
	}
	if l.Extend(4, IDLists{}, 1); l.Len() != 5 || len(l.At(4)) != 0 || len(l.At(2)) != 2 {
		t.Errorf("a token without a list is the fifth: %+v", l)
	}
}

func TestTokensOutsideTurnsAndTurnsWithoutTokensMakeNoSteps(t *testing.T) {
	for want, turns := range map[string][]Turn{
		"none around token 1 of the policy":       {{Start: 2, End: 4}, {Start: 5, End: 7}},
		"none around token 5 of the policy":       {{Start: 1, End: 4}},
		"none around token 2 of the policy":       {{Start: 1, End: 2}, {Start: 4, End: 7}},
		"turn 1 without a token of the policy":    {{Start: 1, End: 3}, {Start: 3, End: 4}, {Start: 5, End: 7}},
		"turn 0 without a token of the policy: l": {{Start: 0, End: 1}, {Start: 1, End: 7}},
	} {
		r := conversation()
		r.Turns = turns
		steps, err := r.Steps()
		if err == nil || steps != nil || err.Field != "turns" || !strings.Contains(err.Error(), want) ||
			!errors.Is(err, ErrInvalid) {
			t.Errorf("%v: got %v, %v, want %s", turns, steps, err, want)
		}
	}
}

func TestReturnsAddUpTheRewardsThatFollow(t *testing.T) {
	r := &Rollout{Reward: 7, Turns: []Turn{{Reward: 1}, {Reward: -2}, {Reward: 4}}}
	for _, c := range []struct {
		n        int
		discount float64
		want     []float32
	}{
		{1, 1, []float32{1, -2, 4}},
		{2, 1, []float32{-1, 2, 4}},
		{3, 1, []float32{3, 2, 4}},
		{8, 1, []float32{3, 2, 4}},
		{-1, 1, []float32{3, 2, 4}},
		{2, 0.5, []float32{0, 0, 4}},       // 1 - 1, -2 + 2
		{-1, 0.5, []float32{1, 0, 4}},      // 1 - 1 + 1
		{-1, 0.25, []float32{0.75, -1, 4}}, // 1 - 1/2 + 1/4
	} {
		if got := r.Returns(c.n, c.discount); !reflect.DeepEqual(got, c.want) {
			t.Errorf("returns over %d turns discounted by %v are %v, want %v", c.n, c.discount, got, c.want)
		}
	}
	if got := (&Rollout{Reward: 7}).Returns(3, 0.5); !reflect.DeepEqual(got, []float32{7}) {
		t.Errorf("the return of a rollout without turns is %v", got)
	}
}
