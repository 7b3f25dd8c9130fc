package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// display shows how runs go: bars on a terminal, a line for each evaluation otherwise, nothing when silent.
type display struct {
	out    io.Writer
	bars   *mpb.Progress // nil: plain lines
	silent bool
	once   sync.Once

	lock    sync.Mutex
	warming *mpb.Bar // the warm-up's, until it ends; nil: none
}

func newDisplay(silent bool) *display {
	d := &display{out: os.Stdout, silent: silent}
	if info, err := os.Stdout.Stat(); !silent && err == nil && info.Mode()&os.ModeCharDevice != 0 {
		d.bars = mpb.New(mpb.WithWidth(28), mpb.WithOutput(os.Stdout), mpb.WithRefreshRate(200*time.Millisecond))
	}
	return d
}

// end lets the bars draw their last state.
func (d *display) end() {
	d.once.Do(func() {
		if d.bars != nil {
			d.bars.Shutdown()
		}
	})
}

func (d *display) printf(format string, args ...any) {
	if !d.silent {
		fmt.Fprintf(d.out, format, args...)
	}
}

// warmup watches a supervised warm-up.
func (d *display) warmup(c run.Config) func(step int, loss float64) {
	if d.silent {
		return nil
	}
	if d.bars == nil {
		return func(step int, loss float64) {
			if step%50 == 0 || step == c.Warmup.Steps {
				d.printf("warm-up %d/%d  loss %.3f\n", step, c.Warmup.Steps, loss)
			}
		}
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	d.warmed()
	var latest float64
	var mu sync.Mutex
	bar := d.bars.AddBar(int64(c.Warmup.Steps), mpb.PrependDecorators(decor.Name("warm-up  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprintf(" loss %.3f", latest)
		})))
	d.warming = bar
	return func(step int, loss float64) {
		mu.Lock()
		latest = loss
		mu.Unlock()
		bar.SetCurrent(int64(step))
	}
}

// warmed completes the warm-up's bar, which may end before its last step.
func (d *display) warmed() {
	if d.warming != nil {
		d.warming.SetTotal(-1, true)
		d.warming = nil
	}
}

// watch is what the display knows of one run.
type watch struct {
	mu     sync.Mutex
	update results.Update
	eval   results.Eval
	total  float64 // compute of the budget
	began  time.Time
	from   float64 // compute when the watch began
}

// hooks watches a run.
func (d *display) hooks(c run.Config, name string) run.Hooks {
	if d.silent {
		return run.Hooks{}
	}
	d.lock.Lock()
	d.warmed()
	d.lock.Unlock()
	w := newWatch(c)
	if d.bars == nil {
		return run.Hooks{OnUpdate: w.updated, OnEval: func(e results.Eval) {
			w.evaluated(e)
			d.printf("%s  %s\n", name, w.line())
		}}
	}
	bar := d.bar(w, name)
	return run.Hooks{OnEval: w.evaluated, OnUpdate: func(u results.Update) {
		w.updated(u)
		bar.SetCurrent(int64(resolution * w.share()))
	}}
}

// resolution is the steps of a run's bar.
const resolution = 1000

// bar adds the bar of a run.
func (d *display) bar(w *watch, name string, more ...mpb.BarOption) *mpb.Bar {
	return d.bars.AddBar(resolution, append(more, mpb.PrependDecorators(decor.Name(name+"  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.Any(func(decor.Statistics) string { return "  " + w.line() })))...)
}

func newWatch(c run.Config) *watch {
	return &watch{total: c.BudgetCompute(), began: time.Now(), from: -1}
}

// share returns how much of its budget the run has used, in [0, 1].
func (w *watch) share() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return min(w.update.Compute/w.total, 1)
}

func (w *watch) updated(u results.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.from < 0 {
		w.from = u.Compute
		w.began = time.Now()
	}
	w.update = u
}

func (w *watch) evaluated(e results.Eval) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.eval = e
}

// line says where the run stands.
func (w *watch) line() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.update
	if u.Update == 0 {
		return fmt.Sprintf("update 0  pass@1 %.3f", w.eval.Pass1)
	}
	return fmt.Sprintf("update %d  pass@1 %.3f at %d  reward %.3f  staleness %.1f  replay ratio %.2f  ETA %s",
		u.Update, w.eval.Pass1, w.eval.Update, u.BatchReward.Float(), u.StalenessMean.Float(), u.ReplayRatio.Float(), w.remaining())
}

func (w *watch) remaining() string {
	done := w.update.Compute - w.from
	if done <= 0 {
		return "?"
	}
	left := time.Duration(float64(time.Since(w.began)) / done * (w.total - w.update.Compute))
	return max(left, 0).Round(time.Second).String()
}
