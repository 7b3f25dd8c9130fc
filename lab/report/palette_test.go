package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/figures"
)

// The arms' colours must be told apart by every eye: with equal markers, two of them are at least nine hundredths of
// OKLab apart, also as seen without one of the three kinds of cones (Machado and others 2009, matrices on linear RGB).
// A just visible difference is about two.
func TestArmsAreToldApartByEveryEye(t *testing.T) {
	sights := map[string][3][3]float64{
		"all cones": {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protanopia": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216},
			{-0.003882, -0.048116, 1.051998}},
		"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413},
			{-0.011820, 0.042940, 0.968881}},
		"tritanopia": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602},
			{0.004733, 0.691367, 0.303900}},
	}
	light := armPaints()
	dark := [MostArms]paint{}
	_, rules, _ := strings.Cut(styleText, "prefers-color-scheme: dark")
	for i, p := range light {
		dark[i] = p
		_, value, found := strings.Cut(rules, "--"+p.variable+": #")
		if !found {
			t.Fatalf("the style sheet has no dark %s", p.variable)
		}
		dark[i].hex = hexOf(t, value[:6])
		if !strings.Contains(strings.ToLower(styleText), "--"+p.variable+": #"+strings.ToLower(hexText(p.hex))) {
			t.Errorf("the style sheet's light %s is not the one drawn", p.variable)
		}
	}
	for page, set := range map[string][MostArms]paint{"light": light, "dark": dark} {
		for sight, m := range sights {
			for i := range set {
				for j := range i {
					alike := i/solid == j/solid
					if d := colourDistance(m, set[i].hex, set[j].hex); alike && d < 0.09 {
						t.Errorf("%s, %s: %s and %s are %.3f apart, want 0.09", page, sight, set[i].variable,
							set[j].variable, d)
					}
				}
			}
		}
	}
}

func TestRolesAreDrawnInColoursOfTheirOwn(t *testing.T) {
	drawn := make(map[uint32]role)
	add := func(r role) {
		if other, taken := drawn[r.hex()]; taken {
			t.Fatalf("roles %d and %d are both drawn in %06X: the style sheet cannot tell them apart", r, other,
				r.hex())
		}
		drawn[r.hex()] = r
		if back, ok := drawnIn(r.hex()); !ok || back != r {
			t.Fatalf("role %d is drawn in %06X, which is role %d, %v", r, r.hex(), back, ok)
		}
	}
	for r := inkColor; r < allRoles; r++ {
		add(r)
	}
	for n := range 200 {
		for _, p := range figures.Parts() {
			r := armRole(n%MostArms).of(p, n)
			if add(r); r.part() != fmt.Sprintf("%c%d", p, n) || r.paint() != armRole(n%MostArms).paint() {
				t.Fatalf("part %c%d is %q in %v", p, n, r.part(), r.paint())
			}
		}
	}
}
