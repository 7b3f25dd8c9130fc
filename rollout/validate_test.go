package rollout

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// good returns a rollout that nothing is wrong with: two prompt tokens and three of the policy.
func good() *Rollout {
	return &Rollout{
		PromptID: "2+2", Tokens: []int32{5, 6, 7, 8, 9}, Mask: []uint8{0, 0, 1, 1, 1},
		Logprobs: []float32{0, 0, -0.5, 0, -2}, Versions: []Version{-1, -1, 3, 3, 5},
		Temperature: 1, TopP: 1, Reward: 1,
		Turns:      []Turn{{Start: 0, End: 3, Reward: 0.5}, {Start: 3, End: 5, Done: true}},
		Advantages: []float32{0, 0, 1, 1, 1}, Values: []float32{0, 0, 0.1, 0.2, 0.3},
		RefLogprobs: []float32{0, 0, -0.4, -0.1, -3},
		Images:      [][]byte{{1, 2}}, Text: "four", Meta: map[string]string{"model": "tiny"},
	}
}

// fromEngine returns a good rollout with a sampling mask and two experts a token. Its last token was drawn from the
// whole vocabulary.
func fromEngine() *Rollout {
	r := good()
	r.RoutedExperts = []uint16{0, 1, 2, 3, 4, 5, 6, 7, 8, math.MaxUint16}
	for _, ids := range [][]int32{nil, nil, {0, 7, 9}, {8}, nil} {
		r.SamplingMask.Append(ids...)
	}
	return r
}

func TestAGoodRolloutIsAccepted(t *testing.T) {
	for _, r := range []*Rollout{good(), fromEngine()} {
		if err := r.Validate(Limits{Vocab: 10, MaxTokens: 5, MaxBytes: r.Bytes()}); err != nil {
			t.Error(err)
		}
	}
}

// Invariant 9: bad input is refused with an error that names field, value and remedy.
func TestABadRolloutIsRefusedByName(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	limits := Limits{Vocab: 10, MaxTokens: 5, MaxBytes: fromEngine().Bytes() + 4}
	cases := map[string]struct {
		spoil        func(*Rollout)
		field, value string
	}{
		"no tokens":        {func(r *Rollout) { r.Tokens = nil }, "tokens", "empty"},
		"too many tokens":  {func(r *Rollout) { r.Tokens = make([]int32, 6) }, "tokens", "6"},
		"too many bytes":   {func(r *Rollout) { r.Text = "four or five" }, "rollout", "bytes"},
		"mask short":       {func(r *Rollout) { r.Mask = r.Mask[:4] }, "length of mask", "4"},
		"logprobs long":    {func(r *Rollout) { r.Logprobs = make([]float32, 6) }, "length of logprobs", "6"},
		"versions missing": {func(r *Rollout) { r.Versions = nil }, "length of versions", "0"},
		"advantages short": {func(r *Rollout) { r.Advantages = r.Advantages[:1] }, "length of advantages", "1"},
		"values short":     {func(r *Rollout) { r.Values = r.Values[:2] }, "length of values", "2"},
		"ref_logprobs short": {func(r *Rollout) { r.RefLogprobs = r.RefLogprobs[:3] },
			"length of ref_logprobs", "3"},
		"negative token":          {func(r *Rollout) { r.Tokens[1] = -4 }, "tokens[1]", "-4"},
		"token beyond vocabulary": {func(r *Rollout) { r.Tokens[4] = 10 }, "tokens[4]", "10"},
		"mask of two":             {func(r *Rollout) { r.Mask[0] = 2 }, "mask[0]", "2"},
		"no policy token": {func(r *Rollout) {
			r.Mask, r.Logprobs, r.Versions = make([]uint8, 5), make([]float32, 5), []Version{-1, -1, -1, -1, -1}
		}, "mask", "all 0"},
		"log-prob above 0":         {func(r *Rollout) { r.Logprobs[2] = 0.25 }, "logprobs[2]", "0.25"},
		"log-prob NaN":             {func(r *Rollout) { r.Logprobs[3] = nan }, "logprobs[3]", "NaN"},
		"log-prob -Inf":            {func(r *Rollout) { r.Logprobs[4] = -inf }, "logprobs[4]", "-Inf"},
		"log-prob on a prompt":     {func(r *Rollout) { r.Logprobs[1] = -1 }, "logprobs[1]", "-1"},
		"log-prob NaN on a prompt": {func(r *Rollout) { r.Logprobs[0] = nan }, "logprobs[0]", "NaN"},
		"version on a prompt":      {func(r *Rollout) { r.Versions[0] = 0 }, "versions[0]", "0"},
		"no version":               {func(r *Rollout) { r.Versions[3] = -1 }, "versions[3]", "-1"},
		"temperature 0":            {func(r *Rollout) { r.Temperature = 0 }, "temperature", "0"},
		"temperature Inf":          {func(r *Rollout) { r.Temperature = inf }, "temperature", "+Inf"},
		"top_p 0":                  {func(r *Rollout) { r.TopP = 0 }, "top_p", "0"},
		"top_p above 1":            {func(r *Rollout) { r.TopP = 1.5 }, "top_p", "1.5"},
		"top_p NaN":                {func(r *Rollout) { r.TopP = nan }, "top_p", "NaN"},
		"reward NaN":               {func(r *Rollout) { r.Reward = nan }, "reward", "NaN"},
		"advantage Inf":            {func(r *Rollout) { r.Advantage = &inf }, "advantage", "+Inf"},
		"advantages NaN":           {func(r *Rollout) { r.Advantages[2] = nan }, "advantages[2]", "NaN"},
		"values Inf":               {func(r *Rollout) { r.Values[1] = inf }, "values[1]", "+Inf"},
		"ref_logprobs above 0":     {func(r *Rollout) { r.RefLogprobs[2] = 1 }, "ref_logprobs[2]", "1"},
		"ref_logprobs NaN":         {func(r *Rollout) { r.RefLogprobs[2] = nan }, "ref_logprobs[2]", "NaN"},
		"turn beyond the end":      {func(r *Rollout) { r.Turns[1].End = 6 }, "turns[1]", "[3, 6)"},
		"turn before the start":    {func(r *Rollout) { r.Turns[0].Start = -1 }, "turns[0]", "[-1, 3)"},
		"turns overlap":            {func(r *Rollout) { r.Turns[1].Start = 2 }, "turns[1]", "[2, 5)"},
		"turn empty":               {func(r *Rollout) { r.Turns[1].Start = 5 }, "turns[1]", "[5, 5)"},
		"turn reward NaN":          {func(r *Rollout) { r.Turns[0].Reward = nan }, "turns[0].reward", "NaN"},
		"sampling_mask short": {func(r *Rollout) { r.SamplingMask.Ends = r.SamplingMask.Ends[:4] },
			"length of sampling_mask", "4"},
		"sampling_mask without ends": {func(r *Rollout) { r.SamplingMask.Ends = nil }, "length of sampling_mask", "0"},
		"sampling_mask falls": {func(r *Rollout) { r.SamplingMask.Ends[3] = 2 },
			"ends of sampling_mask[3]", "2"},
		"sampling_mask below 0": {func(r *Rollout) { r.SamplingMask.Ends[0] = -1 },
			"ends of sampling_mask[0]", "-1"},
		"sampling_mask beyond": {func(r *Rollout) { r.SamplingMask.Ends[2] = 5 },
			"ends of sampling_mask[2]", "5"},
		"sampling_mask not all ids": {func(r *Rollout) { r.SamplingMask.Ends[3], r.SamplingMask.Ends[4] = 3, 3 },
			"ends of sampling_mask[4]", "3"},
		"sampling_mask on a prompt":  {func(r *Rollout) { r.SamplingMask.Ends[1] = 2 }, "sampling_mask[1]", "2 ids"},
		"sampling_mask negative":     {func(r *Rollout) { r.SamplingMask.IDs[0] = -2 }, "sampling_mask[2][0]", "-2"},
		"sampling_mask repeats":      {func(r *Rollout) { r.SamplingMask.IDs[0] = 7 }, "sampling_mask[2][1]", "7"},
		"sampling_mask beyond vocab": {func(r *Rollout) { r.SamplingMask.IDs[2] = 10 }, "sampling_mask[2][2]", "10"},
		"sampling_mask without token": {func(r *Rollout) { r.SamplingMask.IDs[3] = 9 },
			"sampling_mask[3]", "1 ids without token 8"},
		"routed_experts uneven": {func(r *Rollout) { r.RoutedExperts = r.RoutedExperts[:9] },
			"length of routed_experts", "9"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := fromEngine()
			c.spoil(r)
			err := r.Validate(limits)
			var field *FieldError
			if !errors.As(err, &field) || !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %v", err)
			}
			if field.Field != c.field || !strings.Contains(field.Value, c.value) || field.Remedy == "" {
				t.Errorf("got %v, want field %s with value %s", err, c.field, c.value)
			}
		})
	}
}

func TestLogprobsThatNobodyKnowsAreAllowedWhereTheLimitsSaySo(t *testing.T) {
	nan, l := float32(math.NaN()), Limits{UnknownLogprobs: true}
	r := good()
	known := r.LogprobsKnown()
	r.Logprobs[3] = nan
	if err := r.Validate(l); err != nil || !known || r.LogprobsKnown() {
		t.Errorf("%v; known before: %t, after: %t", err, known, r.LogprobsKnown())
	}
	if err := r.Validate(Limits{}); err == nil || !strings.Contains(err.Error(), "set the table's unknown_logprobs") {
		t.Errorf("the refusal does not name the option: %v", err)
	}
	plain, err := r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range [][]byte{plain, r.AppendCompact(nil)} {
		var back Rollout
		if err := back.UnmarshalBinary(form); err != nil || back.Logprobs[3] == back.Logprobs[3] ||
			back.Logprobs[2] != r.Logprobs[2] {
			t.Errorf("read back as %v, %v", back.Logprobs, err)
		}
	}
	for at, p := range map[int]float32{0: nan, 2: 0.5, 4: float32(math.Inf(-1))} {
		bad := good()
		bad.Logprobs[at] = p
		if err := bad.Validate(l); err == nil {
			t.Errorf("log-prob %v of token %d was accepted", p, at)
		}
	}
}

func TestUnboundedLimitsBoundNothing(t *testing.T) {
	r := good()
	r.Tokens[0] = math.MaxInt32
	if err := r.Validate(Limits{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(Limits{Vocab: math.MaxInt32}); err == nil {
		t.Error("the token of the vocabulary's size was accepted")
	}
}

// Invariant 8: partial groups never enter.
func TestAGroupIsWholeAndOfOnePrompt(t *testing.T) {
	other := good()
	other.PromptID = "3+3"
	bad := good()
	bad.Logprobs[2] = 1
	cases := map[string]struct {
		group Group
		want  string // "": accepted
	}{
		"undeclared": {Group{Rollouts: []*Rollout{good(), good()}}, ""},
		"declared":   {Group{Rollouts: []*Rollout{good(), good()}, Size: 2}, ""},
		"partial":    {Group{Rollouts: []*Rollout{good(), good()}, Size: 3}, "row 0: group_size is 3"},
		"overfull":   {Group{Rollouts: []*Rollout{good(), good()}, Size: 1}, "row 0: group_size is 1"},
		"negative":   {Group{Rollouts: []*Rollout{good()}, Size: -1}, "row 0: group_size is -1"},
		"empty":      {Group{}, "row 0: group is empty"},
		"nil":        {Group{Rollouts: []*Rollout{good(), nil}}, "row 1: rollout is nil"},
		"nil first":  {Group{Rollouts: []*Rollout{nil, good()}}, "row 0: rollout is nil"},
		"prompts":    {Group{Rollouts: []*Rollout{good(), good(), other}}, `row 2: prompt_id is "3+3"`},
		"bad row":    {Group{Rollouts: []*Rollout{good(), bad}}, "row 1: logprobs[2] is 1:"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := c.group.Validate(Limits{})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestValidationOfAGoodRolloutAllocatesNothing(t *testing.T) {
	g := Group{Rollouts: []*Rollout{good(), fromEngine()}, Size: 2}
	if n := testing.AllocsPerRun(100, func() {
		if g.Validate(Limits{Vocab: 10}) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzValidate looks for a rollout that is accepted though a learner could not use it, or that makes
// validation or what follows it panic. The plain check is written against the definition.
func FuzzValidate(f *testing.F) {
	for _, r := range []*Rollout{good(), fromEngine(), {}, {Tokens: []int32{1}, Mask: []uint8{1}}} {
		b, err := r.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 10)
	}
	f.Fuzz(func(t *testing.T, b []byte, vocab int) {
		var r Rollout
		if r.UnmarshalBinary(b) != nil {
			return
		}
		if err := r.Validate(Limits{Vocab: vocab}); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v is not ErrInvalid", err)
			}
			return
		}
		policy := 0
		for i, token := range r.Tokens {
			p := float64(r.Logprobs[i])
			if token < 0 || (vocab > 0 && int(token) >= vocab) || math.IsNaN(p) || math.IsInf(p, 0) || p > 0 {
				t.Fatalf("token %d: %d with log-prob %v was accepted", i, token, p)
			}
			policy += int(r.Mask[i])
			if r.SamplingMask.Len() > 0 {
				list := r.SamplingMask.At(i)
				if len(list) > 0 && (r.Mask[i] == 0 || !slices.Contains(list, token)) || !slices.IsSorted(list) {
					t.Fatalf("token %d: sampling mask %v was accepted", i, list)
				}
			}
		}
		if span := r.Span(); policy == 0 || span.Tokens != policy || span.Least < 0 || span.Least > span.Greatest {
			t.Fatalf("span %+v of %d policy tokens", span, policy)
		}
	})
}
