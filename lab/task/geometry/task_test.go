package geometry

import (
	"bytes"
	"image/png"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/lab/task/tasktest"
)

var (
	_ task.Task         = (*Task)(nil)
	_ task.Verifier     = (*Task)(nil)
	_ task.Demonstrator = (*Task)(nil)
	_ task.Alphabet     = (*Task)(nil)
	_ task.Seeing       = (*Task)(nil)
)

func newTask(t testing.TB, s Settings, seed uint64) *Task { return tasktest.New(t, New, s, seed) }

// variety is settings that between them reach every question, format and size.
func variety() []Settings {
	return []Settings{
		{},
		{Questions: names(), HeldOut: 50},
		{Questions: []string{Perimeter, Area}, ImageSize: 16, Max: 5, Format: task.Words},
		{Questions: []string{Hypotenuse, Third}, ImageSize: 64, Format: task.Words, HeldOut: 20},
		{Questions: []string{Angle}, ImageSize: 48, HeldOut: 130},
		{Questions: []string{Triangle, Length}, ImageSize: 256, Max: 12},
		{Questions: []string{Area}, Max: 2, HeldOut: 4},
	}
}

func TestHeldOutFiguresAreDistinctAndNeverTrained(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 7)
		s.Resolve()
		tasktest.HeldOut(t, made, s.HeldOut, 500, func(p task.Prompt) string { return figureOf(p.ID) })
		tasktest.Characters(t, made, 40)
		questions := map[string]bool{}
		for _, p := range made.HeldOut() {
			questions[p.Text] = true
		}
		if len(questions) != len(s.Questions) {
			t.Errorf("%+v: %d questions about held-out figures", s, len(questions))
		}
	}
}

// figureOf returns the name of a prompt's figure, without the question and the shift.
func figureOf(id string) string {
	return id[strings.LastIndex(id, "/")+1 : strings.LastIndex(id, "+")]
}

// One picture is one figure, so that the answer can be read from it: at the smallest image that the settings allow too.
func TestFiguresOfDifferentAnswersLookDifferent(t *testing.T) {
	tests.Long(t)
	for _, c := range []struct{ size, cells int }{{32, 6}, {16, 5}, {15, 6}, {23, 10}, {64, 3}} {
		for _, q := range questions() {
			if c.size < minLabels && (q.name == Third || q.name == Hypotenuse) {
				continue
			}
			seen := map[string]figure{}
			for _, f := range figures(q.shape, c.cells) {
				for shift := range min(2, room(q.shape, c.size, c.cells)) + 1 {
					picture := string(f.draw(c.size, c.cells, offset{shift, 0}).Pix)
					if other, ok := seen[picture]; ok {
						t.Errorf("%d pixels: %v and %v are one picture", c.size, f, other)
					}
					seen[picture] = f
				}
			}
		}
	}
}

// Counted from the picture: an independent reading of what was drawn.
func TestAnswersAreWhatThePictureShows(t *testing.T) {
	const size, cells = 32, 6
	for _, name := range []string{Length, Area, Perimeter, Angle, Triangle} {
		q := of(name)
		for _, f := range figures(q.shape, cells) {
			space := room(q.shape, size, cells)
			shift := offset{(f.a + f.x) % (space + 1), (f.b + f.y) % (space + 1)}
			c := f.draw(size, cells, shift)
			inked, filled := 0, 0
			for _, colour := range c.Pix {
				switch colour {
				case ink:
					inked++
				case fill:
					filled++
				}
			}
			got := 0
			switch name {
			case Length: // cells of 4 pixels and the point at the end
				got = (inked - 1) / 4
			case Area: // 3 x 3 pixels within the lines of a cell, exactly
				got = filled / 9
			case Perimeter:
				got = inked / 4
			case Angle:
				got = angleOf(c, size/2+shift.x-space/2, size/2+shift.y-space/2)
				if middle := middleOf(c, size/2+shift.x-space/2,
					size/2+shift.y-space/2); math.Cos((middle-float64(2*f.turn+f.a)*degrees/2)*math.Pi/180) < 0.98 {
					t.Errorf("%v: the angle is filled around %.0f degrees", f, middle)
				}
			case Triangle:
				got = boundsOf(c) / 2
			}
			if got != q.answer(f) {
				t.Errorf("%v: the picture shows %d, the answer is %d", f, got, q.answer(f))
			}
		}
	}
}

// angleOf measures the angle between the two ends of rays, the ink that is farthest from their vertex, to a step.
func angleOf(c canvas, x0, y0 int) int {
	var directions []float64
	for y := range c.size {
		for x := range c.size {
			dx, dy := float64(x-x0), float64(y0-y)
			if c.ColorIndexAt(x, y) == ink && math.Hypot(dx, dy) > 10.5 {
				directions = append(directions, math.Atan2(dy, dx)*180/math.Pi)
			}
		}
	}
	widest := 0.0
	for _, a := range directions {
		for _, b := range directions {
			turn := math.Abs(a - b)
			widest = max(widest, min(turn, 360-turn))
		}
	}
	return int(math.Round(widest/degrees)) * degrees
}

// middleOf returns the direction of what is filled, in degrees.
func middleOf(c canvas, x0, y0 int) float64 {
	dx, dy := 0, 0
	for y := range c.size {
		for x := range c.size {
			if c.ColorIndexAt(x, y) == fill {
				dx, dy = dx+x-x0, dy+y0-y
			}
		}
	}
	return math.Atan2(float64(dy), float64(dx)) * 180 / math.Pi
}

// boundsOf returns the cells of the rectangle around everything drawn.
func boundsOf(c canvas) int {
	x0, y0, x1, y1 := c.size, c.size, 0, 0
	for y := range c.size {
		for x := range c.size {
			if c.ColorIndexAt(x, y) == ink {
				x0, y0, x1, y1 = min(x0, x), min(y0, y), max(x1, x), max(y1, y)
			}
		}
	}
	return (x1 - x0) / 4 * ((y1 - y0) / 4)
}

func TestLabelledTrianglesHaveTheirAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     figure
		want  int
		label string
	}{
		{Third, figure{a: 60, b: 70}, 50, "60 70"},
		{Third, figure{a: 20, b: 120}, 40, "20 120"},
		{Hypotenuse, figure{a: 3, b: 4}, 5, "3 4"},
		{Hypotenuse, figure{a: 48, b: 14}, 50, "48 14"},
	} {
		q := of(c.name)
		c.f.shape = q.shape
		if got := q.answer(c.f); got != c.want {
			t.Errorf("%s of %v: %d, want %d", c.name, c.f, got, c.want)
		}
		for size := 32; size <= 96; size += 32 {
			if got := labels(c.f.draw(size, 6, offset{}), size/32); got != c.label {
				t.Errorf("%v at %d pixels is labelled %q, want %q", c.f, size, got, c.label)
			}
		}
	}
	for _, name := range []string{Third, Hypotenuse} {
		for _, f := range figures(of(name).shape, 6) {
			picture := f.draw(32, 6, offset{})
			if want := strconv.Itoa(f.a) + " " + strconv.Itoa(f.b); f.shape == labelledRight &&
				labels(picture, 1) != want {
				t.Errorf("%v is labelled %q", f, labels(picture, 1))
			}
			answer := of(name).answer(f)
			if f.shape == labelledRight && answer*answer != f.a*f.a+f.b*f.b || f.shape == labelledTriangle &&
				(answer+f.a+f.b != 180 || answer < 20) {
				t.Errorf("%v has the answer %d", f, answer)
			}
		}
	}
}

// labels reads the numbers in the last rows of a picture by their glyphs.
func labels(c canvas, point int) string {
	var b strings.Builder
	for x := 0; x+3*point <= c.size; x++ {
		for d, rows := range glyphs() {
			if same(c, rows, x, point) {
				if b.Len() > 0 && !strings.HasSuffix(b.String(), " ") && blank(c, x-2*point, point) {
					b.WriteByte(' ')
				}
				b.WriteString(strconv.Itoa(d))
				x += 3*point - 1
				break
			}
		}
	}
	return b.String()
}

func same(c canvas, rows [5]uint8, x, point int) bool {
	for row, points := range rows {
		for column := range 3 {
			inked := c.ColorIndexAt(x+column*point, c.size-5*point+row*point) == ink
			if inked != (points>>(2-column)&1 == 1) {
				return false
			}
		}
	}
	return blank(c, x-point, point)
}

// blank reports whether a column of the labels is empty.
func blank(c canvas, x, point int) bool {
	for row := range 5 * point {
		if x >= 0 && c.ColorIndexAt(x, c.size-1-row) == ink {
			return false
		}
	}
	return true
}

// Guessing from the text alone earns little, because no answer to a question is frequent.
func TestQuestionsDoNotRevealTheAnswer(t *testing.T) {
	made := newTask(t, Settings{Questions: names(), HeldOut: 50}, 3)
	answers, asked := map[string]map[string]float64{}, map[string]float64{}
	for i := range uint64(7000) {
		p := made.Train(i)
		if answers[p.Text] == nil {
			answers[p.Text] = map[string]float64{}
		}
		answers[p.Text][p.Answer]++
		asked[p.Text]++
	}
	for text, counts := range answers {
		if asked[text] < 900 || asked[text] > 1100 { // 1000 expected, standard deviation 29
			t.Errorf("%s is asked %v times of 7000", text, asked[text])
		}
		for answer, count := range counts {
			if count > 0.35*asked[text] {
				t.Errorf("%s is answered by %s %v times of %v", text, answer, count, asked[text])
			}
		}
	}
}

func TestImagesHaveTheDeclaredSize(t *testing.T) {
	for _, s := range variety() {
		made := newTask(t, s, 1)
		for i := range uint64(50) {
			p := made.Train(i)
			picture, err := png.Decode(bytes.NewReader(p.Image))
			if err != nil || picture.Bounds().Dx() != made.ImageSize() || picture.Bounds().Dy() != made.ImageSize() {
				t.Fatalf("%s: %v, %v", p.ID, err, picture.Bounds())
			}
			if v := made.Verify(p, made.Demonstrate(p)); !v.Correct || v.Reward != 1 || v.Extracted != p.Answer {
				t.Errorf("demonstration of %q: %+v", p.ID, v)
			}
		}
	}
}

func TestCharactersNameEachOnce(t *testing.T) {
	for want, s := range map[string]Settings{
		"0123456789?lapd":       {},
		"0123456789?length":     {Questions: []string{Length}, Format: task.Words},
		"0123456789?areapimt":   {Questions: []string{Area, Perimeter}, Format: task.Words},
		"0123456789?lapdtxh":    {Questions: names(), HeldOut: 50},
		"0123456789?hypotenus":  {Questions: []string{Hypotenuse}, Format: task.Words},
		"0123456789?anglethird": {Questions: []string{Third, Angle}, Format: task.Words},
	} {
		unique := ""
		for _, c := range want {
			if !strings.ContainsRune(unique, c) {
				unique += string(c)
			}
		}
		if got := newTask(t, s, 0).Characters(); got != unique {
			t.Errorf("%+v: %q, want %q", s, got, unique)
		}
	}
}

func TestSeedOrdersTrainingButNotHeldOut(t *testing.T) {
	s, turned := Settings{Questions: []string{Area, Length}}, Settings{Questions: []string{Length, Area}}
	tasktest.SeedOrdersTraining(t, newTask(t, s, 1), newTask(t, turned, 1), newTask(t, s, 2), 1000, 20)
}

func TestOnlyTheExactAnswerIsCorrect(t *testing.T) {
	for _, c := range []struct {
		response, answer string
		correct          bool
		extracted        string
	}{
		{"12", "12", true, "12"},
		{"13", "12", false, "13"},
		{"012", "12", false, "012"},
		{"-12", "12", false, ""},
		{"12 ", "12", false, ""},
		{"a", "a", false, ""},
		{"", "", false, ""},
	} {
		v := Verifier{}.Verify(task.Prompt{Answer: c.answer}, c.response)
		if v.Correct != c.correct || (v.Reward == 1) != c.correct || v.Extracted != c.extracted {
			t.Errorf("%q against %q: %+v", c.response, c.answer, v)
		}
	}
}

func TestEveryProblemWithTheSettingsIsReported(t *testing.T) {
	tasktest.Problems(t, tasktest.Created(New), []tasktest.Case[Settings]{
		{Settings{}, ""},
		{Settings{Questions: []string{"volume", Area, Area}}, "questions questions"},
		{Settings{Max: 1, ImageSize: 8, Format: "long", HeldOut: -1}, "max image_size format held_out"},
		{Settings{Max: 13, ImageSize: 257}, "max image_size"},
		{Settings{Max: 7, ImageSize: 16}, "image_size"},
		{Settings{Questions: []string{Third}, ImageSize: 31}, "image_size"},
		{Settings{Questions: []string{Angle}, HeldOut: 133}, "held_out"},
		{Settings{Questions: []string{Area, Perimeter}, Max: 2, HeldOut: 5}, "held_out"}, // 9 figures
	})
}

func FuzzVerifyAcceptsOnlyTheAnswer(f *testing.F) {
	f.Add("19", "19")
	f.Fuzz(func(t *testing.T, response, answer string) {
		if v := (Verifier{}).Verify(task.Prompt{Answer: answer}, response); v.Correct &&
			(response != answer || response == "") {
			t.Errorf("%q is right for %q", response, answer)
		}
	})
}

func BenchmarkTrain(b *testing.B) {
	made, err := New(Settings{}, 1)
	if err != nil {
		b.Fatal(err)
	}
	var i uint64
	for b.Loop() {
		made.Train(i)
		i++
	}
}
