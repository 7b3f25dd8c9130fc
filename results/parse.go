package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// ParseUpdates reads the text of a metrics.jsonl. Updates must follow one another without a gap. A
// last line without a newline is torn and dropped.
func ParseUpdates(text []byte) ([]Update, error) {
	return parseLines(text, func(before, u *Update) error {
		if before != nil && u.Update != before.Update+1 {
			return fmt.Errorf("update is %d, want %d, one more than the line before", u.Update, before.Update+1)
		}
		return u.check()
	})
}

// ParseTimings reads the text of a timing.jsonl as ParseUpdates does.
func ParseTimings(text []byte) ([]Timing, error) {
	return parseLines(text, func(before, t *Timing) error {
		if before != nil && t.Update != before.Update+1 {
			return fmt.Errorf("update is %d, want %d, one more than the line before", t.Update, before.Update+1)
		}
		return notNegative(field{"elapsed", t.Elapsed}, field{"generate", t.Generate}, field{"learn", t.Learn}, field{"evaluate", t.Evaluate})
	})
}

// ParseEvals reads the text of an eval.jsonl as ParseUpdates does; evaluations must be in the order
// of their compute.
func ParseEvals(text []byte) ([]Eval, error) {
	return parseLines(text, func(before, e *Eval) error {
		if before != nil && (e.Compute < before.Compute || e.Grid < before.Grid) {
			return fmt.Errorf("grid %v and compute %v are below %v and %v of the line before", e.Grid, e.Compute, before.Grid, before.Compute)
		}
		return e.check()
	})
}

// parseLines decodes every whole line strictly and has it checked beside the line before.
func parseLines[T any](text []byte, check func(before, line *T) error) ([]T, error) {
	var lines []T
	for number := 1; ; number++ {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return lines, nil // the rest is empty or torn
		}
		var line T
		err := decode(text[:end], &line)
		if err == nil {
			var before *T
			if len(lines) > 0 {
				before = &lines[len(lines)-1]
			}
			err = check(before, &line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		lines = append(lines, line)
		text = text[end+1:]
	}
}

// decode reads exactly one JSON object with known fields.
func decode(text []byte, v any) error {
	if first := bytes.TrimLeft(text, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return errors.New("not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

func (u *Update) check() error {
	if u.Update < 1 {
		return fmt.Errorf("update is %d, want 1 or more", u.Update)
	}
	if u.Version < 0 || u.TableSize < 0 {
		return fmt.Errorf("version is %d and table_size %d, want 0 or more", u.Version, u.TableSize)
	}
	return errors.Join(
		notNegative(field{"clock", u.Clock}, field{"compute", u.Compute}, field{"compute_busy", u.ComputeBusy}, field{"compute_all", u.ComputeAll}),
		share("clip_fraction", u.ClipFraction), share("ess", u.ESS), share("zero_variance", u.ZeroVariance),
		share("worker_busy", u.WorkerBusy), share("worker_stalled", u.WorkerStalled), share("worker_idle", u.WorkerIdle),
		share("trainer_busy", u.TrainerBusy), share("trainer_stalled", u.TrainerStalled), share("trainer_idle", u.TrainerIdle),
		share("ess_rollout", u.ESSRollout), share("weight_mean", u.WeightMean), share("weight_min", u.WeightMin), share("weight_ess", u.WeightESS),
		share("fresh_share", u.FreshShare), share("never_drawn", u.NeverDrawn), share("prompt_share", u.PromptShare),
		share("invalid", u.Invalid), share("success", u.Success), notNegative(field{"turns", u.Turns.Float()}),
		notNegative(field{"chi_square", lifted(u.ChiSquare)}, field{"d2", lifted(u.D2)},
			field{"age_decay", u.AgeDecay.Float()}, field{"prompts_held", u.PromptsHeld.Float()}),
	)
}

func (e *Eval) check() error {
	if e.Update < 0 || e.Version < 0 || e.Problems < 1 || e.Samples < 0 {
		return fmt.Errorf("update is %d, version %d, problems %d and samples %d, want 0, 0, 1 and 0 or more", e.Update, e.Version, e.Problems, e.Samples)
	}
	for _, p := range e.PassAt {
		if p.K < 1 || p.K > e.Samples {
			return fmt.Errorf("pass_at has k %d, want 1 to samples = %d", p.K, e.Samples)
		}
		if err := share("pass_at", Num(p.Rate)); err != nil {
			return err
		}
	}
	return errors.Join(
		notNegative(field{"grid", e.Grid}, field{"compute", e.Compute}, field{"compute_busy", e.ComputeBusy}, field{"compute_all", e.ComputeAll}, field{"clock", e.Clock}),
		share("pass1", Num(e.Pass1)), share("truncated", e.Truncated), share("invalid", e.Invalid), notNegative(field{"turns", e.Turns.Float()}),
	)
}

// field is a value under its name in JSON.
type field struct {
	name  string
	value float64
}

// notNegative reports the first value below 0.
func notNegative(fields ...field) error {
	for _, f := range fields {
		if f.value < 0 {
			return fmt.Errorf("%s is %v, want 0 or more", f.name, f.value)
		}
	}
	return nil
}

// shareSlack is what rounding may add to a share that is a quotient of sums.
const shareSlack = 1e-9

// lifted returns a quantity that is never negative but by rounding, which it takes away.
func lifted(n Number) float64 {
	if v := n.Float(); v < 0 && v > -shareSlack {
		return 0
	}
	return n.Float()
}

// share reports a known value outside [0, 1].
func share(name string, n Number) error {
	if v := n.Float(); !math.IsNaN(v) && (v < -shareSlack || v > 1+shareSlack) {
		return fmt.Errorf("%s is %v, want 0 to 1", name, v)
	}
	return nil
}
