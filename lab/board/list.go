package board

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
)

const (
	maxRows    = 2000     // that a list shows
	maxEntries = 500_000  // files and folders that it looks at
	tail       = 64 << 10 // bytes of a log in which its last line is looked for
)

// A run without a summary is stale if it has written nothing for quiet, or for slow times the mean time of its updates.
const (
	quiet = 5 * time.Minute
	slow  = 10
)

// The kinds of a row.
const (
	run        = "run"
	comparison = "comparison"
	study      = "study"
)

// The states of a row. Each has a class of this name in board.css.
const (
	running     = "running"
	finished    = "finished"
	interrupted = "interrupted"
	stale       = "stale"
	unreadable  = "unreadable"
)

// byState is the order of the states when the list is sorted by them.
func byState(a, b row) int {
	order := []string{running, unreadable, stale, interrupted, finished}
	return slices.Index(order, a.State) - slices.Index(order, b.State)
}

// row is a run, a comparison or a study in the list.
type row struct {
	Folder, Kind, State string
	Note                string // what is wrong
	Updates             int
	Pass1               results.Number // at the last evaluation
	Target              results.Number
	Started, Written    time.Time

	stamp string        // sizes and times of the files it was read from
	quiet time.Duration // after which a run without an end is stale
}

// column is a column of the list that it can be sorted by.
type column struct {
	Key, Name, Class string
	Sorted           bool
	order            func(a, b row) int
}

func columns() []column {
	return []column{
		{Key: "folder", Name: "Folder", Class: "word", order: func(a, b row) int { return 0 }}, // as they were found
		{Key: "kind", Name: "Kind", Class: "word more",
			order: func(a, b row) int { return cmp.Compare(a.Kind, b.Kind) }},
		{Key: "state", Name: "State", Class: "word", order: byState},
		{Key: "updates", Name: "Updates", order: func(a, b row) int { return b.Updates - a.Updates }},
		{Key: "pass", Name: "pass@1",
			order: func(a, b row) int { return cmp.Compare(b.Pass1.Float(), a.Pass1.Float()) }},
		{Key: "target", Name: "Target", Class: "more",
			order: func(a, b row) int { return cmp.Compare(b.Target.Float(), a.Target.Float()) }},
		{Key: "started", Name: "Started", Class: "more",
			order: func(a, b row) int { return b.Started.Compare(a.Started) }},
		{Key: "written", Name: "Last written", order: func(a, b row) int { return b.Written.Compare(a.Written) }},
	}
}

// Address is the address of the row's page.
func (r row) Address() string { return address(r.Folder) }

// Parts is the folder's name, cut where a line may break.
func (r row) Parts() []string { return strings.SplitAfter(r.Folder, "/") }

// Choice reports whether the row can be chosen to be compared.
func (r row) Choice() bool { return r.Kind == run }

// The cells of the row.
func (r row) UpdatesText() string {
	if r.Kind != run {
		return "–"
	}
	return words.Thousands(r.Updates)
}
func (r row) Pass1Text() string   { return words.Fixed(r.Pass1.Float(), 3) }
func (r row) TargetText() string  { return words.Fixed(r.Target.Float(), 2) }
func (r row) StartedText() string { return clock(r.Started) }
func (r row) WrittenText() string { return clock(r.Written) }

// clock writes a time of this machine's clock.
func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// list answers with the list of all runs, comparisons and studies.
func (b *Board) list(w http.ResponseWriter, r *http.Request) {
	rows, bound := b.survey(time.Now())
	v := view{Rows: rows, Bound: bound, Most: report.MostArms, Columns: columns(), Counts: count(rows)}
	by := slices.IndexFunc(v.Columns, func(c column) bool { return c.Key == cmp.Or(r.FormValue("sort"), "written") })
	if by < 0 {
		b.fail(w, http.StatusBadRequest, fmt.Errorf("sort=%s: want the key of a column, such as written",
			r.FormValue("sort")))
		return
	}
	v.Columns[by].Sorted = true
	slices.SortStableFunc(v.Rows, v.Columns[by].order)
	page, err := b.render(v)
	if err != nil {
		b.fail(w, http.StatusInternalServerError, err)
		return
	}
	if v.Tag = fmt.Sprintf("%x", sha256.Sum256(page)); unchanged(w, r, v.Tag) {
		return
	}
	page, _ = b.render(v) // as before
	write(w, http.StatusOK, page)
}

// count says how many rows there are of each kind.
func count(rows []row) string {
	n := make(map[string]int)
	for _, r := range rows {
		n[r.Kind]++
		if r.Kind == run {
			n[r.State]++
		}
	}
	return fmt.Sprintf("%s, %d of them running; %s, %s", words.Plural(n[run], "run"), n[running],
		words.Plural(n[comparison], "comparison"), words.Plural(n[study], "study", "studies"))
}

// survey is one walk through the folder.
type survey struct {
	*Board
	now     time.Time
	rows    []row
	entries int // looked at
	kept    map[string]row
}

// survey lists what the folder holds now, by folder, and says what the list leaves out.
func (b *Board) survey(now time.Time) (rows []row, bound string) {
	b.listing.Lock()
	defer b.listing.Unlock()
	s := survey{Board: b, now: now, kept: make(map[string]row)}
	whole := s.walk(".")
	b.rows = s.kept
	if !whole {
		bound = fmt.Sprintf("The list ends here, after %d rows and %d files and folders. Open the board on a folder "+
			"further down to see the rest.", len(s.rows), s.entries)
	}
	return s.rows, bound
}

// walk adds a folder and what is below it, and reports whether that was all.
func (s *survey) walk(dir string) bool {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) { // it vanished
		return true
	}
	names := make(map[string]fs.DirEntry, len(entries))
	for _, e := range entries {
		names[e.Name()] = e
	}
	has := func(name string) bool { return names[name] != nil }
	arm := func(name string) bool { return has(name) && names[name].IsDir() }
	at := len(s.rows)
	switch s.entries += len(entries); {
	case s.entries > maxEntries || at >= s.most:
		return false
	case err != nil:
		s.rows = append(s.rows, row{Folder: dir, Kind: "–", State: unreadable, Note: err.Error()})
	case has(results.StudyFile):
		s.add(row{Folder: dir, Kind: study}, names, s.readStudy, results.StudyFile)
	case has(results.CompareFile) ||
		(arm(results.BaselineArm) || arm(results.ReplayArm)) && results.IsComparison(s.full(dir)):
		s.add(row{Folder: dir, Kind: comparison}, names, s.readComparison, results.ConfigFile, results.CompareFile)
	case has(results.ConfigFile) && has(results.MetricsFile):
		s.add(row{Folder: dir, Kind: run}, names, s.readRun, results.ConfigFile, results.MetricsFile,
			results.TimingFile, results.EvalFile, results.SummaryFile)
	}
	whole := true
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != results.CheckpointDir && whole {
			whole = s.walk(path.Join(dir, e.Name()))
		}
	}
	if len(s.rows) > at && s.rows[at].Folder == dir && s.rows[at].Kind == comparison {
		s.rows[at].join(s.rows[at+1:], s.now)
	}
	return whole
}

// add adds a row, read again if one of its files has changed. The names are those in its folder.
func (s *survey) add(r row, names map[string]fs.DirEntry, read func(*row) error, files ...string) {
	for _, name := range files {
		if names[name] == nil {
			continue
		}
		info, err := names[name].Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			info, err = s.root.Stat(path.Join(r.Folder, name))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // it vanished
			continue
		case err != nil:
			r.Note = err.Error()
			continue
		case !info.Mode().IsRegular():
			r.Note = name + " is no regular file"
		}
		r.stamp += fmt.Sprintln(name, info.Size(), info.ModTime().UnixNano())
		if r.Started.IsZero() {
			r.Started = info.ModTime()
		}
		if info.ModTime().After(r.Written) {
			r.Written = info.ModTime()
		}
	}
	if old, ok := s.Board.rows[r.Folder]; ok && old.stamp == r.stamp && old.Kind == r.Kind && r.Note == "" {
		r = old
	} else if r.Note == "" {
		if err := read(&r); err != nil {
			r.Note = err.Error()
		}
	}
	if r.Note == "" { // a fault may be gone without a change of the files
		s.kept[r.Folder] = r
	}
	switch {
	case r.Note != "":
		r.State = unreadable
	case r.State == "" && s.now.Sub(r.Written) > max(r.quiet, quiet):
		r.State = stale
	case r.State == "":
		r.State = running
	}
	s.rows = append(s.rows, r)
}

// join completes the row of a comparison by those of its runs.
func (r *row) join(runs []row, now time.Time) {
	states := make(map[string]bool)
	for _, one := range runs {
		states[one.State] = true
		r.Target = cmp.Or(r.Target, one.Target)
		if one.Started.Before(r.Started) || r.Started.IsZero() {
			r.Started = one.Started
		}
		if one.Written.After(r.Written) {
			r.Written = one.Written
		}
	}
	switch {
	case r.State == finished || r.State == unreadable:
	case states[running]:
		r.State = running
	case states[interrupted]:
		r.State = interrupted
	case now.Sub(r.Written) <= quiet: // between two runs
		r.State = running
	default:
		r.State = stale
	}
}

func (s *survey) readStudy(r *row) error {
	ended, err := results.ReadStudy(s.full(r.Folder))
	if err != nil {
		return err
	}
	r.State, r.Started = finished, ended.Began
	return nil
}

// readComparison tells whether a comparison has ended; the rest is in its runs.
func (s *survey) readComparison(r *row) error {
	if _, err := s.root.Stat(path.Join(r.Folder, results.CompareFile)); err == nil {
		r.State = finished
	}
	return nil
}

// readRun reads what the list shows of a run: the ends of its logs.
func (s *survey) readRun(r *row) error {
	config, err := s.root.ReadFile(path.Join(r.Folder, results.ConfigFile))
	if err != nil {
		return err
	}
	if _, target, err := results.SeedAndTarget(string(config)); err != nil {
		return err
	} else if target > 0 {
		r.Target = results.Num(target)
	}
	var update results.Update
	var timing results.Timing
	eval := results.Eval{Pass1: -1}
	if err := errors.Join(s.last(path.Join(r.Folder, results.MetricsFile), &update),
		s.last(path.Join(r.Folder, results.TimingFile), &timing),
		s.last(path.Join(r.Folder, results.EvalFile), &eval)); err != nil {
		return err
	}
	r.Updates = update.Update
	if eval.Pass1 >= 0 {
		r.Pass1 = results.Num(eval.Pass1)
	}
	if timing.Update > 0 {
		r.quiet = time.Duration(slow * timing.Elapsed / float64(timing.Update) * float64(time.Second))
	}
	summary, err := results.ReadSummary(s.full(r.Folder))
	if err != nil || summary == nil || update.Update > summary.Updates { // beyond it, the run goes on
		return err
	}
	r.State = interrupted
	if summary.Ended == "budget" {
		r.State = finished
	}
	return nil
}

// last decodes the last whole line of a log, if there is one.
func (s *survey) last(file string, line any) error {
	f, err := s.root.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-tail), tail))
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	text = bytes.TrimSuffix(text, []byte("\n"))
	text = text[bytes.LastIndexByte(text, '\n')+1:]
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, line); err != nil {
		return fmt.Errorf("%s: last line: %w", file, err)
	}
	return nil
}
