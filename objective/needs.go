package objective

// Needs is what an objective reads beside what every step has: what a learner computes for it in further forward passes,
// and only then.
type Needs struct {
	Reference bool // Inputs.Reference: log-probs under a reference policy
	Anchor    bool // Inputs.Anchor: log-probs under the policy at the start of the batch
	Critic    bool // Inputs.Values, OldValues and Returns: a model with a value head, and advantages that it estimates
}

// Method is what a configuration has to know of an objective that learns from rewards.
type Method struct {
	Name       string
	Advantages []string // the kinds of package advantage that it takes, the default first
	Critic     bool     // it trains a value head
}

// The kinds of package advantage, which this package does not import.
const (
	group       = "group"
	noStd       = "no_std"
	leaveOneOut = "leave_one_out"
	batch       = "batch"
	groupBatch  = "group_batch"
	critic      = "gae"
)

// Methods returns every objective that learns from rewards, the default first: all but sft. The advantages of asymre
// are for priorities and metrics; its loss reads rewards.
func Methods() []Method {
	free := func() []string { return []string{group, noStd, leaveOneOut, batch, groupBatch} }
	return []Method{
		{Name: GRPO{}.Name(), Advantages: free()},
		{Name: OffPolicyGRPO{}.Name(), Advantages: free()},
		{Name: AsymRE{}.Name(), Advantages: free()},
		{Name: PPO{}.Name(), Advantages: []string{critic}, Critic: true},
		{Name: ReinforcePP, Advantages: []string{batch}},
		{Name: ReinforcePPBaseline, Advantages: []string{groupBatch}},
		{Name: RLOO, Advantages: []string{leaveOneOut}},
		{Name: DrGRPO, Advantages: []string{noStd}},
	}
}

// FindMethod returns the method of that name, and whether there is one.
func FindMethod(name string) (Method, bool) {
	for _, m := range Methods() {
		if m.Name == name {
			return m, true
		}
	}
	return Method{}, false
}

// Names returns the names of Methods in their order.
func Names() []string {
	var names []string
	for _, m := range Methods() {
		names = append(names, m.Name)
	}
	return names
}
