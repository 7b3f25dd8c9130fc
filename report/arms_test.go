package report

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/results"
)

// armsPages returns pages over arms by name.
func armsPages(t *testing.T) map[string]string {
	t.Helper()
	troubled := madeArms(4, 4, 500)
	troubled[1].Runs[1] = made{arm: results.ReplayArm, seed: 2, updates: 500, rate: 0.005, cost: madeBatch * 4, collapse: 200}.make()
	killed := made{arm: results.ReplayArm, seed: 3, updates: 180, rate: 0.005, cost: madeBatch * 4, running: true}.make()
	killed.Seed = 3
	troubled[2].Runs[2] = prioritized(killed, false, false)
	troubled[3].Runs[0].Summary.Task = "words"
	byName := map[string]string{}
	for name, arms := range map[string][]results.NamedRuns{
		"eight": madeArms(8, 4, 500), "two-of-two": madeArms(2, 2, 400), "three-of-one": madeArms(3, 1, 300), "alone": madeArms(1, 3, 300),
		"troubled": troubled, "only-begun": {{Name: "a", Runs: []*results.Run{{Config: "seed: 1\n"}}}, {Name: "b", Runs: []*results.Run{{Config: "seed: 1\n"}}}},
	} {
		var b bytes.Buffer
		if err := Arms(&b, "Prioritized <replay> & more", arms); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		byName[name] = b.String()
	}
	keep(t, "arms-", byName)
	return byName
}

// keep writes pages where go test -artifacts keeps them, to be looked at.
func keep(t *testing.T, prefix string, byName map[string]string) {
	t.Helper()
	dir := t.ArtifactDir()
	for name, text := range byName {
		if err := os.WriteFile(filepath.Join(dir, prefix+name+".html"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPagesOverArms(t *testing.T) {
	text := armsPages(t)
	t.Run("are self-contained and small", func(t *testing.T) { areSelfContained(t, text) })
	t.Run("have well-formed plots that follow the style sheet", func(t *testing.T) { haveSoundPlots(t, text) })
	t.Run("are well-formed", func(t *testing.T) { areWellFormed(t, text) })
	t.Run("claim what the seeds allow", func(t *testing.T) {
		for name, want := range map[string][]string{
			"eight":        {"Against on-policy, seed by seed:", "95% bootstrap interval", "<td>4</td><td>&#43;0.", "may leave out 0 or 1 by chance", "Prioritized &lt;replay&gt; &amp; more"},
			"two-of-two":   {"<em>No claim</em>", "2 seeds: an indication, no claim; a claim needs 4."},
			"three-of-one": {"One seed: no claim."},
			"alone":        {"One arm: nothing to compare it with."},
			"troubled":     {"different tasks (arithmetic, words)", "PER, seed 3 has not ended", "they were evaluated on different problems", "not ended: failed, killed or running"},
			"only-begun":   {"whose seed is not known"},
		} {
			for _, w := range want {
				if !strings.Contains(text[name], w) {
					t.Errorf("%s does not say %q", name, w)
				}
			}
		}
		if strings.Contains(text["eight"], "<em>") || strings.Contains(text["two-of-two"], "bootstrap interval 0") {
			t.Error("four seeds are cautioned, or two are given an interval")
		}
	})
	t.Run("draw every seed thin and every median thick", func(t *testing.T) {
		for name, want := range map[string]struct{ thin, dashed int }{"eight": {32, 4}, "three-of-one": {0, 0}, "troubled": {16, 0}} {
			plot := svgElement.FindString(text[name])
			if !strings.Contains(plot, "<title>Accuracy against compute</title>") {
				t.Fatalf("%s: the first plot is not accuracy against compute", name)
			}
			if thin := strings.Count(plot, "stroke-opacity:0.38"); thin != want.thin {
				t.Errorf("%s has %d thin lines, want %d", name, thin, want.thin)
			}
			if bands := strings.Count(plot, "fill-opacity:0.17"); bands != 0 {
				t.Errorf("%s has %d bands, want none", name, bands)
			}
			for _, p := range armPaints() {
				if name == "eight" && !strings.Contains(plot, "var(--"+p.variable+")") {
					t.Errorf("%s lacks the colour %s", name, p.variable)
				}
			}
		}
	})
	t.Run("are the same bytes for the same results", func(t *testing.T) {
		for name, again := range armsPages(t) {
			if text[name] != again {
				t.Errorf("%s differs from one writing to the next", name)
			}
		}
	})
}

func TestAPageHasRoomForEightArms(t *testing.T) {
	for _, n := range []int{0, 9} {
		arms := make([]results.NamedRuns, n)
		if err := Arms(&bytes.Buffer{}, "", arms); err == nil || !strings.Contains(err.Error(), "a page shows 1 to 8") {
			t.Errorf("%d arms: error %v, want one that says how many fit", n, err)
		}
	}
}

// The arms' colours must be told apart by every eye: drawn solid or dashed alike, two of them are
// at least nine hundredths of OKLab apart, also as seen without one of the three kinds of cones
// (Machado and others 2009, matrices on linear RGB). A just visible difference is about two.
func TestArmsAreToldApartByEveryEye(t *testing.T) {
	sights := map[string][3][3]float64{
		"all cones":    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
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
					alike := (armRole(i).dashes() == nil) == (armRole(j).dashes() == nil)
					if d := colourDistance(m, set[i].hex, set[j].hex); alike && d < 0.09 {
						t.Errorf("%s, %s: %s and %s are %.3f apart, want 0.09", page, sight, set[i].variable, set[j].variable, d)
					}
				}
			}
		}
	}
}

func TestRolesAreDrawnInColoursOfTheirOwn(t *testing.T) {
	if got, want := len(paints()), int(allRoles); got != want {
		t.Errorf("%d colours for %d roles: two share one, and the style sheet cannot tell them apart", got, want)
	}
}

func colourDistance(sight [3][3]float64, a, b uint32) float64 {
	x, y := oklab(sight, a), oklab(sight, b)
	return math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2]))
}

// oklab returns lightness and the two opponent axes of a colour as it is seen (Ottosson 2020).
func oklab(sight [3][3]float64, hex uint32) [3]float64 {
	var linear, seen [3]float64
	for i := range linear {
		c := float64(hex>>(16-8*i)&0xFF) / 255
		if linear[i] = math.Pow((c+0.055)/1.055, 2.4); c <= 0.04045 {
			linear[i] = c / 12.92
		}
	}
	for i := range seen {
		seen[i] = max(0, min(1, sight[i][0]*linear[0]+sight[i][1]*linear[1]+sight[i][2]*linear[2]))
	}
	l := math.Cbrt(0.4122214708*seen[0] + 0.5363325363*seen[1] + 0.0514459929*seen[2])
	m := math.Cbrt(0.2119034982*seen[0] + 0.6806995451*seen[1] + 0.1073969566*seen[2])
	s := math.Cbrt(0.0883024619*seen[0] + 0.2817188376*seen[1] + 0.6299787005*seen[2])
	return [3]float64{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}
