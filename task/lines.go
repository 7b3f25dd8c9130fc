package task

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the number of bytes that a JSON line may have.
const MaxLine = 16 << 20

// EachLine calls visit for every line that is not blank, with its number from 1. An error, of
// visit's too, names the line. The bytes are valid during the call only.
func EachLine(r io.Reader, visit func(number int, line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxLine+2) // and its line end
	number := 0
	for lines.Scan() {
		number++
		line := lines.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := visit(number, line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes: shorten or split it", number+1, MaxLine)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	return nil
}

// StringField returns a field of a JSON object that has to be a string.
func StringField(fields map[string]json.RawMessage, name string) (string, error) {
	raw, ok := fields[name]
	if !ok {
		return "", fmt.Errorf("field %s: missing: want a string", name)
	}
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("field %s: %.40s: want a string, in quotes", name, raw)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("field %s: %w", name, err)
	}
	return s, nil
}
