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
	"net/url"
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
	Said                results.Notes
	Cells               []string // the values of the chosen settings

	settings map[string]string
	stamp    string        // sizes and times of the files it was read from
	quiet    time.Duration // after which a run without an end is stale
}

// Tags are the tags, each with the address of the list of its rows.
func (r row) Tags() (list []link) {
	for _, tag := range r.Said.Tags {
		list = append(list, link{tag, "?" + url.Values{"q": {"tag:" + tag}}.Encode()})
	}
	return list
}

// Remark is the first line of the note.
func (r row) Remark() string {
	const most = 120
	line, _, more := strings.Cut(r.Said.Note, "\n")
	if letters := []rune(line); len(letters) > most {
		line, more = string(letters[:most]), true
	}
	if more {
		line += " …"
	}
	return line
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

// list answers with the list of the runs, comparisons and studies that a query asks for.
func (b *Board) list(w http.ResponseWriter, r *http.Request) {
	rows, bound := b.survey(time.Now())
	q := queryOf(r.URL.Query())
	v := view{Bound: bound, Most: report.MostArms, Query: q, Any: len(rows) > 0, Choices: q.choices(rows),
		Counts: count(rows)}
	v.Rows = slices.DeleteFunc(rows, func(r row) bool { return !q.matches(&r) })
	if q.Text != "" {
		v.Counts += fmt.Sprintf("; %s found", words.Thousands(len(v.Rows)))
	}
	var err error
	if v.Columns, err = q.sort(v.Rows); err != nil {
		b.fail(w, http.StatusBadRequest, err)
		return
	}
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
	if info, err := s.root.Stat(path.Join(r.Folder, results.NotesFile)); err == nil { // which is no work of the run
		r.stamp += fmt.Sprintln(results.NotesFile, info.Size(), info.ModTime().UnixNano())
	}
	if old, ok := s.Board.rows[r.Folder]; ok && old.stamp == r.stamp && old.Kind == r.Kind && r.Note == "" {
		r = old
	} else if r.Note == "" {
		said, _, err := s.notes(r.Folder)
		if err = errors.Join(err, read(&r)); err != nil {
			r.Note = err.Error()
		} else {
			r.Said = *said
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
	config, err := s.config(r.Folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.settings = results.Settings(config)
	if _, err := s.root.Stat(path.Join(r.Folder, results.CompareFile)); err == nil {
		r.State = finished
	}
	return nil
}

// readRun reads what the list shows of a run: the ends of its logs.
func (s *survey) readRun(r *row) error {
	config, err := s.config(r.Folder)
	if err != nil {
		return err
	}
	r.settings = results.Settings(config)
	if _, target, err := results.SeedAndTarget(config); err != nil {
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

// maxConfig is the most bytes of a config.yaml that a list keeps the settings of.
const maxConfig = 256 << 10

// config reads the configuration of a folder.
func (s *survey) config(dir string) (string, error) {
	file := path.Join(dir, results.ConfigFile)
	info, err := s.root.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return "", fmt.Errorf("%s: want a regular file of at most %d KB", file, maxConfig>>10)
	}
	text, err := s.root.ReadFile(file)
	return string(text), err
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
