package geometry

import (
	"bytes"
	"image/png"
	"sync"
)

// encoder writes canvases as PNG files. It keeps the compressor's tables, which take far longer to make than a small image to
// compress. It is safe for concurrent use.
type encoder struct {
	buffers sync.Pool // of *png.EncoderBuffer
}

// Get and Put make it a png.EncoderBufferPool.
func (e *encoder) Get() *png.EncoderBuffer {
	b, _ := e.buffers.Get().(*png.EncoderBuffer)
	return b
}

// Put takes a buffer back.
func (e *encoder) Put(b *png.EncoderBuffer) { e.buffers.Put(b) }

// file returns a canvas as a file.
func (e *encoder) file(c canvas) []byte {
	var b bytes.Buffer
	writer := png.Encoder{BufferPool: e}
	if err := writer.Encode(&b, c.Paletted); err != nil { // a buffer takes everything, and the palette is valid
		panic(err)
	}
	return b.Bytes()
}
