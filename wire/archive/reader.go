package archive

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/wire/flightdata"
)

// Reader reads an Arrow IPC file. It is not for several goroutines.
type Reader struct {
	path string
	file *os.File
	size int64
}

// Open opens a file. Nothing but its ends is looked at.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	r := &Reader{path: path, file: f, size: info.Size()}
	if _, err := r.begin(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is no Arrow IPC file (a stream of Arrow, or Parquet, is another format): %w", path, err)
	}
	return r, nil
}

// begin reads from the beginning. One batch may come to all that there is in the file, and compressed to some times that.
func (r *Reader) begin() (*flightdata.Reader, error) {
	return flightdata.NewFileReader(r.file, r.size, flightdata.Options{MaxBytes: 1<<30 + 16*r.size})
}

// Batches gives the record batches in order, from the first whenever it is called. Each is released when the loop asks for the
// next; an error ends them.
func (r *Reader) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		in, err := r.begin()
		for number := 0; err == nil; number++ {
			var frame flightdata.Frame
			frame, err = in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && frame.Batch.NumRows() > r.size {
				err = fmt.Errorf("%d rows in a file of %d bytes", frame.Batch.NumRows(), r.size)
				frame.Batch.Release()
			}
			if err != nil {
				err = fmt.Errorf("record batch %d: %w", number, err)
				break
			}
			again := yield(frame.Batch, nil)
			frame.Batch.Release()
			if !again {
				return
			}
		}
		yield(nil, fmt.Errorf("%s: %w", r.path, err))
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
