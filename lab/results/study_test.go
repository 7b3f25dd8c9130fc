package results

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAStudyReadsBackAsWritten(t *testing.T) {
	dir := t.TempDir()
	if IsStudy(dir) {
		t.Fatal("an empty folder counts as a study")
	}
	wrote := &Study{
		Name: "trial", Seeds: 2, Seconds: 12.5, AtOnce: 2, Machine: Machine{System: "linux/amd64", CPU: "a processor",
			Cores: 2}, Build: Build{Go: "go1"},
		Began: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Ended: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Arms:  []StudyArm{{Name: "a", Folders: []string{"../runs/0", ""}, Failed: []string{"seed 2: why"}}},
		Sheet: *soundSheet(),
	}
	if err := WriteStudy(dir, wrote); err != nil || !IsStudy(dir) {
		t.Fatalf("written: %v, error %v", IsStudy(dir), err)
	}
	read, err := ReadStudy(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, wrote) {
		t.Errorf("read %+v\nwrote %+v", read, wrote)
	}
	if lone := read.Sheet.Sections[0].Figures[0].Curves[0].At[1]; lone.Y.Known() || lone.Low.Known() {
		t.Errorf("what has no value came back as %+v", lone)
	}
}

func TestAnInvalidStudyFileIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown field":   {`{"format": 1, "nam": "x"}`, `unknown field "nam"`},
		"another format":     {`{"format": 99}`, "format: 99: want 1"},
		"two values":         {`{"format": 1} {}`, "more than one JSON value"},
		"a list":             {`[]`, "not a JSON object"},
		"a torn file":        {`{"format": 1, "name": "x"`, "unexpected EOF"},
		"a number as a word": {`{"format": 1, "seeds": "four"}`, "seeds"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, StudyFile), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadStudy(dir); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%s: error %v, want one that names the file and says %q", name, err, c.want)
		}
	}
	if _, err := ReadStudy(t.TempDir()); !os.IsNotExist(err) {
		t.Errorf("a folder without a study: error %v", err)
	}
}

// soundSheet returns a sheet with nothing to object to.
func soundSheet() *Sheet {
	return &Sheet{
		Title:    "t",
		Findings: []Finding{{Source: "[ER] fig. 1", Verdict: Holds}, {Verdict: DoesNotHold}, {Verdict: Inconclusive}, {Verdict: Untested}},
		Sections: []Section{{
			Title: "s",
			Figures: []Figure{
				{
					Title: "lines", X: Axis{Log: true, Low: Num(0.5), High: Num(9)}, Y: Axis{Low: Num(-1)},
					Curves: []Curve{{Name: "c", Colour: 3,
						At: []Point{{X: 1, Y: Num(-2), Low: Num(-3), High: Num(-1)}, {X: 2}}}},
					Guides: []Guide{{Name: "g", X: Num(3)}, {Name: "h", Y: Num(-3)}},
					Marks:  []MarkedAt{{Name: "m", X: 1, Y: -1}},
				},
				{
					Title: "map", Marks: []MarkedAt{{Name: "m", X: 1, Y: 0}},
					Map: &HeatMap{Columns: []string{"a", "b"}, Rows: []string{"r"}, Values: [][]Number{{Num(1), {}}},
						Digits: 2},
				},
				{Title: "empty"},
			},
			Grids: []Grid{{Title: "g", Columns: []string{"a", "b"}, Rows: [][]string{{"1", "2"}}}},
		}},
	}
}

func TestEveryPartOfASheetIsValidated(t *testing.T) {
	if err := soundSheet().Validate(); err != nil {
		t.Fatalf("a sound sheet: %v", err)
	}
	lines := func(s *Sheet) *Figure { return &s.Sections[0].Figures[0] }
	grid := func(s *Sheet) *HeatMap { return s.Sections[0].Figures[1].Map }
	const inLines, inMap, inTable = `section "s", figure "lines": `, `section "s", figure "map": `, `section "s", table "g": `
	for want, spoil := range map[string]func(*Sheet){
		`title: empty`: func(s *Sheet) { s.Title = "" },
		`finding 1 ([ER] fig. 1): verdict "perhaps": want "holds", "does not hold", "inconclusive" or "untested"`: func(s *Sheet) { s.Findings[0].Verdict = "perhaps" },
		inTable + `row 1: 1 cells: want 2, one for each column`:                                                   func(s *Sheet) { s.Sections[0].Grids[0].Rows[0] = []string{"1"} },
		inTable + `columns: none`: func(s *Sheet) { s.Sections[0].Grids[0] = Grid{Title: "g"} },
		inLines + `axis x: low = 0 on a logarithmic axis: want a value above 0`:                                       func(s *Sheet) { lines(s).X.Low = Num(0) },
		inLines + `axis x: from 10 to 9: want the low end below the high one`:                                         func(s *Sheet) { lines(s).X.Low = Num(10) },
		inLines + `curve "c": colour -1: want 0 or above`:                                                             func(s *Sheet) { lines(s).Curves[0].Colour = -1 },
		inLines + `curve "c", point 2: x = 0 on a logarithmic axis: want a value above 0`:                             func(s *Sheet) { lines(s).Curves[0].At[1].X = 0 },
		inLines + `curve 1, point 2: x = NaN: want a finite number, or leave the point out`:                           func(s *Sheet) { lines(s).Curves[0].Name, lines(s).Curves[0].At[1].X = "", math.NaN() },
		inLines + `curve "c", point 1: x = +Inf: want a finite number`:                                                func(s *Sheet) { lines(s).Curves[0].At[0].X = math.Inf(1) },
		inLines + `curve "c", point 1: y = -2 on a logarithmic axis`:                                                  func(s *Sheet) { lines(s).Y = Axis{Log: true} },
		inLines + `curve "c", point 1: low = -3 on a logarithmic axis`:                                                func(s *Sheet) { lines(s).Y = Axis{Log: true} },
		inLines + `curve "c", point 1: high = -1 on a logarithmic axis`:                                               func(s *Sheet) { lines(s).Y = Axis{Log: true} },
		inLines + `guide "h": y = -3 on a logarithmic axis`:                                                           func(s *Sheet) { lines(s).Y = Axis{Log: true} },
		inLines + `mark "m": y = -1 on a logarithmic axis`:                                                            func(s *Sheet) { lines(s).Y = Axis{Log: true} },
		inLines + `curve "c", point 1: a spread from -3 to -4: want the low end first`:                                func(s *Sheet) { lines(s).Curves[0].At[0].High = Num(-4) },
		inLines + `guide "g": want a value of x or of y, one of the two`:                                              func(s *Sheet) { lines(s).Guides[0].Y = Num(1) },
		inLines + `guide "h": want a value of x or of y, one of the two`:                                              func(s *Sheet) { lines(s).Guides[1].Y = Number{} },
		inMap + `map: row 1 has 3 values: want 2, one for each column`:                                                func(s *Sheet) { grid(s).Values[0] = make([]Number, 3) },
		inMap + `map: 2 rows of values: want 1, one for each name`:                                                    func(s *Sheet) { grid(s).Values = append(grid(s).Values, make([]Number, 2)) },
		inLines + `curve "c", point 1: y = 1e+201: want a size of at most 1e+200`:                                     func(s *Sheet) { lines(s).Curves[0].At[0].Y = Num(1e201) },
		inLines + `guide "g": x = 1e-201: want a size of at most 1e+200, on a logarithmic axis of 1e-200 or more too`: func(s *Sheet) { lines(s).Guides[0].X = Num(1e-201) },
		inLines + `axis y: high = -1e+300: want a size`:                                                               func(s *Sheet) { lines(s).Y.High = Num(-1e300) },
		inMap + `map: row 1: value 2 = -1e+300: want a size`:                                                          func(s *Sheet) { grid(s).Values[0][1] = Num(-1e300) },
		inMap + `map: 7 digits: want 0 to 6`:                                                                          func(s *Sheet) { grid(s).Digits = 7 },
		inMap + `map: mark "m" at column 2, row 0: want a cell, columns 0 to 1 and rows 0 to 0`:                       func(s *Sheet) { s.Sections[0].Figures[1].Marks[0].X = 2 },
		inMap + `map: mark "m" at column 1, row 0.5: want a cell`:                                                     func(s *Sheet) { s.Sections[0].Figures[1].Marks[0].Y = 0.5 },
		inMap + `map: there are 1 curves and 0 guides beside it: want a map alone`:                                    func(s *Sheet) { s.Sections[0].Figures[1].Curves = make([]Curve, 1) },
	} {
		s := soundSheet()
		spoil(s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func TestTitlesMayHoldAPerCentSign(t *testing.T) {
	s := soundSheet()
	s.Sections[0].Figures[1].Title, s.Sections[0].Figures[1].Map.Digits = "Compute to 98% of the best", 9
	want := `section "s", figure "Compute to 98% of the best": map: 9 digits: want 0 to 6`
	if err := s.Validate(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestEveryProblemOfASheetIsReportedAtOnce(t *testing.T) {
	s := soundSheet()
	s.Title, s.Sections[0].Grids[0].Rows[0], s.Sections[0].Figures[1].Map.Digits = "", nil, -1
	err := s.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("error %v, want three problems in a line each", err)
	}
}
