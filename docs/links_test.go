package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`(?:\]\(|(?:src|srcset)=")([^)"\s]+)[)"]`)
	linked  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	// omitted is what GitHub leaves out of a heading's anchor.
	omitted = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the anchors that a page shows for the headings of a document.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := strings.ToLower(linked.ReplaceAllString(m[1], "$1"))
		found[strings.ReplaceAll(omitted.ReplaceAllString(title, ""), " ", "-")] = true
	}
	return found
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	got := anchors("# The schedule (v, i)\n```\n# no heading\n```\n## TensorBoard and Weights & Biases\n### [`a.b`](c.md)\n")
	for _, want := range []string{"the-schedule-v-i", "tensorboard-and-weights--biases", "ab"} {
		if !got[want] {
			t.Errorf("no %s among %v", want, got)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v, want 3 anchors", got)
	}
}

func TestEveryLinkOfTheDocumentsLeadsToAFileAndAHeading(t *testing.T) {
	paths := documents(t)
	for _, pattern := range []string{"../*.md", "../python/*.md", "../benchmarks/*/*.md"} {
		more, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, more...)
	}
	links := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			name, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if name != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: there is no such file", path, m[1])
				continue
			}
			if anchor == "" || filepath.Ext(target) != ".md" {
				continue
			}
			there, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if !anchors(string(there))[anchor] {
				t.Errorf("%s: %s: no heading has this anchor", path, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("%d links: want more", links)
	}
}
