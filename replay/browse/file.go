package browse

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/rollout"
)

// File is the page with some rollouts of a table in it, for a colleague or a record: it asks nobody. Its expressions
// are those that it was made with; texts can be searched.
type File struct {
	Of       string          `json:"of"`      // whose rollouts, in words
	Version  rollout.Version `json:"version"` // of the table
	Matched  int             `json:"matched"` // rollouts that were found, of which these are the first
	Rollouts []Sampled       `json:"rollouts"`

	bytes int // of the rollouts as JSON
}

// Sampled is a rollout in a file.
type Sampled struct {
	Rollout
	Scores *Scored `json:"scores,omitempty"` // nil: no policy was asked
}

// mostBeside bounds the rollouts of other groups that a file has beside each.
const mostBeside = 8

// Add adds a rollout, unless the rollouts would take more than so many bytes; then it reports false.
func (f *File) Add(r Sampled, most int) (bool, error) {
	r.Scorable = false
	r.Others.Rows = r.Others.Rows[:min(len(r.Others.Rows), mostBeside)]
	text, err := json.Marshal(r)
	if err != nil || f.bytes+len(text) > most {
		return false, err
	}
	f.bytes += len(text)
	f.Rollouts = append(f.Rollouts, r)
	return true, nil
}

// Write writes the file as HTML. It runs its own script alone, and fetches nothing.
func (f *File) Write(w io.Writer) error {
	data, err := json.Marshal(f) // with <, > and & escaped, so that no text ends the element
	if err != nil {
		return err
	}
	style, script := figures.Palette+styleText, sharedText+scriptText
	policy := "default-src 'none'; script-src " + digest(script) + "; style-src " + digest(style) +
		"; img-src data:; base-uri 'none'; form-action 'none'"
	page := strings.NewReplacer(
		charsetTag, charsetTag+"\n<meta http-equiv=\"Content-Security-Policy\" content=\""+policy+"\">",
		linkTag, "<style>"+style+"</style>", sharedTag+"\n", "", scriptTag+"\n", "",
		"</body>", "<script type=\"application/json\" id=\"kept\">"+string(data)+"</script>\n<script>"+script+
			"</script>\n</body>").Replace(pageText)
	_, err = io.WriteString(w, page)
	return err
}

// Elements of the page that a file has otherwise.
const (
	charsetTag = `<meta charset="utf-8">`
	linkTag    = `<link rel="stylesheet" href="rollouts/page.css">`
	sharedTag  = `<script src="rollouts/text.js" defer></script>`
	scriptTag  = `<script src="rollouts/page.js" defer></script>`
)

// digest names an inline script or style in a content security policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
