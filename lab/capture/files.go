package capture

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/rollout/option"
)

// files keeps sessions in a folder. A session is a file of lines, each a JSON object, that grows with every call: what
// was written survives a kill -9, and from the reward on it is synced and survives a loss of power. One file lists what
// became of the sessions that have ended, of which the newest are remembered. A nil *files keeps nothing.
type files struct {
	dir    string
	locked *os.File
	ending sync.Mutex // who appends to the file of what became of sessions
}

// line is a line of a session's file, which has one of them.
type line struct {
	Begin  *begin  `json:"begin,omitempty"`
	Pieces []piece `json:"pieces,omitempty"`
	Reward *reward `json:"reward,omitempty"`
}

// Ended is what became of a session.
type Ended struct {
	UID     string   `json:"uid"`               // of its beginning
	Answers []string `json:"answers,omitempty"` // ids, which also name the session
	Outcome
}

const (
	endedFile    = "ended.jsonl"
	settingsFile = "settings.json"
)

// settings are the options on which the sessions of a folder depend. With others, groups would enter in other company,
// with a wrong temperature, or a second time in another table.
type settings struct {
	Table       string  `json:"table"`
	Group       int     `json:"group"`
	Temperature float64 `json:"temperature"`
	Latest      bool    `json:"latest"`
}

// settle compares settings with those of the folder's sessions. A folder without sessions takes the new ones.
func (f *files) settle(s settings, held bool) error {
	if f == nil {
		return nil
	}
	path := filepath.Join(f.dir, settingsFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case held:
		var was settings
		if err := json.Unmarshal(text, &was); err != nil {
			return fmt.Errorf("%s: %w: it was changed, or another version wrote it: move %s away", path, err, f.dir)
		}
		const want = "%v, with which sessions wait in %s, or another --data"
		var p option.Problems
		p.Check(s.Table == was.Table, "table", s.Table, want, was.Table, f.dir)
		p.Check(s.Group == was.Group, "group", s.Group, want, was.Group, f.dir)
		p.Check(s.Temperature == was.Temperature, "temperature", s.Temperature, want, was.Temperature, f.dir)
		p.Check(s.Latest == was.Latest, "latest", s.Latest, want, was.Latest, f.dir)
		return p.Err()
	}
	return disk.ReplacePrivateFile(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}

// openFiles opens a folder, and makes it if it is not there. "": nil.
func openFiles(dir string) (*files, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return nil, err
	}
	locked, err := disk.LockFile(filepath.Join(dir, "lock"), 0)
	if err != nil {
		return nil, fmt.Errorf("%w: give another --data", err)
	}
	return &files{dir: dir, locked: locked}, nil
}

// close lets another program have the folder.
func (f *files) close() error {
	if f == nil {
		return nil
	}
	return f.locked.Close()
}

func (f *files) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(f.dir, "sessions", hex.EncodeToString(sum[:16])+".jsonl")
}

// write appends lines to a session's file, in one write, and makes the file if they begin with the session's. A line of
// which only a part could be written is cut off again.
func (f *files) write(s *session, sync bool, lines ...line) error {
	if f == nil {
		return nil
	}
	var text bytes.Buffer
	for _, l := range lines {
		if err := json.NewEncoder(&text).Encode(l); err != nil {
			return err
		}
	}
	flags := 0
	if lines[0].Begin != nil {
		flags = os.O_CREATE
	}
	if err := appendTo(f.path(s.id), flags, text.Bytes(), sync); err != nil {
		return fmt.Errorf("writing session %q to disk: %w: make room in %s", s.id, err, f.dir)
	}
	return nil
}

func appendTo(path string, flags int, text []byte, sync bool) (err error) {
	file, err := os.OpenFile(path, flags|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err == nil && sync {
		if err = file.Sync(); err == nil {
			err = disk.SyncFolder(filepath.Dir(path))
		}
	}
	if err != nil {
		return errors.Join(err, file.Truncate(info.Size()))
	}
	return nil
}

// end notes what became of sessions, all of them or none, and removes their files.
func (f *files) end(list []Ended, of []*session) error {
	if f == nil {
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	f.ending.Lock()
	err = appendTo(filepath.Join(f.dir, endedFile), os.O_CREATE, append(text, '\n'), true)
	f.ending.Unlock()
	if err != nil {
		return fmt.Errorf("noting what became of %d sessions: %w: make room in %s", len(of), err, f.dir)
	}
	for _, s := range of {
		if err := os.Remove(f.path(s.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// read returns the sessions that the folder holds and what became of others, the newest last.
func (f *files) read() (held []*session, ended []Ended, err error) {
	if f == nil {
		return nil, nil, nil
	}
	path := filepath.Join(f.dir, endedFile)
	err = eachLine(path, func(text []byte) error {
		var list []Ended
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		ended = append(ended, list...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if err := f.shorten(path, &ended); err != nil {
		return nil, nil, err
	}
	gone := make(map[string]bool)
	for _, e := range ended {
		gone[e.UID] = true
	}
	names, err := filepath.Glob(filepath.Join(f.dir, "sessions", "*.jsonl"))
	for _, name := range names {
		s, err := readSession(name)
		if err != nil {
			return nil, nil, err
		}
		if s == nil || gone[s.begin.UID] {
			if err := os.Remove(name); err != nil {
				return nil, nil, err
			}
			continue
		}
		held = append(held, s)
	}
	return held, ended, err
}

// shorten writes a list of ended sessions again if it has grown.
func (f *files) shorten(path string, ended *[]Ended) error {
	if len(*ended) <= maxEnded {
		return nil
	}
	*ended = (*ended)[len(*ended)-maxEnded:]
	text, err := json.Marshal(*ended)
	if err != nil {
		return err
	}
	return disk.ReplacePrivateFile(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// eachLine calls a function with each whole line of a file, and cuts off what follows the last: a write that was under
// way when the program was killed.
func eachLine(path string, read func([]byte) error) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer file.Close()
	in, whole := bufio.NewReaderSize(file, 1<<20), int64(0)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if err != nil { // its end
			return file.Truncate(whole)
		}
		whole += int64(len(text))
		if err := read(text); err != nil {
			return fmt.Errorf("%s, line %d: %w: it was changed, or another version wrote it: move it away", path, n, err)
		}
	}
}

// readSession reads a session's file, nil if it has not begun.
func readSession(path string) (s *session, err error) {
	err = eachLine(path, func(text []byte) error {
		var l line
		switch err := json.Unmarshal(text, &l); {
		case err != nil:
			return err
		case s == nil && l.Begin == nil:
			return errors.New("want the session's beginning first")
		case s == nil:
			s = newSession(*l.Begin)
		}
		for _, p := range l.Pieces {
			if !s.add(p) {
				return errors.New("a call does not fit those before")
			}
		}
		if l.Reward != nil {
			s.reward = l.Reward
		}
		return nil
	})
	return s, err
}

// printable reports whether a name can stand in headers, paths and logs.
func printable(name string) bool {
	return len(name) <= maxName && strings.IndexFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f ||
			r == 0xfffd
	}) < 0
}
