package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/study"
)

const (
	resolution = 1000             // steps of a run's bar
	maxBar     = 28               // columns
	minBar     = 10               // columns that the text beside a bar leaves to it
	plainEvery = 10 * time.Second // between two lines about progress where there are no bars
)

// display shows the progress of runs: bars on a terminal, otherwise a line now and then, or nothing.
type display struct {
	out    io.Writer
	on     *screen
	bars   *mpb.Progress // nil: plain lines
	silent bool
	once   sync.Once

	prompts sync.Once // prompts that are left out are named once for all runs

	mu      sync.Mutex
	warming func()    // shows that the warm-up has ended; nil: there is none, or it has been called
	printed time.Time // when the last plain line about progress was
}

func newDisplay(on *screen, out *os.File, silent bool) *display {
	d := &display{out: out, on: on, silent: silent}
	if !silent && terminal(out) {
		on.bars.Store(true)
		d.bars = mpb.New(mpb.WithWidth(maxBar), mpb.WithOutput(out),
			mpb.WithRefreshRate(200*time.Millisecond))
	}
	return d
}

// end draws the bars one last time.
func (d *display) end() {
	d.once.Do(func() {
		if d.bars != nil {
			d.bars.Shutdown()
			d.on.bars.Store(false)
		}
	})
}

// wrapped prints a paragraph, whose first line begins with a mark.
func (d *display) wrapped(mark, paragraph string) {
	d.printf("%s", words.Wrap(mark, paragraph))
}

func (d *display) printf(format string, args ...any) {
	if !d.silent {
		fmt.Fprintf(d.out, format, args...)
	}
}

// onInterrupt says at once that the context's end was noticed, and what happens now. Call stop when that is no longer
// so.
func (d *display) onInterrupt(ctx context.Context, text string) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if !d.silent {
			d.note(os.Stderr, text)
		}
	})
}

// progress prints a line about progress where there are no bars, unless the last one is recent.
func (d *display) progress(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.printed) >= plainEvery {
		d.printed = now
		d.printf(format, args...)
	}
}

// fit joins as many of the parts as fit into a width in columns, in their order; the first always.
func fit(parts []string, width int) string {
	text := parts[0]
	for _, p := range parts[1:] {
		if utf8.RuneCountInString(text)+2+utf8.RuneCountInString(p) > width {
			break
		}
		text += "  " + p
	}
	return text
}

// beside shows parts beside a bar, as many as the terminal has room for.
func beside(parts func(decor.Statistics) []string) decor.Decorator {
	return decor.Any(func(s decor.Statistics) string {
		return "  " + fit(parts(s), s.AvailableWidth-len("  ")-len("[]")-minBar)
	})
}

// warmup returns what a supervised warm-up calls after each step.
func (d *display) warmup(c run.Config) func(step int, loss float64) {
	if d.silent || c.Warmup.Steps == 0 {
		return nil
	}
	const done = "done after %d of at most %d steps"
	if d.bars == nil {
		var last atomic.Int64
		d.setWarming(func() {
			if step := last.Load(); step > 0 { // 0: the policy needed no warm-up
				d.printf("warm-up  "+done+"\n", step, c.Warmup.Steps)
			}
		})
		return func(step int, loss float64) {
			last.Store(int64(step))
			d.progress("warm-up  step %d of at most %d  loss %.3f\n", step, c.Warmup.Steps, loss)
		}
	}
	var mu sync.Mutex
	var step int
	var loss float64
	began := time.Now()
	bar := d.bars.AddBar(int64(c.Warmup.Steps), mpb.PrependDecorators(decor.Name("warm-up  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(beside(func(s decor.Statistics) []string {
			mu.Lock()
			defer mu.Unlock()
			if s.Completed {
				return []string{fmt.Sprintf(done, step, c.Warmup.Steps)}
			}
			return []string{"ETA at most " + remaining(began, float64(step), float64(c.Warmup.Steps-step)),
				fmt.Sprintf("loss %.3f", loss), fmt.Sprintf("step %d", step)}
		})))
	d.setWarming(func() { bar.SetCurrent(math.MaxInt64) })
	return func(n int, l float64) {
		mu.Lock()
		step, loss = n, l
		mu.Unlock()
		bar.SetCurrent(int64(n))
	}
}

// setWarming shows that the warm-up before has ended, and remembers what shows that of the next; nil: there is none.
func (d *display) setWarming(end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.warming != nil {
		d.warming()
	}
	d.warming = end
}

// hooks returns hooks that show the progress of a run.
func (d *display) hooks(c run.Config, name string) run.Hooks {
	if d.silent {
		return run.Hooks{}
	}
	d.setWarming(nil)
	p := newProgress(c)
	var h run.Hooks
	if d.bars == nil {
		h = run.Hooks{OnUpdate: p.update, OnEval: func(e results.Eval) {
			p.evaluate(e)
			d.progress("%s  %s\n", name, p)
		}}
	} else {
		h = p.hooks(sync.OnceValue(func() *mpb.Bar { return d.addBar(p, name) }))
	}
	h.OnTooLong = func(t results.TooLong) {
		d.prompts.Do(func() { d.note(os.Stderr, "warning: "+t.String()) })
	}
	return h
}

// note prints a line, above the bars where there are any, else to a file.
func (d *display) note(plain io.Writer, text string) {
	if d.bars != nil {
		plain = d.bars
	}
	fmt.Fprintln(plain, text)
}

// addBar adds the bar of a run.
func (d *display) addBar(p *progress, name string, more ...mpb.BarOption) *mpb.Bar {
	return d.bars.AddBar(resolution, append(more, mpb.PrependDecorators(decor.Name(name+"  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}),
			beside(func(decor.Statistics) []string { return p.parts() })))...)
}

// line adds a line of text that is written anew as the bars are. There are bars; once they have ended, nothing is added.
func (d *display) line(text func() string) {
	_, _ = d.bars.Add(0, nil, mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return text() })))
}

// progress is how far one run has come. Its methods may be called concurrently.
type progress struct {
	mu     sync.Mutex
	latest results.Update
	eval   results.Eval
	config run.Config
	began  time.Time // when the first update came
	from   float64   // share of the budget used at that update; below 0: there was none
}

func newProgress(c run.Config) *progress { return &progress{config: c, from: -1} }

// hooks returns hooks that note the progress and move a bar, which may be nil. They ask for it when the run begins or
// goes on: one that is resumed may have nothing left to do.
func (p *progress) hooks(bar func() *mpb.Bar) run.Hooks {
	move := func() {
		if b := bar(); b != nil {
			b.SetCurrent(int64(resolution * p.share()))
		}
	}
	return run.Hooks{OnEval: func(e results.Eval) {
		if p.evaluate(e); e.Update == 0 {
			move()
		}
	}, OnUpdate: func(u results.Update) {
		p.update(u)
		move()
	}}
}

func (p *progress) update(u results.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.from < 0 {
		p.from, p.began = p.config.BudgetShare(u), time.Now()
	}
	p.latest = u
}

func (p *progress) evaluate(e results.Eval) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eval = e
}

// share returns the share of the budget that is used, in [0, 1].
func (p *progress) share() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.BudgetShare(p.latest)
}

// String is one line about the run.
func (p *progress) String() string { return strings.Join(p.parts(), "  ") }

// parts are what there is to say about the run, what matters most first.
func (p *progress) parts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.latest
	if u.Update == 0 {
		return []string{fmt.Sprintf("pass@1 %.3f", p.eval.Pass1), "update 0"}
	}
	share := p.config.BudgetShare(u)
	return []string{
		"ETA " + remaining(p.began, share-p.from, 1-share),
		fmt.Sprintf("pass@1 %.3f", p.eval.Pass1),
		fmt.Sprintf("replay ratio %.2f", u.ReplayRatio.Float()),
		fmt.Sprintf("update %d", u.Update),
		fmt.Sprintf("reward %.3f", u.BatchReward.Float()),
		fmt.Sprintf("staleness %.1f", u.StalenessMean.Float()),
	}
}

// remaining estimates the time for what is left by the time that it took to do what is done.
func remaining(began time.Time, done, left float64) string {
	if done <= 0 {
		return "?"
	}
	return time.Duration(float64(time.Since(began)) / done * max(left, 0)).Round(time.Second).String()
}

// studyDisplay shows the progress of a study: on a terminal a bar for the study and one for each run in progress,
// otherwise a line for each run that ends.
type studyDisplay struct {
	*display

	whole *mpb.Bar // nil: no bars

	mu           sync.Mutex
	total, count int // runs, and finished runs
	before       int // runs that were finished when the study began
	began        time.Time
	active       map[string]activeRun
}

// activeRun is a run in progress, or its warm-up.
type activeRun struct {
	bar      *mpb.Bar  // nil: no bars
	progress *progress // nil: warming up
}

func newStudyDisplay(d *display) *studyDisplay {
	return &studyDisplay{display: d, active: make(map[string]activeRun)}
}

// planned is called with the number of runs. It changes the bar without the lock, which drawing the bar takes.
func (d *studyDisplay) planned(pilots bool, total, ended int) {
	what := "runs"
	if pilots {
		what = "runs of pilots"
	}
	d.mu.Lock()
	d.total, d.count, d.before, d.began = total, ended, ended, time.Now()
	d.mu.Unlock()
	if d.bars == nil {
		d.printf("%d %s, %d of them finished before\n", total, what, ended)
		return
	}
	if d.whole != nil { // of the pilots
		d.whole.Abort(true)
	}
	d.whole = d.bars.AddBar(int64(total), mpb.BarPriority(-1),
		mpb.PrependDecorators(decor.Name("study  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(beside(func(decor.Statistics) []string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return []string{"ETA " + d.remaining(), fmt.Sprintf("%d/%d %s", d.count, d.total, what)}
		})))
	d.whole.SetCurrent(int64(ended))
}

func runName(arm string, seed uint64) string { return fmt.Sprintf("%s, seed %d", arm, seed) }

// warmup returns what the warm-up of a run calls after each step.
func (d *studyDisplay) warmup(arm string, seed uint64, c run.Config) func(step int, loss float64) {
	if d.bars == nil || c.Warmup.Steps == 0 {
		return nil
	}
	name := runName(arm, seed)
	bar := d.bars.AddBar(int64(c.Warmup.Steps), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+"  ", decor.WCSyncSpaceR)), mpb.AppendDecorators(decor.Name(" warm-up")))
	d.setActive(name, activeRun{bar: bar})
	return func(step int, _ float64) { bar.SetCurrent(int64(step)) }
}

// hooks returns hooks that show the progress of a run.
func (d *studyDisplay) hooks(arm string, seed uint64, c run.Config) run.Hooks {
	if d.silent {
		return run.Hooks{}
	}
	name, p := runName(arm, seed), newProgress(c)
	var bar *mpb.Bar
	if d.bars != nil {
		bar = d.addBar(p, name, mpb.BarRemoveOnComplete())
	}
	d.setActive(name, activeRun{bar, p})
	return p.hooks(func() *mpb.Bar { return bar })
}

// setActive replaces what is known of a run, and removes the bar it had; the zero value removes the run.
func (d *studyDisplay) setActive(name string, r activeRun) {
	d.mu.Lock()
	old := d.active[name]
	d.active[name] = r
	if r == (activeRun{}) {
		delete(d.active, name)
	}
	d.mu.Unlock()
	if old.bar != nil {
		old.bar.Abort(true)
	}
}

// ended is called when a run has ended.
func (d *studyDisplay) ended(e study.Ended) {
	d.setActive(runName(e.Arm, e.Seed), activeRun{})
	d.mu.Lock()
	d.count = e.Count
	eta := d.remaining()
	d.mu.Unlock()
	if d.whole != nil {
		d.whole.SetCurrent(int64(e.Count))
		return
	}
	d.printf("%d/%d  %s  %s  ETA %s\n", e.Count, e.Total, runName(e.Arm, e.Seed), resultOf(e), eta)
}

// resultOf is the result of a run in a few words.
func resultOf(e study.Ended) string {
	s := e.Result
	if s == nil {
		return "failed: " + e.Failed
	}
	text := "best pass@1 " + number(s.Pass1Best, "%.3f")
	switch {
	case !s.Target.Known():
	case s.ToTarget.Reached:
		text += fmt.Sprintf("  %.2f at compute %s", s.Target.Float(), number(s.ToTarget.Compute, "%.0f"))
	default:
		text += fmt.Sprintf("  %.2f not reached", s.Target.Float())
	}
	return text
}

// remaining estimates the time to the end of the study. Runs in progress count by their share. The lock is held.
func (d *studyDisplay) remaining() string {
	done := float64(d.count - d.before)
	for _, r := range d.active {
		if r.progress != nil {
			done += r.progress.share()
		}
	}
	return remaining(d.began, done, float64(d.total-d.before)-done)
}
