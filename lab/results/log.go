package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Log appends lines of JSON to a file. Every line is one write, so that a killed process leaves whole lines and at most
// one torn line at the end. A Log is not safe for concurrent use.
type Log[T any] struct {
	file  *os.File
	lines int
}

// CreateLog creates the file. It refuses one that exists, so that no run overwrites another.
func CreateLog[T any](path string) (*Log[T], error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	return &Log[T]{file: f}, nil
}

// ResumeLog opens an existing file, cuts it after its first lines and appends from there. The run wrote the rest after
// its checkpoint and will write it again. A file with fewer whole lines is refused: the checkpoint does not belong to
// it.
func ResumeLog[T any](path string, lines int) (*Log[T], error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	end, found, err := endOfLine(f, lines)
	if err == nil && found < lines {
		err = fmt.Errorf("%s: has %d whole lines, the checkpoint was taken after %d; start the run again in "+
			"another folder",
			path, found, lines)
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

// endOfLine returns the offset behind the n-th newline, or behind the last one if there are fewer, and how many
// newlines precede it.
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

// Append writes one line. It refuses NaN and infinity in a plain float64 field, and then writes nothing.
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

// Lines returns how many lines the file holds. A checkpoint stores it for ResumeLog.
func (l *Log[T]) Lines() int { return l.lines }

// Sync makes the appended lines survive a loss of power. Call it before a checkpoint that stores their count.
func (l *Log[T]) Sync() error { return l.file.Sync() }

// Close syncs and closes the file.
func (l *Log[T]) Close() error { return errors.Join(l.file.Sync(), l.file.Close()) }

// readLines parses a file of lines. A file that does not exist has none.
func readLines[T any](dir, name string, parse func([]byte) ([]T, error)) ([]T, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return lines, nil
}

// parseLines decodes every whole line strictly and checks it against the line before it, nil for the first. A last line
// without a newline is torn and dropped.
func parseLines[T any](text []byte, check func(before, line *T) error) ([]T, error) {
	var lines []T
	for number := 1; ; number++ {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return lines, nil
		}
		var line T
		err := decode(text[:end], &line)
		if err == nil {
			var before *T
			if len(lines) > 0 {
				before = &lines[len(lines)-1]
			}
			err = check(before, &line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		lines = append(lines, line)
		text = text[end+1:]
	}
}

// decode reads exactly one JSON object with known fields.
func decode(text []byte, v any) error {
	if first := bytes.TrimLeft(text, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return errors.New("not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// encode writes v as JSON with a newline behind it. It leaves < and > as they are, for human readers.
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
