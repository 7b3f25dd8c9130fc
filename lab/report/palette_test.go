package report

import (
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
	light, dark, _ := strings.Cut(styleText, "prefers-color-scheme: dark")
	for page, rules := range map[string]string{"light": light, "dark": dark} {
		var set [MostArms]uint32
		for i, variable := range figures.Arms() {
			_, value, found := strings.Cut(rules, "--"+variable+": #")
			if !found {
				t.Fatalf("the style sheet has no %s %s", page, variable)
			}
			set[i] = hexOf(t, value[:6])
		}
		for sight, m := range sights {
			for i := range set {
				for j := range i {
					alike := i/4 == j/4
					if d := colourDistance(m, set[i], set[j]); alike && d < 0.09 {
						t.Errorf("%s, %s: colours %d and %d are %.3f apart, want 0.09", page, sight, i, j, d)
					}
				}
			}
		}
	}
}
