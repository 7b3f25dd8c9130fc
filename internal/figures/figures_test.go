package figures

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestDataIsShortAndEndsNoScript(t *testing.T) {
	f := Figure{
		X: Axis{Title: "</script><b>", Low: None(), High: 1.0 / 3}, Y: Axis{Low: Number(math.Inf(-1)), High: None()},
		Curves: []Curve{
			{Name: "whole", X: Steps{3, 5, 1000}, Y: []Number{0.123456789, None(), 1e-300}, Dashed: true},
			{Name: "broken", X: Steps{0.5, 1, 2}, Y: []Number{1, 2, 3}},
		},
	}
	text := string(f.Draw(half()).Data)
	for _, want := range []string{`"x":[3,2,995],"y":[0.123457,null,1e-300]`, `"x":{"at":[0.5,1,2]}`, `"low":`,
		`"high":0.333333`, `"areas":[[`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if !json.Valid([]byte(text)) || strings.ContainsAny(text, "<>&") {
		t.Errorf("%s is no JSON, or may end the element that it stands in", text)
	}
}
