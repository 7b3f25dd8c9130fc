package objective

import (
	"slices"
	"testing"
)

func TestMethodsAreFoundByName(t *testing.T) {
	want := []string{"grpo", "grpo_off", "asymre", "ppo", "reinforce++", "reinforce++-baseline", "rloo", "dr_grpo"}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	for name, advantage := range map[string]string{"grpo": "group", "grpo_off": "group", "asymre": "group", "ppo": "gae", "reinforce++": "batch",
		"reinforce++-baseline": "group_batch", "rloo": "leave_one_out", "dr_grpo": "no_std"} {
		m, ok := FindMethod(name)
		if !ok || m.Name != name || m.Advantages[0] != advantage || m.Critic != (name == "ppo") {
			t.Errorf("%s is %+v, %v", name, m, ok)
		}
	}
	if m, ok := FindMethod("sft"); ok {
		t.Errorf("sft, which has no rewards, is %+v", m)
	}
}

func TestOnlyWhatIsReadIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		o    Objective
		want Needs
	}{
		{GRPO{}, Needs{}}, {SFT{}, Needs{}}, {AsymRE{}, Needs{}}, {Variant{Method: RLOO}, Needs{}}, {OffPolicyGRPO{}, Needs{}},
		{OffPolicyGRPO{KLCoef: 0.1}, Needs{Reference: true}}, {OffPolicyGRPO{RPrime: RPrimeExact}, Needs{Anchor: true}},
		{PPO{}, Needs{Critic: true}},
	} {
		if got := tc.o.Needs(); got != tc.want {
			t.Errorf("%+v needs %+v, want %+v", tc.o, got, tc.want)
		}
	}
}
