package geometry

// Questions in their canonical order.
const (
	Length     = "length"     // of a segment, in cells
	Area       = "area"       // of a rectangle, in cells
	Perimeter  = "perimeter"  // of a rectangle, in sides of cells
	Angle      = "angle"      // between two rays, in degrees
	Triangle   = "triangle"   // the area of a right triangle, in cells
	Third      = "third"      // the third angle of a triangle, in degrees, the others written beside it
	Hypotenuse = "hypotenuse" // of a right triangle, the legs written beside it
)

// question is what is asked of a shape.
type question struct {
	name   string
	cue    string // in the terse format
	shape  shape
	answer func(f figure) int
}

func questions() []question {
	return []question{
		{Length, "l?", segment, func(f figure) int { return f.a }},
		{Area, "a?", rectangle, func(f figure) int { return f.a * f.b }},
		{Perimeter, "p?", rectangle, func(f figure) int { return 2 * (f.a + f.b) }},
		{Angle, "d?", rays, func(f figure) int { return degrees * f.a }},
		{Triangle, "t?", rightTriangle, func(f figure) int { return f.a * f.b / 2 }},
		{Third, "x?", labelledTriangle, func(f figure) int { return 180 - f.a - f.b }},
		{Hypotenuse, "h?", labelledRight, func(f figure) int { return hypotenuse(f.a, f.b) }},
	}
}

func names() []string {
	all := questions()
	list := make([]string, len(all))
	for i, q := range all {
		list[i] = q.name
	}
	return list
}

// of returns the question of a known name.
func of(name string) question {
	for _, q := range questions() {
		if q.name == name {
			return q
		}
	}
	return question{}
}

// text returns what the prompt says.
func (q question) text(format string) string {
	if format == Words {
		return q.name + "?"
	}
	return q.cue
}
