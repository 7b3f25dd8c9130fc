package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/reprise-rl/reprise/results"
	"github.com/reprise-rl/reprise/run"
	"github.com/reprise-rl/reprise/study"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// studyDisplay shows how the runs of a study go: on a terminal a bar for the study and one for each run under way, otherwise a line
// for each run that ends.
type studyDisplay struct {
	*display

	whole *mpb.Bar // nil: plain lines, or none

	mu           sync.Mutex
	total, count int // runs, and those that have ended
	before       int // of those, before this study was called
	began        time.Time
	under        map[string]underway
}

// underway is a run that has begun, or its warm-up.
type underway struct {
	bar   *mpb.Bar // nil: plain lines
	watch *watch
}

func newStudyDisplay(d *display) *studyDisplay {
	return &studyDisplay{display: d, under: make(map[string]underway)}
}

// planned learns how many runs there are. The lock is not held while the bar is changed, whose drawing needs it.
func (d *studyDisplay) planned(total, ended int) {
	d.mu.Lock()
	d.total, d.count, d.before, d.began = total, ended, ended, time.Now()
	d.mu.Unlock()
	if d.bars == nil {
		d.printf("%d runs, %d of which are there already\n", total, ended)
		return
	}
	d.whole = d.bars.AddBar(int64(total), mpb.BarPriority(-1), mpb.PrependDecorators(decor.Name("study  ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return fmt.Sprintf(" %d/%d runs  ETA %s", d.count, d.total, d.remaining())
		})))
	d.whole.SetCurrent(int64(ended))
}

func runName(arm string, seed uint64) string { return fmt.Sprintf("%s, seed %d", arm, seed) }

// warmup watches the warm-up of a run.
func (d *studyDisplay) warmup(arm string, seed uint64, c run.Config) func(step int, loss float64) {
	if d.bars == nil || c.Warmup.Steps == 0 {
		return nil
	}
	name := runName(arm, seed)
	bar := d.bars.AddBar(int64(c.Warmup.Steps), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+"  ", decor.WCSyncSpaceR)), mpb.AppendDecorators(decor.Name(" warm-up")))
	d.replace(name, underway{bar: bar})
	return func(step int, _ float64) { bar.SetCurrent(int64(step)) }
}

// hooks watches a run.
func (d *studyDisplay) hooks(arm string, seed uint64, c run.Config) run.Hooks {
	if d.silent {
		return run.Hooks{}
	}
	name, w := runName(arm, seed), newWatch(c)
	var bar *mpb.Bar
	if d.bars != nil {
		bar = d.bar(w, name, mpb.BarRemoveOnComplete())
	}
	d.replace(name, underway{bar, w})
	return run.Hooks{OnEval: w.evaluated, OnUpdate: func(u results.Update) {
		w.updated(u)
		if bar != nil {
			bar.SetCurrent(int64(resolution * w.share()))
		}
	}}
}

// replace takes the bar of a run from the screen and puts another in its place.
func (d *studyDisplay) replace(name string, u underway) {
	d.mu.Lock()
	old := d.under[name]
	d.under[name] = u
	if u == (underway{}) {
		delete(d.under, name)
	}
	d.mu.Unlock()
	if old.bar != nil {
		old.bar.Abort(true)
	}
}

// ended tells what came of a run.
func (d *studyDisplay) ended(e study.Ended) {
	d.replace(runName(e.Arm, e.Seed), underway{})
	d.mu.Lock()
	d.count = e.Count
	eta := d.remaining()
	d.mu.Unlock()
	if d.whole != nil {
		d.whole.SetCurrent(int64(e.Count))
		return
	}
	d.printf("%d/%d  %s  %s  ETA %s\n", e.Count, e.Total, runName(e.Arm, e.Seed), outcomeOf(e), eta)
}

// outcomeOf says in a few words what came of a run.
func outcomeOf(e study.Ended) string {
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

// remaining estimates the time to the study's end by the runs, and parts of runs, done since it was called. The lock is held.
func (d *studyDisplay) remaining() string {
	done := float64(d.count - d.before)
	for _, u := range d.under {
		if u.watch != nil {
			done += u.watch.share()
		}
	}
	left := float64(d.total-d.before) - done
	if done <= 0 {
		return "?"
	}
	return time.Duration(float64(time.Since(d.began)) / done * max(left, 0)).Round(time.Second).String()
}
