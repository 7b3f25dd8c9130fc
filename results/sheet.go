package results

// Sheet is a page of findings, figures and tables that is no run: what a study or a calculation shows. Package report draws it.
type Sheet struct {
	Kind     string    `json:"kind"` // "Study"
	Title    string    `json:"title"`
	Lead     []string  `json:"lead"` // paragraphs under the title
	Findings []Finding `json:"findings,omitempty"`
	Sections []Section `json:"sections"`
	Facts    []Fact    `json:"facts"` // seeds, configuration, commit, machine, time: in the order in which they are shown
}

// Section is a part of a sheet under its own heading.
type Section struct {
	Title   string   `json:"title"`
	Text    []string `json:"text,omitempty"` // paragraphs
	Figures []Figure `json:"figures,omitempty"`
	Grids   []Grid   `json:"tables,omitempty"`
}

// Fact is a line of what a reader needs to believe a sheet.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Verdict says what became of a claim.
type Verdict string

// The verdicts.
const (
	Holds       Verdict = "holds"
	DoesNotHold Verdict = "does not hold"
	CannotTell  Verdict = "cannot tell"
)

// Finding sets what a source claims beside what was found.
type Finding struct {
	Source  string  `json:"source"` // [ER] fig. 1
	Claim   string  `json:"claim"`  // as the source has it, in our words
	Found   string  `json:"found"`  // with figures and their spread
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why"` // the rule by which the verdict follows from the figures
}

// Grid is a table of words and numbers, written out.
type Grid struct {
	Title   string     `json:"title"`
	Note    string     `json:"note,omitempty"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"` // each as long as Columns; a cell in the first column names the row
}

// Figure is a picture as numbers: lines over common axes, or a map of colours.
type Figure struct {
	Title  string     `json:"title"`
	Note   string     `json:"note,omitempty"` // what is to be seen, and how it was made
	X      Axis       `json:"x"`
	Y      Axis       `json:"y"`
	Curves []Curve    `json:"curves,omitempty"`
	Guides []Guide    `json:"guides,omitempty"`
	Map    *HeatMap   `json:"map,omitempty"` // in place of curves; the axes have titles alone
	Marks  []MarkedAt `json:"marks,omitempty"`
	Thin   string     `json:"thin,omitempty"` // what a thin curve is; empty: one seed
}

// Axis is an axis of a figure.
type Axis struct {
	Title string `json:"title"`
	Log   bool   `json:"log,omitempty"` // base-10 logarithmic; values above 0
	Low   Number `json:"low"`           // nothing: as far as the values go
	High  Number `json:"high"`
}

// Curve is a line with its spread, or points.
type Curve struct {
	Name   string  `json:"name"`
	Colour int     `json:"colour"`           // curves of one number look alike; from 0
	Thin   bool    `json:"thin,omitempty"`   // of one seed among others, or of what the figure says, behind the rest and without a name of its own
	Dashed bool    `json:"dashed,omitempty"` // computed, not measured
	Points bool    `json:"points,omitempty"` // unconnected
	At     []Point `json:"at"`
}

// Point is a point of a curve. Between Low and High lies its spread, where that is known.
type Point struct {
	X    float64 `json:"x"`
	Y    Number  `json:"y"` // nothing breaks the line
	Low  Number  `json:"low"`
	High Number  `json:"high"`
}

// Guide is a straight line across a figure: a target, an expected value.
type Guide struct {
	Name string `json:"name"`
	X    Number `json:"x"` // one of the two is known
	Y    Number `json:"y"`
}

// MarkedAt is a named point of a figure or a cell of a map.
type MarkedAt struct {
	Name string  `json:"name"`
	X    float64 `json:"x"` // of a map: the column, from 0
	Y    float64 `json:"y"` // of a map: the row, from 0
}

// HeatMap is values by column and row.
type HeatMap struct {
	Columns []string   `json:"columns"`
	Rows    []string   `json:"rows"`
	Values  [][]Number `json:"values"` // by row; nothing is an empty cell
	Digits  int        `json:"digits"` // after the point, in the cells
	Unit    string     `json:"unit"`   // what the colours say
	Less    bool       `json:"less"`   // small is good
}
