package report

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// Whatever stands in a study.json, its page is refused or drawn.
func FuzzStudyIsRefusedOrDrawn(f *testing.F) {
	f.Add([]byte(`{"arms": [{"name": "a", "folders": ["../runs/0", ""], "differs": ["seed: 1"], "failed": ["why"]}], "sheet": {"title": "t",
		"findings": [{"verdict": "holds"}], "sections": [{"tables": [{"columns": ["a", "b"], "rows": [["1", "-2 (1 to 3)"]]}]}], "facts": [{"name": "n"}]}}`))
	for _, figure := range []string{
		`{"curves": [{"at": [{"x": 1e17, "y": 1e17}, {"x": 1.0000000000000003e17, "y": 1.0000000000000003e17}]}]}`,
		`{"curves": [{"at": [{"x": -1e200, "y": -1e200}, {"x": 1e200, "y": 1e200}]}]}`,
		`{"x": {"log": true}, "y": {"log": true}, "curves": [{"at": [{"x": 1e-200, "y": 1e-200}, {"x": 1e200, "y": 1e200}]}]}`,
		`{"x": {"low": 1e200}, "y": {"high": -1e200}, "curves": [{"points": true, "colour": 99, "at": [{"x": 1, "y": 2, "low": 0, "high": 5}]}]}`,
		`{"map": {"columns": ["a", "b"], "rows": ["r"], "values": [[1e200, -1e200]], "digits": 6}, "marks": [{"x": 1}]}`,
	} {
		f.Add([]byte(`{"sheet": {"title": "t", "sections": [{"figures": [` + figure + `]}]}}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s results.Study
		if json.Unmarshal(text, &s) != nil {
			return
		}
		if err := Study(io.Discard, &s); err == nil && s.Sheet.Validate() != nil {
			t.Error("a study that is refused is drawn")
		}
	})
}
