package results

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/reprise-rl/reprise/internal/disk"
)

// Archive is runs.json.gz: all runs of a study, pilots included, condensed to what its page is drawn from. It is small
// enough to be kept with the source.
type Archive struct {
	Format  int                      `json:"format"`
	Study   string                   `json:"study"`
	Seeds   int                      `json:"seeds"` // of each arm
	Quick   bool                     `json:"quick"`
	Machine Machine                  `json:"machine"`
	Began   time.Time                `json:"began"` // the last call
	Ended   time.Time                `json:"ended"`
	AtOnce  int                      `json:"at_once"` // runs side by side
	Command string                   `json:"command"` // that made the runs
	Runs    map[string]*CondensedRun `json:"runs"`    // by the digest of their configuration
}

// CondensedRun is what an archive keeps of a run, see [Condense].
type CondensedRun struct {
	Failed  string   `json:"failed,omitempty"` // its error
	Evals   []Eval   `json:"evals"`
	Updates []Update `json:"updates"`
	Timing  Timing   `json:"timing"` // summed over the run
	Summary *Summary `json:"summary,omitempty"`
	Noise   *Noise   `json:"noise,omitempty"`
}

// Run returns the run as far as it was kept.
func (c *CondensedRun) Run() *Run {
	r := &Run{Updates: c.Updates, Evals: c.Evals, Timings: []Timing{c.Timing}, Summary: c.Summary, Noise: c.Noise}
	if c.Summary != nil {
		r.Seed = c.Summary.Seed
	}
	return r
}

// condensedDigits are the significant digits that means over updates keep.
const condensedDigits = 5

// Condense reduces a run to a line of metrics for each evaluation: counters as they stood, and of everything else the
// mean over the updates since the evaluation before, to 5 digits. Evaluations lose only what they tell of single
// problems.
func Condense(r *Run) *CondensedRun {
	evals := slices.Clone(r.Evals)
	for i := range evals {
		evals[i].Solved = nil
	}
	c := &CondensedRun{Evals: evals, Summary: r.Summary, Noise: r.Noise}
	from := 0
	for _, e := range append(slices.Clone(r.Evals), Eval{Update: math.MaxInt}) {
		to := from
		for to < len(r.Updates) && r.Updates[to].Update <= e.Update {
			to++
		}
		if to > from {
			c.Updates = append(c.Updates, meanUpdate(r.Updates[from:to]))
		}
		from = to
	}
	for _, t := range r.Timings {
		c.Timing.Update, c.Timing.Elapsed = t.Update, t.Elapsed
		c.Timing.Generate, c.Timing.Learn = c.Timing.Generate+t.Generate, c.Timing.Learn+t.Learn
		c.Timing.Evaluate, c.Timing.Tokens = c.Timing.Evaluate+t.Evaluate, c.Timing.Tokens+t.Tokens
	}
	return c
}

// meanUpdate returns the last of several lines with the means of their numbers.
func meanUpdate(lines []Update) Update {
	u := lines[len(lines)-1]
	of := func(number func(*Update) Number) Number {
		sum, n := 0.0, 0.0
		for i := range lines {
			if v := number(&lines[i]); v.Known() {
				sum, n = sum+v.Float(), n+1
			}
		}
		return rounded(sum / n)
	}
	v := reflect.ValueOf(&u).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		soFar := tag.Get("group") == "progress" || tag.Get("json") == "replay_ratio"
		if _, ok := v.Field(i).Interface().(Number); ok && !soFar {
			v.Field(i).Set(reflect.ValueOf(of(func(u *Update) Number {
				return reflect.ValueOf(u).Elem().Field(i).Interface().(Number)
			})))
		}
	}
	other := maps.Clone(u.Other)
	for _, line := range lines {
		for name := range line.Other { // some are not measured at each update
			if other == nil {
				other = make(map[string]Number)
			}
			other[name] = Number{}
		}
	}
	u.Other = other
	for name := range u.Other {
		u.Other[name] = of(func(u *Update) Number { return u.Other[name] })
	}
	return u
}

// rounded returns a number of few digits, none if it is NaN.
func rounded(v float64) Number {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', condensedDigits, 64), 64)
	if err != nil {
		return Number{}
	}
	return Num(short)
}

// WriteArchive writes runs.json.gz. The same runs give the same bytes.
func WriteArchive(path string, a *Archive) error {
	a.Format = Format
	text, err := encode(a, "")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(text)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return disk.WriteFile(path, packed.Bytes())
}

// What an archive may hold: bytes of text, and runs of an arm.
const (
	maxArchive = 1 << 30
	maxSeeds   = 1 << 16
)

// ReadArchive reads runs.json.gz.
func ReadArchive(path string) (*Archive, error) {
	packed, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: want the %s of a study", path, err, ArchiveFile)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxArchive))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a := new(Archive)
	if err := decode(text, a); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if a.Format != Format {
		return nil, fmt.Errorf("%s: format: %d: want %d: %w", path, a.Format, Format, errFormat)
	}
	if a.Seeds < 1 || a.Seeds > maxSeeds {
		return nil, fmt.Errorf("%s: seeds: %d: want 1 to %d", path, a.Seeds, maxSeeds)
	}
	for digest, c := range a.Runs {
		if c == nil {
			return nil, fmt.Errorf("%s: runs.%s: null: want a run", path, digest)
		}
	}
	return a, nil
}
