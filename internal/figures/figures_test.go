package figures

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestDataIsShortAndEndsNoScript(t *testing.T) {
	d := Data{
		X: Axis{Title: "</script><b>", High: 1.0 / 3}, Y: Axis{Low: Number(math.Inf(-1))},
		Curves: []Curve{
			{Name: "whole", X: Steps{3, 5, 1000}, Y: []Number{0.123456789, Number(math.NaN()), 1e-300}},
			{Name: "broken", X: Steps{0.5, 1, 2}, Y: []Number{1, 2, 3}},
		},
	}
	text := d.JSON()
	for _, want := range []string{`"x":[3,2,995],"y":[0.123457,null,1e-300]`, `"x":{"at":[0.5,1,2]}`, `"low":null`,
		`"high":0.333333`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if !json.Valid([]byte(text)) || strings.ContainsAny(text, "<>&") {
		t.Errorf("%s is no JSON, or may end the element that it stands in", text)
	}
}
