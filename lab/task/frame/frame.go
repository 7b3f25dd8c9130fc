// Package frame draws observations as small PNG files.
//
// A [Sprite] is a tile of 8 × 8 points, painted from rows of letters by [Paint]. An [Encoder] lays sprites out as a
// board, scales every tile to the wanted number of pixels, and writes this or any other picture. The same board gives
// the same bytes.
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

// Paint makes a sprite from rows of letters, each of which is a colour. Anything without a row, letter or colour is
// black.
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

// Encoder writes pictures as PNG files. The zero value is ready to use, and it is safe for concurrent use. It reuses
// the compressor's buffers, which take longer to make than a small picture takes to compress.
type Encoder struct {
	Level   png.CompressionLevel
	buffers sync.Pool // of *png.EncoderBuffer
}

// Encode returns the file. A picture without pixels gives nil.
func (e *Encoder) Encode(picture image.Image) []byte {
	var out bytes.Buffer
	writer := png.Encoder{CompressionLevel: e.Level, BufferPool: e}
	if err := writer.Encode(&out, picture); err != nil { // the size is not allowed: a buffer takes everything
		return nil
	}
	return out.Bytes()
}

// Get implements png.EncoderBufferPool.
func (e *Encoder) Get() *png.EncoderBuffer {
	b, _ := e.buffers.Get().(*png.EncoderBuffer)
	return b
}

// Put implements png.EncoderBufferPool.
func (e *Encoder) Put(b *png.EncoderBuffer) { e.buffers.Put(b) }

// Draw returns the PNG of a board with tiles of pixels × pixels: len(board) tiles high and len(board[0]) wide; nil if
// it has no tile. Tiles missing in shorter rows are black. A pixel has the colour of the sprite's point at its centre.
func (e *Encoder) Draw(board [][]Sprite, pixels int) []byte {
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
	return e.Encode(picture)
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
