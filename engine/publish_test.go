package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

func TestPublishedVersionsAreWholeAndOnlyTheNewestStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "weights")
	if _, err := Newest(dir, 9); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	publish := func(v rollout.Version, content string) Weights {
		t.Helper()
		w, err := Publish(dir, v, 2, func(folder string) error {
			return errors.Join(os.WriteFile(filepath.Join(folder, "model.safetensors"), []byte(content), 0o644),
				os.Mkdir(filepath.Join(folder, "more"), 0o755),
				os.WriteFile(filepath.Join(folder, "more", "config.json"), []byte("{}"), 0o644))
		})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for v := range rollout.Version(4) {
		publish(v*5, "x")
	}
	if names := entries(t, dir); names != "v10 v15" {
		t.Errorf("of versions 0, 5, 10, 15 there are %s, want the newest 2", names)
	}
	for most, want := range map[rollout.Version]rollout.Version{10: 10, 14: 10, 15: 15, 99: 15} {
		if w, err := Newest(dir, most); err != nil || w.Version != want || !filepath.IsAbs(w.Folder) {
			t.Errorf("newest up to %d: %+v, %v, want %d", most, w, err, want)
		}
	}
	if _, err := Newest(dir, 9); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "up to 9") {
		t.Errorf("up to version 9: %v", err)
	}

	w := publish(15, "again") // a trainer that went back to its checkpoint
	if text, err := os.ReadFile(filepath.Join(w.Folder, "model.safetensors")); string(text) != "again" {
		t.Errorf("published twice: %q, %v", text, err)
	}
	if _, err := Publish(dir, 3, 2, func(string) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "has version 15, of another run") {
		t.Errorf("below the versions of another run: %v", err)
	}

	if err := os.Truncate(filepath.Join(dir, "v15", "model.safetensors"), 2); err != nil { // as while it is copied
		t.Fatal(err)
	}
	if w, err := Newest(dir, 99); err != nil || w.Version != 10 {
		t.Errorf("beside a version that is not whole: %+v, %v, want 10", w, err)
	}
	if _, err := Publish(dir, 20, 2, func(string) error { return errors.New("the disk is full") }); err == nil {
		t.Error("a version that could not be written was published")
	}
	if names := entries(t, dir); names != "v10 v15" {
		t.Errorf("after failures there are %s", names)
	}
	for above, want := range map[rollout.Version]string{15: "v10 v15", 10: "v10", rollout.NoVersion: ""} {
		if err := RemovePublished(dir, rollout.NoVersion); err != nil {
			t.Fatal(err)
		}
		publish(10, "x")
		publish(15, "x")
		err := errors.Join(RemovePublished(dir, above), RemovePublished(filepath.Join(dir, "nowhere"), above))
		if err != nil || entries(t, dir) != want {
			t.Errorf("above %d: %v; there are %q, want %q", above, err, entries(t, dir), want)
		}
	}
}

// Trainers in Python write the same (python/tests/test_weights.py).
func TestTheManifestIsThatOfPython(t *testing.T) {
	w, err := Publish(t.TempDir(), 7, 2, func(folder string) error {
		return os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(w.Folder, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "version": 7,
  "files": {
    "config.json": {
      "bytes": 2,
      "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    }
  }
}
`
	if v, err := PublishedVersion(w.Folder); string(text) != want || v != 7 {
		t.Errorf("version %d, %v, manifest\n%s", v, err, text)
	}
}

func entries(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
