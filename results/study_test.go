package results

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAStudyIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	if IsStudy(dir) {
		t.Fatal("an empty folder counts as a study")
	}
	wrote := &Study{
		Name: "trial", Seeds: 2, Seconds: 12.5, AtOnce: 2, Machine: Machine{System: "linux/amd64", CPU: "a processor", Cores: 2}, Build: Build{Go: "go1"},
		Began: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Ended: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Arms: []StudyArm{{Name: "a", Folders: []string{"../runs/0", ""}, Failed: []string{"seed 2: why"}}}, Sheet: *soundSheet(),
	}
	if err := WriteStudy(dir, wrote); err != nil || !IsStudy(dir) {
		t.Fatalf("written: %v, error %v", IsStudy(dir), err)
	}
	read, err := ReadStudy(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, wrote) {
		t.Errorf("read %+v\nwrote %+v", read, wrote)
	}
	if lone := read.Sheet.Sections[0].Figures[0].Curves[0].At[1]; lone.Y.Known() || lone.Low.Known() {
		t.Errorf("what has no value came back as %+v", lone)
	}
}

func TestAStudyThatIsNotOneIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown field":   {`{"format": 1, "nam": "x"}`, `unknown field "nam"`},
		"another format":     {`{"format": 99}`, "is of format 99, this program reads"},
		"two values":         {`{"format": 1} {}`, "more than one JSON value"},
		"a list":             {`[]`, "not a JSON object"},
		"a torn file":        {`{"format": 1, "name": "x"`, "unexpected EOF"},
		"a number as a word": {`{"format": 1, "seeds": "four"}`, "seeds"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, StudyFile), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadStudy(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: error %v, want one that names the file and says %q", name, err, c.want)
		}
	}
	if _, err := ReadStudy(t.TempDir()); !os.IsNotExist(err) {
		t.Errorf("a folder without a study: error %v", err)
	}
}
