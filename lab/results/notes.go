package results

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/rollout/option"
)

// NotesFile is the name of [Notes] in the folder of a run, a comparison or a study. Training neither reads nor writes
// it.
const NotesFile = "notes.json"

// Bounds of notes.
const (
	MaxNotesBytes = 64 << 10 // of the file
	maxTags       = 20
	maxTag        = 40     // letters
	maxNote       = 10_000 // letters
)

// Notes is notes.json: what people say of a run.
type Notes struct {
	Format int      `json:"format"`
	Tags   []string `json:"tags"`
	Note   string   `json:"note"`
}

// NewNotes returns notes with the tags of a text, which has spaces or commas between them, each once.
func NewNotes(tags, note string) (*Notes, error) {
	n := &Notes{Format: Format, Tags: []string{}, Note: strings.TrimSpace(strings.ReplaceAll(note, "\r\n", "\n"))}
	for _, tag := range strings.FieldsFunc(tags, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		if !slices.Contains(n.Tags, tag) {
			n.Tags = append(n.Tags, tag)
		}
	}
	return n, n.validate()
}

// Empty reports whether nothing is said.
func (n *Notes) Empty() bool { return len(n.Tags) == 0 && n.Note == "" }

func (n *Notes) validate() error {
	var p option.Problems
	p.Check(len(n.Tags) <= maxTags, "tags", len(n.Tags), "at most %d", maxTags)
	for _, tag := range n.Tags {
		bad := strings.ContainsFunc(tag, func(r rune) bool { return r == ',' || unicode.IsSpace(r) || unicode.IsControl(r) })
		p.Check(tag != "" && !bad && utf8.ValidString(tag) && utf8.RuneCountInString(tag) <= maxTag, "tags",
			fmt.Sprintf("%.80q", tag), "1 to %d letters without spaces and commas", maxTag)
	}
	letters := utf8.RuneCountInString(n.Note)
	p.Check(utf8.ValidString(n.Note) && letters <= maxNote, "note", fmt.Sprintf("%d letters", letters),
		"at most %d, in UTF-8", maxNote)
	return p.Err()
}

// ParseNotes reads the text of notes.json.
func ParseNotes(text []byte) (*Notes, error) {
	n := new(Notes)
	if err := decode(text, n); err != nil {
		return nil, fmt.Errorf("%s: %w", NotesFile, err)
	}
	if n.Format != Format {
		return nil, fmt.Errorf("%s: format %d: want %d, as this build writes", NotesFile, n.Format, Format)
	}
	if err := n.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", NotesFile, err)
	}
	return n, nil
}

// Text is what stands in notes.json.
func (n *Notes) Text() ([]byte, error) { return encode(n, "  ") }
