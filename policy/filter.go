package policy

// filter takes the draws whose mean log-ratio is above MaxLogRatio out of the loss.
func (l *Learner) filter(shards [][]pass) {
	if l.options.MaxLogRatio == 0 {
		return
	}
	for p := range eachPass(shards) {
		p.dropped = make([]bool, len(p.draws))
		for i := range p.draws {
			if p.meanLogRatio(i) > l.options.MaxLogRatio {
				p.dropped[i], p.keep[i] = true, 0
			}
		}
	}
}

// drops tells whether draw i was filtered out.
func (p *pass) drops(i int) bool { return p.dropped != nil && p.dropped[i] }

// meanLogRatio returns the mean of log pi - log b over the policy's tokens of draw i.
func (p *pass) meanLogRatio(i int) float64 {
	n := max(policyTokens(p.draws[i].Rollout), 1)
	return p.logRatio(i, p.current) / float64(n)
}

// logRatio returns the sum of logprobs - log b over the policy's tokens of draw i, logprobs being [rows, length].
func (p *pass) logRatio(i int, logprobs []float32) (sum float64) {
	from := i * p.length
	for j, m := range p.draws[i].Rollout.Mask {
		if m == 1 {
			sum += float64(logprobs[from+j]) - float64(p.behaviour[from+j])
		}
	}
	return sum
}
