package objective

import "math"

// naive is METHODS section 5 written as loops, for comparison.
func naive(o Objective, v values) (loss float64, clipped int) {
	var critic func(b, t int) float64
	switch of := o.(type) { // they share GRPO's surrogate
	case Variant:
		of.Surrogate.Normalisation = of.WithDefaults().Surrogate.Normalisation
		o = of.Surrogate
	case PPO:
		o = of.Surrogate
		critic = func(b, t int) float64 {
			value, old, target := v.value[b][t], v.oldValue[b][t], v.returns[b][t]
			held := max(old-of.ValueClip, min(old+of.ValueClip, value))
			return of.ValueCoef * max((value-target)*(value-target), (held-target)*(held-target)) / 2
		}
	}
	for b := range rows {
		var n, sum, mean float64
		for i := range width {
			if v.mask[b][i] != 0 && v.keep[b] != 0 {
				n++
				mean += v.logprob(b, i) - v.behaviour[b][i]
			}
		}
		if n == 0 {
			continue
		}
		mean /= n
		for i := range width {
			if v.mask[b][i] == 0 {
				continue
			}
			switch o := o.(type) {
			case GRPO:
				r := math.Exp(v.logprob(b, i) - v.behaviour[b][i])
				if o.Ratio == SequenceRatio {
					r = math.Exp(mean)
				}
				lo, hi := o.ClipLow, o.ClipHigh
				if lo == 0 {
					lo, hi = 0.2, 0.2
				}
				a := v.advantage[b][i]
				term := min(r*a, max(1-lo, min(1+hi, r))*a)
				if o.DualClip > 0 && a < 0 {
					term = max(term, o.DualClip*a)
				}
				if term != r*a {
					clipped++
				}
				sum += term
				if critic != nil {
					sum -= critic(b, i)
				}
			case OffPolicyGRPO:
				r, start, clip := math.Exp(v.logprob(b, i)-v.behaviour[b][i]), 1.0, o.Clip
				if o.RPrime == RPrimeExact {
					start = math.Exp(v.anchor[b][i] - v.behaviour[b][i])
				}
				if clip == 0 {
					clip = 0.2
				}
				a := v.advantage[b][i]
				term := min(r*a, max(max(start-clip, 0), min(start+clip, r))*a)
				if term != r*a {
					clipped++
				}
				d := v.reference[b][i] - v.logprob(b, i)
				kl := o.KLCoef * (math.Exp(d) - d - 1)
				if o.KLWeighted {
					kl *= r
				}
				sum += term - kl
			case AsymRE:
				sum += (v.reward[b] - (v.mean[b] + o.shift())) * v.logprob(b, i)
			case SFT:
				sum += v.logprob(b, i)
			}
		}
		norm := PerConstant
		length := 1 // AsymRE: the plain sum
		switch o := o.(type) {
		case GRPO:
			norm, length = o.Normalisation.orDefault(), o.ConstantLength
		case OffPolicyGRPO:
			norm, length = o.Normalisation, o.ConstantLength
		case SFT:
			norm = o.Normalisation.orDefault()
		}
		switch norm {
		case PerSequence:
			sum /= n * v.nRollouts
		case PerToken:
			sum /= v.nToks
		case PerConstant:
			sum /= float64(length) * v.nRollouts
		}
		loss -= v.weight[b] * sum
	}
	return loss, clipped
}
