package main

import (
	"errors"
	"os"
	"testing"
)

func TestDiskFilesAreWrittenFromFrontToEndAgainAndAgain(t *testing.T) {
	const bytes, block = 16 << 20, 4 << 20
	for _, rewrite := range []bool{false, true} {
		d, err := newDiskFile(t.TempDir(), bytes, rewrite)
		if err != nil {
			t.Fatal(err)
		}
		first, err := d.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for range bytes/block + 1 {
			if took, err := d.contender(block).run(t.Context(), 0); err != nil || took.operations != 1 {
				t.Fatalf("%+v, %v", took, err)
			}
		}
		last, err := d.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		want := int64(block)
		if rewrite {
			want = bytes
		}
		if last.Size() != want || rewrite && !os.SameFile(first, last) {
			t.Errorf("rewritten: %t: the file has %d bytes: want %d", rewrite, last.Size(), want)
		}
		d.close()
		if _, err := os.Stat(d.path); !errors.Is(err, os.ErrNotExist) {
			t.Error("the file is left")
		}
	}
}
