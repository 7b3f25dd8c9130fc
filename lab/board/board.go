// Package board shows a folder of runs over HTTP while they train: a list of its runs, comparisons and studies, a page
// of each, and a page of up to eight runs side by side.
//
// [Open] makes a [Board] of a folder; it is an [http.Handler]. Package report draws the pages, from the files as they
// are when a page is asked for. A page is drawn again only if the size or the time of a file has changed; else a
// request with its entity tag is answered by 304. A short script asks every two seconds while the page is visible. It
// puts the new main part in place of the old and then dispatches the event reprise:replaced on the document.
//
// The rollouts in the last checkpoint of a run have the page of package browse. A board restores the table when a
// reader asks for it, and keeps the last two.
//
// Links out of the folder are refused when a page is asked for. A board writes one file, the notes of a folder
// (results.Notes), and refuses posts that do not come from its own pages. It answers to names of this machine only, and
// has no tokens: whoever can connect can read, and write notes. Listen on loopback.
package board

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/lab/report"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay/browse"
)

var (
	//go:embed board.html
	pageText string
	//go:embed board.css
	styleText string
	//go:embed board.js
	scriptText string
)

const (
	maxPages = 32        // drawn pages that a board keeps
	maxBytes = 256 << 20 // of the files behind one page
)

// Board shows a folder of runs. It is safe for concurrent use.
type Board struct {
	dir    string
	root   *os.Root // its files; refuses what leads out of the folder
	tables Tables
	text   *template.Template
	policy string // content security policy
	opened time.Time
	routes http.Handler

	most    int // rows of the list
	listing sync.Mutex
	rows    map[string]row // by folder, as last read

	writing sync.Mutex // held while notes are written
	drawing sync.Mutex // one page at a time: a machine that trains has other work
	pages   map[string]drawn

	restored restored
}

// drawn is a page and the tag of the files that it was drawn from.
type drawn struct {
	tag  string
	body []byte
}

// Open returns a board of a folder that exists, with the rollouts of its runs.
func Open(dir string, tables Tables) (*Board, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: want a folder with runs in it, such as runs for reprise train --out runs/NAME", err)
	}
	b := &Board{dir: dir, root: root, tables: tables, opened: time.Now(), most: maxRows, pages: make(map[string]drawn),
		restored: restored{scoring: semaphore.NewWeighted(1)}}
	if b.text, err = template.New("board").Parse(pageText); err == nil {
		b.policy, err = policy()
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", b.list)
	mux.HandleFunc("GET /at/{folder...}", b.folder)
	mux.HandleFunc("GET /compare", b.compare)
	own := http.NewCrossOriginProtection()
	mux.Handle("POST /notes", own.Handler(http.HandlerFunc(b.saveNotes)))
	mux.HandleFunc("GET /board.css", asset("text/css", styleText))
	mux.HandleFunc("GET /board.js", asset("text/javascript", figures.Live+scriptText))
	if tables.Last != nil {
		pages := browse.Handler(b.rollouts, status)
		mux.Handle("GET /rollouts", pages)
		mux.Handle("GET /rollouts/", pages)
	}
	b.routes = hosts.Only(mux, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil)
	return b, nil
}

// Close closes the folder.
func (b *Board) Close() error { return b.root.Close() }

// ServeHTTP answers / (the list), /at/FOLDER/, /compare?run=FOLDER&run=FOLDER and /rollouts?run=FOLDER, and takes notes
// at /notes.
func (b *Board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", b.policy)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	b.routes.ServeHTTP(w, r)
}

func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = io.WriteString(w, text)
	}
}

// inline matches the scripts and style sheets that a page of package report has in it.
var inline = regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`)

// policy returns a content security policy that allows the board's own files, and what is inline in a page without
// anyone's results.
func policy() (string, error) {
	var empty bytes.Buffer
	if err := report.Arms(&empty, "", []results.NamedRuns{{Runs: []*results.Run{{}}}}); err != nil {
		return "", err
	}
	hashes := make(map[string]string)
	for _, m := range inline.FindAllSubmatch(empty.Bytes(), -1) {
		sum := sha256.Sum256(m[2])
		hashes[string(m[1])] += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src 'self'" + hashes["script"] + "; style-src 'self'" + hashes["style"] +
		"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'", nil
}

// folder answers with the page of a run, a comparison or a study.
func (b *Board) folder(w http.ResponseWriter, r *http.Request) {
	dir, slash := strings.CutSuffix("/"+r.PathValue("folder"), "/")
	if dir = strings.TrimPrefix(dir, "/"); dir == "" {
		dir = "."
	}
	if !slash && fs.ValidPath(dir) { // the links of a study's page are relative to its folder
		http.Redirect(w, r, address(dir), http.StatusFound)
		return
	}
	b.answer(w, r, []string{dir}, func(page io.Writer) error { return report.Folder(page, b.full(dir)) })
}

// compare answers with the page of several runs, each an arm of its own.
func (b *Board) compare(w http.ResponseWriter, r *http.Request) {
	dirs := r.URL.Query()["run"]
	switch n := len(dirs); {
	case n == 0:
		b.fail(w, http.StatusBadRequest, errors.New("no run is chosen: go back to the list and tick some"))
		return
	case n > report.MostArms:
		b.fail(w, http.StatusBadRequest, fmt.Errorf("%d runs are chosen: a page shows at most %d", n, report.MostArms))
		return
	}
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) {
			b.fail(w, http.StatusBadRequest, fmt.Errorf("run=%s is given twice: want each run once", dir))
			return
		}
	}
	b.answer(w, r, dirs, func(page io.Writer) error {
		var arms []results.NamedRuns
		above := shared(dirs)
		for _, dir := range dirs {
			run, err := results.ReadBegunRun(b.full(dir))
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(b.name(dir), above)
			arms = append(arms, results.NamedRuns{Name: name, Runs: []*results.Run{run}})
		}
		return report.Arms(page, "Runs side by side", arms)
	})
}

// answer answers with a page drawn from folders, unless the caller has it.
func (b *Board) answer(w http.ResponseWriter, r *http.Request, dirs []string, draw func(io.Writer) error) {
	tag, err := b.tag(r.URL.Path, dirs)
	if err != nil {
		b.fail(w, status(err), err)
		return
	}
	if unchanged(w, r, tag) {
		return
	}
	body, err := b.page(r.URL.Path, tag, dirs, draw)
	if err != nil {
		w.Header().Del("ETag")
		b.fail(w, status(err), err)
		return
	}
	write(w, http.StatusOK, body)
}

// unchanged sets the entity tag of an answer, and answers a caller that has it.
func unchanged(w http.ResponseWriter, r *http.Request, tag string) bool {
	tag = `"` + tag + `"`
	w.Header().Set("ETag", tag)
	same := r.Header.Get("If-None-Match") == tag
	if same {
		w.WriteHeader(http.StatusNotModified)
	}
	return same
}

// page returns the page of an address, drawn anew if the tag is another.
func (b *Board) page(at, tag string, dirs []string, draw func(io.Writer) error) ([]byte, error) {
	b.drawing.Lock()
	defer b.drawing.Unlock()
	key := strings.Join(append([]string{at}, dirs...), "\x00")
	if p := b.pages[key]; p.tag == tag {
		return p.body, nil
	}
	var page, bar bytes.Buffer
	if err := draw(&page); err != nil {
		return nil, err
	}
	names := make([]string, len(dirs))
	for i, dir := range dirs {
		names[i] = b.name(dir)
	}
	v := view{Dir: b.dir, Tag: tag, At: strings.Join(names, ", ")}
	if at != "/compare" {
		v.Notes = b.form(dirs[0])
	}
	if len(dirs) == 1 && !results.IsStudy(b.full(dirs[0])) && !results.IsComparison(b.full(dirs[0])) {
		v.Rollouts = b.rolloutsAddress(dirs[0])
	}
	if err := b.text.ExecuteTemplate(&bar, "bar", v); err != nil {
		return nil, err
	}
	body := bytes.Replace(page.Bytes(), []byte("<body>\n"), append([]byte("<body>\n"), bar.Bytes()...), 1)
	if len(b.pages) >= maxPages {
		clear(b.pages)
	}
	b.pages[key] = drawn{tag, body}
	return body, nil
}

// tag returns an entity tag that changes when a file changes that the page of these folders is drawn from. It refuses
// folders and files outside the board's.
func (b *Board) tag(at string, dirs []string) (string, error) {
	h, total := sha256.New(), int64(0)
	fmt.Fprintln(h, b.opened.UnixNano(), at)
	for _, dir := range dirs {
		if !fs.ValidPath(dir) {
			return "", fmt.Errorf("%q: %w: want a folder inside %s", dir, fs.ErrInvalid, b.dir)
		}
		files, err := b.sources(dir)
		if err != nil {
			return "", err
		}
		for _, file := range files {
			info, err := b.root.Stat(file)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				fmt.Fprintf(h, "%q none\n", file)
				continue
			case err != nil:
				return "", err
			case !info.Mode().IsRegular():
				return "", fmt.Errorf("%s: is no regular file: want one as a run writes it", file)
			}
			total += info.Size()
			fmt.Fprintf(h, "%q %d %d\n", file, info.Size(), info.ModTime().UnixNano())
		}
	}
	if total > maxBytes {
		return "", fmt.Errorf("the files of this page have %d MB: the board draws up to %d MB: choose fewer runs, or "+
			"use reprise report", total>>20, maxBytes>>20)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// sources lists the files that the page of a folder is drawn from, whether or not they exist.
func (b *Board) sources(dir string) ([]string, error) {
	if info, err := b.root.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: is no folder: want the folder of a run, a comparison or a study", dir)
	}
	ofRun := func(dir string) (files []string) {
		for _, name := range []string{results.ConfigFile, results.MetricsFile, results.TimingFile, results.EvalFile,
			results.ProblemsFile, results.SummaryFile, results.NotesFile} {
			files = append(files, path.Join(dir, name))
		}
		return files
	}
	switch {
	case results.IsStudy(b.full(dir)):
		return []string{path.Join(dir, results.StudyFile), path.Join(dir, results.NotesFile)}, nil
	case !results.IsComparison(b.full(dir)):
		return ofRun(dir), nil
	}
	files := []string{path.Join(dir, results.CompareFile), path.Join(dir, results.NotesFile)}
	for _, arm := range []string{results.BaselineArm, results.ReplayArm} {
		seeds, err := fs.ReadDir(b.root.FS(), path.Join(dir, arm))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, seed := range seeds {
			files = append(files, ofRun(path.Join(dir, arm, seed.Name()))...)
		}
	}
	return files, nil
}

// full returns the path of a folder of the board in the file system.
func (b *Board) full(dir string) string { return filepath.Join(b.dir, filepath.FromSlash(dir)) }

// name returns the name of a folder for readers: the board's own has the name that it was opened by.
func (b *Board) name(dir string) string {
	if dir == "." {
		return filepath.Base(b.dir)
	}
	return dir
}

// shared returns the folder that several folders are in, with a slash at its end, so that their names can do without.
func shared(dirs []string) string {
	for above := path.Dir(dirs[0]); above != "."; above = path.Dir(above) {
		outside := func(dir string) bool { return !strings.HasPrefix(dir, above+"/") }
		if !slices.ContainsFunc(dirs, outside) {
			return above + "/"
		}
	}
	return ""
}

// address returns the address of the page of a folder.
func address(dir string) string {
	if dir == "." {
		return "/at/"
	}
	return (&url.URL{Path: "/at/" + dir + "/"}).EscapedPath()
}

// status returns the status code that fits an error.
func status(err error) int {
	switch {
	case errors.Is(err, fs.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	default:
		return http.StatusInternalServerError
	}
}

// view is the input of the templates.
type view struct {
	Dir, Tag, At string
	Rollouts     string     // address of the run's
	Notes        *notesView // of the page's folder
	Style        template.CSS
	Error        string // instead of a list
	Rows         []row
	Any          bool // there are rows, shown or not
	Counts       string
	Bound        string // what the list leaves out
	Most         int    // runs side by side
	Columns      []column
	Query        query
	Choices      []choice // of columns of the configuration
}

// render renders a page of the board's own.
func (b *Board) render(v view) ([]byte, error) {
	v.Dir, v.Style = b.dir, template.CSS(report.Style()) //nolint:gosec // our own
	var page bytes.Buffer
	err := b.text.Execute(&page, v)
	return page.Bytes(), err
}

// fail answers with an error in words.
func (b *Board) fail(w http.ResponseWriter, code int, err error) {
	page, bad := b.render(view{Error: err.Error()})
	if bad != nil {
		page = []byte(template.HTMLEscapeString(err.Error()))
	}
	write(w, code, page)
}

func write(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}
