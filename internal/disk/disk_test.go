package disk_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
)

func TestAFailedWriteLeavesTheOldFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "summary.json")
	write := func(text string, fail error) error {
		return disk.ReplaceFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, fail)
		})
	}
	if err := write("old", nil); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	if err := write("half of the n", full); !errors.Is(err, full) {
		t.Fatalf("err = %v, want the writer's", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "old" {
		t.Errorf("the file holds %q, want old", text)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("%d files are left, want 1", len(files))
	}
}

func TestAReplacedFileIsReadableByAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := disk.ReplaceFile(path, func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v: want 0644", info.Mode(), err)
	}
}
