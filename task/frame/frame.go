package frame

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"sync"
)

// Side is the points of a sprite's side.
const Side = 8

// Sprite is the picture of a tile, row by row. The zero value is black.
type Sprite [Side][Side]color.RGBA

// Paint makes a sprite of rows of letters, each a colour. What has no row, letter or colour is black.
func Paint(colours map[byte]color.RGBA, rows ...string) Sprite {
	var s Sprite
	for y := range s {
		for x := range s[y] {
			s[y][x] = color.RGBA{A: 255}
			if y < len(rows) && x < len(rows[y]) {
				if c, ok := colours[rows[y][x]]; ok {
					s[y][x] = c
				}
			}
		}
	}
	return s
}

// Painter draws boards. Its zero value is ready, and it is safe for concurrent use; it keeps the compressors of past drawings, which
// cost more to make than a small picture does.
type Painter struct {
	buffers sync.Pool // of *png.EncoderBuffer
}

// Get is for png.Encoder.
func (p *Painter) Get() *png.EncoderBuffer {
	b, _ := p.buffers.Get().(*png.EncoderBuffer)
	return b
}

// Put is for png.Encoder.
func (p *Painter) Put(b *png.EncoderBuffer) { p.buffers.Put(b) }

// Draw returns the PNG of a board, each of its tiles as a square of pixels x pixels (at least 1): len(board) tiles high and
// len(board[0]) wide; nil if it has no tile. Tiles missing in shorter rows are black. A pixel has the colour of the sprite's
// point at its centre.
func (p *Painter) Draw(board [][]Sprite, pixels int) []byte {
	width := 0
	if len(board) > 0 {
		width = len(board[0])
	}
	picture := image.NewRGBA(image.Rect(0, 0, width*pixels, len(board)*pixels))
	for row := range board {
		for column := range width {
			var s Sprite
			if column < len(board[row]) {
				s = board[row][column]
			}
			put(picture, s, column*pixels, row*pixels, pixels)
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed, BufferPool: p}
	if err := encoder.Encode(&out, picture); err != nil {
		return nil // a picture without pixels
	}
	return out.Bytes()
}

// put draws a sprite with its upper left corner at (x, y).
func put(picture *image.RGBA, s Sprite, x, y, pixels int) {
	for dy := range pixels {
		for dx := range pixels {
			c := s[(2*dy+1)*Side/(2*pixels)][(2*dx+1)*Side/(2*pixels)]
			c.A = 255
			picture.SetRGBA(x+dx, y+dy, c)
		}
	}
}
