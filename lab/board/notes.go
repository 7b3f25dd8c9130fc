package board

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
)

// notesView is the form for the notes of a folder.
type notesView struct {
	Folder, Tags, Note string
	Was                string // the state of the file that the form was filled with
	Open               bool
	Error              string // why there is no form
}

// notes reads the notes of a folder, empty ones if there are none, and the state of the file: what a form that changes
// them has to name.
func (b *Board) notes(dir string) (n *results.Notes, was string, err error) {
	file := path.Join(dir, results.NotesFile)
	info, err := b.root.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return new(results.Notes), "none", nil
	case err != nil:
		return nil, "", err
	case !info.Mode().IsRegular() || info.Size() > results.MaxNotesBytes:
		return nil, "", fmt.Errorf("%s: want a regular file of at most %d bytes", file, results.MaxNotesBytes)
	}
	text, err := b.root.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	if n, err = results.ParseNotes(text); err != nil {
		return nil, "", fmt.Errorf("%s: %w", dir, err)
	}
	return n, fmt.Sprintf("%x", sha256.Sum256(text)), nil
}

// form returns the form for the notes of a folder. Notes that cannot be read hide nothing else.
func (b *Board) form(dir string) *notesView {
	n, was, err := b.notes(dir)
	if err != nil {
		return &notesView{Error: err.Error()}
	}
	return &notesView{Folder: dir, Tags: strings.Join(n.Tags, " "), Note: n.Note, Was: was, Open: !n.Empty()}
}

// saveNotes writes what the form on a folder's page holds, and leads back to it. Posts of other sites do not come here.
func (b *Board) saveNotes(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 2*results.MaxNotesBytes)
	if err := r.ParseForm(); err != nil {
		b.fail(w, http.StatusBadRequest, fmt.Errorf("the notes cannot be read: %w: they may have %d KB", err,
			results.MaxNotesBytes>>10))
		return
	}
	dir := r.PostForm.Get("folder")
	if !fs.ValidPath(dir) {
		b.fail(w, http.StatusBadRequest, fmt.Errorf("folder=%.100q: want a folder inside %s", dir, b.dir))
		return
	}
	n, err := results.NewNotes(r.PostForm.Get("tags"), r.PostForm.Get("note"))
	if err != nil {
		b.fail(w, http.StatusBadRequest, err)
		return
	}
	code, err := b.write(dir, n, r.PostForm.Get("was"))
	if err != nil {
		b.fail(w, code, err)
		return
	}
	http.Redirect(w, r, address(dir), http.StatusSeeOther)
}

// write writes notes in place of those in a state that a form was filled with, or returns the status code for why not.
func (b *Board) write(dir string, n *results.Notes, was string) (code int, err error) {
	b.writing.Lock()
	defer b.writing.Unlock()
	if !b.shown(dir) {
		return http.StatusNotFound, fmt.Errorf("%s: is no folder of a run, a comparison or a study", dir)
	}
	_, is, err := b.notes(dir)
	if err != nil {
		return http.StatusInternalServerError, err
	}
	if is != was {
		return http.StatusConflict, fmt.Errorf("the notes of %s have changed meanwhile, and yours are not saved. Go back, "+
			"copy them, reload the page and add them there", b.name(dir))
	}
	file := path.Join(dir, results.NotesFile)
	if n.Empty() {
		if err := b.root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return http.StatusInternalServerError, err
		}
		return 0, nil
	}
	text, err := n.Text()
	if err != nil {
		return http.StatusInternalServerError, err
	}
	if err := b.replace(file, text); err != nil {
		return http.StatusInternalServerError, err
	}
	return 0, nil
}

// shown reports whether a folder is one that the list shows.
func (b *Board) shown(dir string) bool {
	for _, name := range []string{results.ConfigFile, results.StudyFile, results.CompareFile} {
		if info, err := b.root.Stat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// replace writes a file of the board's folder so that the old content stands until the new is on disk. It follows no
// link out of the folder.
func (b *Board) replace(file string, content []byte) (err error) {
	beside := file + "." + rand.Text()
	f, err := b.root.OpenFile(beside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.root.Remove(beside))
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return b.root.Rename(beside, file)
}
