package sokoban

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLevelsAreWrittenAsTheyAreRead(t *testing.T) {
	for _, text := range []string{
		row("@$."), row("+$ $."), row("*@$.*"),
		"######\n#@   #\n# $$ #\n#..  #\n######\n",
	} {
		l, err := parse(text)
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if l.String() != text {
			t.Errorf("written as\n%swant\n%s", l, text)
		}
		rows := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if r, c := l.room.rows, l.room.columns; r != len(rows) || c != len(rows[0]) {
			t.Errorf("%dx%d, want %dx%d", r, c, len(rows), len(rows[0]))
		}
		if want := strings.Count(text, "$") + strings.Count(text, "*"); l.room.boxes != want {
			t.Errorf("%d boxes, want %d", l.room.boxes, want)
		}
	}
}

func TestMalformedLevelsAreRefusedByPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "1 rows of 0 columns: want at least 3",
		"###\n###":                         "2 rows of 3 columns: want at least 3",
		row(strings.Repeat(" ", 90)):       "3 rows of 92 columns: want at least 3 of each and at most 256 cells",
		"#####\n#@$.#\n####":               "row 3: 4 columns: want 5",
		"#####\n#@$.#\n######":             "row 3: 6 columns: want 5",
		"#####\n#@$. \n#####":              `row 2, column 5: ' ': want '#' all around`,
		"##@##\n# $.#\n#####":              `row 1, column 3: '@': want '#' all around`,
		row("@$.x"):                        `row 2, column 5: 'x': want one of "# .$*@+"`,
		row(" $."):                         "0 players: want 1",
		row("@+$"):                         "2 players: want 1",
		row("@$ "):                         "1 boxes, 0 targets: want as many",
		row("@ "):                          "0 boxes, 0 targets: want as many, and at least one",
		row("@*$"):                         "2 boxes, 1 targets: want as many",
		row("@* "):                         "all boxes are on targets",
		row("@" + strings.Repeat("$", 11)): "row 2, column 13: '$': want at most 10 boxes",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestFilesOfLevelsAreReadWithAndWithoutAnnouncements(t *testing.T) {
	one, two := row("@$."), row(".$@")
	for text, want := range map[string]string{
		"":                              "",
		"; 0\n" + one + "\n; 1\n" + two: one + two,
		one + "\n\n\n" + two + "\n":     one + two,
		"\ufeff; 0\r\n" + strings.ReplaceAll(one, "\n", "\r\n") + "; 1\r\n" + two: one + two,
		strings.ReplaceAll(one, "\n", "  \n"):                                     one,
		"; nothing\n; 7\n" + one:                                                  one,
	} {
		levels, err := readLevels(strings.NewReader(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		var got strings.Builder
		for _, l := range levels {
			got.WriteString(l.String())
		}
		if got.String() != want {
			t.Errorf("%q is read as\n%swant\n%s", text, got.String(), want)
		}
	}
	for text, want := range map[string]string{
		"; 0\n" + one + "\n; 1\n" + row("$."): "level of line 7: 0 players",
		one + two:                             "level of line 1: 2 players",
		strings.Repeat("#", 70_000):           "line 1: too long",
	} {
		if _, err := readLevels(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestAFolderIsReadFileByFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.txt": row(".$@"), "a.txt": row("@$."), "readme.md": "no level"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	levels, err := readPath(dir)
	if err != nil || len(levels) != 2 || levels[0].String() != row("@$.") {
		t.Errorf("%v, %v", levels, err)
	}
	broken := filepath.Join(dir, "c.txt")
	if err := os.WriteFile(broken, []byte("###\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readPath(dir); err == nil || !strings.Contains(err.Error(), broken+": level of line 1") {
		t.Errorf("%v does not name the file", err)
	}
	if _, err := readPath(filepath.Join(dir, "none")); err == nil {
		t.Error("a path of nothing is read")
	}
}

func FuzzReadGivesLevelsThatAreReadAgain(f *testing.F) {
	f.Add("; 0\n" + row("@$.") + "\n; 1\n" + row("+$ $."))
	f.Add("#####\n#@$.#\n#####\n; 1")
	f.Add(";\n\n###\n\r\n#")
	f.Fuzz(func(t *testing.T, text string) {
		levels, err := readLevels(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, l := range levels {
			again, err := parse(l.String())
			if err != nil || again.String() != l.String() || again.id() != l.id() {
				t.Fatalf("%q is read again as %q, %v", l, again, err)
			}
			n := newNaive(l.String())
			if n.count("@+") != 1 || n.count("$*") != n.count(".*+") || n.count("$") == 0 {
				t.Fatalf("%q is no level", l)
			}
		}
	})
}
