package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Log appends lines of JSON to a file. Every line is one write, so that what a killed process
// leaves is whole lines and at most one torn line at the end. It is not safe for concurrent use.
type Log[T any] struct {
	file  *os.File
	lines int
}

// CreateLog makes the file and refuses one that exists, so that no run overwrites another.
func CreateLog[T any](path string) (*Log[T], error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	return &Log[T]{file: f}, nil
}

// ResumeLog opens an existing file, cuts it after its first lines lines and appends from there.
// What is cut away, a torn line among it, is what the run had written after its checkpoint and
// will write again. A file with fewer whole lines is refused: it is not the one that the
// checkpoint knew.
func ResumeLog[T any](path string, lines int) (*Log[T], error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	end, found, err := endOfLine(f, lines)
	if err == nil && found < lines {
		err = fmt.Errorf("%s: has %d whole lines, the checkpoint was taken after %d; start the run anew in another folder", path, found, lines)
	}
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Log[T]{file: f, lines: lines}, nil
}

// endOfLine returns the offset behind the n-th newline, or behind the last if there are fewer, and
// the number of newlines up to there.
func endOfLine(r io.Reader, n int) (end int64, found int, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return 0, 0, err
	}
	for found < n {
		i := bytes.IndexByte(text[end:], '\n')
		if i < 0 {
			break
		}
		end += int64(i) + 1
		found++
	}
	return end, found, nil
}

// Append writes one line. A NaN or an infinity in a plain float64 field is refused and nothing is
// written.
func (l *Log[T]) Append(line T) error {
	text, err := encode(line, "")
	if err != nil {
		return fmt.Errorf("%s: line %d: %w", l.file.Name(), l.lines+1, err)
	}
	if _, err := l.file.Write(text); err != nil {
		return err
	}
	l.lines++
	return nil
}

// Lines returns how many lines the file holds; a checkpoint remembers it for ResumeLog.
func (l *Log[T]) Lines() int { return l.lines }

// Sync makes what was appended survive power loss; call it before a checkpoint that counts on it.
func (l *Log[T]) Sync() error { return l.file.Sync() }

// Close syncs and closes the file.
func (l *Log[T]) Close() error {
	if err := l.file.Sync(); err != nil {
		l.file.Close()
		return err
	}
	return l.file.Close()
}

// encode writes v as JSON with a newline behind it, < and > unescaped for the reader's sake.
func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
