package maths

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/reprise-rl/reprise/task"
	"github.com/reprise-rl/reprise/task/maths/answer"
)

// ReadFile reads a file of problems: JSON lines or one JSON array of objects, gzipped or not; which it is shows in the bytes.
func ReadFile(path string) ([]Problem, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path)
}

// maxFile bounds the bytes of a file after it is unpacked.
const maxFile = 1 << 30

// Read reads problems; name is the file's in errors. Problems without an answer (null or empty) are passed over, a problem that occurs
// again with an answer that says the same counts once, and one with several answers is an error.
func Read(r io.Reader, name string) ([]Problem, error) {
	c := &collection{places: map[string]string{}, answers: map[string]string{}}
	if err := c.read(r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(c.problems) == 0 {
		return nil, fmt.Errorf("%s: no problems: want JSON lines, or a JSON array, of objects with problem and answer", name)
	}
	return c.problems, nil
}

// collection gathers the problems of a file.
type collection struct {
	problems []Problem
	places   map[string]string // where each problem stands first, by ID
	answers  map[string]string
}

func (c *collection) read(r io.Reader) error {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(b)
		if err != nil {
			return err
		}
		b = bufio.NewReader(&bounded{unpacked, maxFile})
	}
	if array(b) {
		return c.array(b)
	}
	return task.EachLine(b, func(number int, line []byte) error {
		return c.add(line, fmt.Sprintf("line %d", number))
	})
}

// bounded ends with an error where the reader has more bytes than left.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes when unpacked", maxFile)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// array reports whether a text begins with a bracket, white space aside.
func array(b *bufio.Reader) bool {
	for size := 1; ; size++ {
		head, err := b.Peek(size)
		if err != nil {
			return false
		}
		if last := head[size-1]; !bytes.ContainsRune([]byte(" \t\r\n\ufeff"), rune(last)) && last < 0x80 {
			return last == '['
		}
	}
}

// array reads a JSON array of objects, one at a time.
func (c *collection) array(b *bufio.Reader) error {
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" {
		_, _ = b.Discard(3)
	}
	d := json.NewDecoder(b)
	if _, err := d.Token(); err != nil {
		return err
	}
	for number := 1; d.More(); number++ {
		var object json.RawMessage
		if err := d.Decode(&object); err != nil {
			return fmt.Errorf("problem %d: %w", number, err)
		}
		place := fmt.Sprintf("problem %d", number)
		if err := c.add(object, place); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
	}
	_, err := d.Token()
	return err
}

// add reads one object.
func (c *collection) add(object []byte, place string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || fields == nil {
		return fmt.Errorf("%.60q is no JSON object: want {\"problem\": ..., \"answer\": ...}", object)
	}
	p, err := problemOf(fields)
	if errors.Is(err, errNoAnswer) {
		return nil
	}
	if err != nil {
		return err
	}
	if first := c.places[p.ID]; first != "" {
		if answer.Equal(answer.Parse(c.answers[p.ID]), answer.Parse(p.Answer)) {
			return nil
		}
		return fmt.Errorf("asked at %s already, answered %q there and %q here: remove one of them", first, c.answers[p.ID], p.Answer)
	}
	c.places[p.ID], c.answers[p.ID] = place, p.Answer
	c.problems = append(c.problems, p)
	return nil
}
