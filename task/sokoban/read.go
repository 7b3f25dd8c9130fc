package sokoban

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Read reads levels in the format of the Boxoban files: a line that begins with ";" announces a level, whose rows follow;
// blank lines, or the next announcement, end it. Announcements may be missing. An error names the line where the level
// begins.
func Read(from io.Reader) ([]Level, error) {
	var levels []Level
	var rows []string
	line, first := 0, 0
	end := func() error {
		if len(rows) == 0 {
			return nil
		}
		l, err := Parse(strings.Join(rows, "\n"))
		if err != nil {
			return fmt.Errorf("level of line %d: %w", first, err)
		}
		levels, rows = append(levels, l), rows[:0]
		return nil
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line++
		row := strings.TrimRight(strings.TrimPrefix(lines.Text(), "\ufeff"), " \t\r") // a level's rows end in walls
		if row != "" && row[0] != ';' {
			if len(rows) == 0 {
				first = line
			}
			rows = append(rows, row)
			continue
		}
		if err := end(); err != nil {
			return nil, err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: too long for the row of a level", line+1)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return levels, end()
}

// ReadPath reads a file of levels, or all the files that end in .txt of a folder, in the order of their names.
func ReadPath(path string) ([]Level, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var levels []Level
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".txt" {
			continue
		}
		more, err := readFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		levels = append(levels, more...)
	}
	return levels, nil
}

func readFile(path string) ([]Level, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	levels, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return levels, nil
}
