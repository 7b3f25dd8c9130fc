package frame

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"sync"
	"testing"
)

func decode(t *testing.T, file []byte) image.Image {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// numbered is a sprite whose points all differ: red is the row, green the column, blue the sprite's number.
func numbered(n int) Sprite {
	var s Sprite
	for y := range s {
		for x := range s[y] {
			s[y][x] = color.RGBA{R: uint8(10 * y), G: uint8(10 * x), B: uint8(n), A: 255}
		}
	}
	return s
}

func TestEveryPixelHasTheColourOfThePointAtItsCentre(t *testing.T) {
	board := [][]Sprite{{numbered(1), numbered(2), numbered(3)}, {numbered(4), numbered(5), numbered(6)}}
	for _, pixels := range []int{1, 3, 4, 8, 12, 24} {
		picture := decode(t, new(Encoder).Draw(board, pixels))
		if size := picture.Bounds().Size(); size != image.Pt(3*pixels, 2*pixels) {
			t.Fatalf("%d pixels a tile: %v", pixels, size)
		}
		for y := range 2 * pixels {
			for x := range 3 * pixels {
				point := func(at int) uint8 { return uint8((float64(at%pixels) + 0.5) * Side / float64(pixels)) }
				want := color.RGBA{R: 10 * point(y), G: 10 * point(x), B: uint8(y/pixels*3 + x/pixels + 1), A: 255}
				if got := color.RGBAModel.Convert(picture.At(x, y)); got != want {
					t.Fatalf("%d pixels a tile, (%d, %d): %v, want %v", pixels, x, y, got, want)
				}
			}
		}
	}
}

func TestTheSameBoardGivesTheSameBytes(t *testing.T) {
	board := func() [][]Sprite { return [][]Sprite{{numbered(1), numbered(2)}, {numbered(3), numbered(4)}} }
	var painter Encoder
	first := painter.Draw(board(), 8)
	if !bytes.Equal(first, new(Encoder).Draw(board(), 8)) {
		t.Error("two drawings of one board differ")
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if !bytes.Equal(first, painter.Draw(board(), 8)) {
					t.Error("a drawing by a painter that drew before differs")
				}
			}
		})
	}
	all.Wait()
	other := board()
	other[1][1][7][7].B++
	if bytes.Equal(new(Encoder).Draw(board(), 8), new(Encoder).Draw(other, 8)) {
		t.Error("drawings of different boards do not differ")
	}
}

func TestWhatIsMissingIsBlack(t *testing.T) {
	black := color.RGBA{A: 255}
	s := Paint(map[byte]color.RGBA{'r': {R: 9, A: 255}}, "r?", "")
	if s[0][0].R != 9 || s[0][1] != black || s[0][7] != black || s[7][0] != black {
		t.Errorf("painted %v", s[0])
	}
	picture := decode(t, new(Encoder).Draw([][]Sprite{{numbered(1), numbered(1)}, {s}}, 8))
	if got := color.RGBAModel.Convert(picture.At(12, 12)); got != black {
		t.Errorf("a tile missing in a short row is %v", got)
	}
	if new(Encoder).Draw(nil, 8) != nil || new(Encoder).Draw([][]Sprite{{}}, 8) != nil {
		t.Error("a board without tiles has a picture")
	}
}

func BenchmarkDraw(b *testing.B) {
	board := make([][]Sprite, 4)
	for y := range board {
		for x := range 4 {
			board[y] = append(board[y], numbered(x))
		}
	}
	size, painter := 0, new(Encoder)
	for b.Loop() {
		size = len(painter.Draw(board, 8))
	}
	b.ReportMetric(float64(size), "B/frame")
}
