package archive

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Writer writes an Arrow IPC file. The file has its name once Close has returned nil, and not before.
type Writer struct {
	path     string
	file     *os.File // beside path, under a name of its own
	buffered *bufio.Writer
	ipc      *ipc.FileWriter
	rows     int64
}

// Create begins a file of a schema. One that is there is replaced by Close.
func Create(path string, schema *arrow.Schema) (*Writer, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, file: f, buffered: bufio.NewWriterSize(f, 1<<20)}
	if w.ipc, err = ipc.NewFileWriter(w.buffered, ipc.WithSchema(schema)); err != nil {
		w.Abandon()
		return nil, fmt.Errorf("begin %s: %w", path, err)
	}
	return w, nil
}

// Write appends a record batch of the schema.
func (w *Writer) Write(rec arrow.RecordBatch) error {
	if err := w.ipc.Write(rec); err != nil {
		return fmt.Errorf("write %s: %w", w.path, err)
	}
	w.rows += rec.NumRows()
	return nil
}

// Rows is how many rows were written.
func (w *Writer) Rows() int64 { return w.rows }

// Close finishes the file, has it reach the disk and gives it its name. After an error nothing is left of it.
func (w *Writer) Close() error {
	err := errors.Join(w.ipc.Close(), w.buffered.Flush(), w.file.Chmod(0o644), w.file.Sync(), w.file.Close())
	if err == nil {
		err = os.Rename(w.file.Name(), w.path)
	}
	if err != nil {
		os.Remove(w.file.Name())
		return fmt.Errorf("finish %s: %w", w.path, err)
	}
	return nil
}

// Abandon leaves nothing of what was written.
func (w *Writer) Abandon() {
	w.file.Close()
	os.Remove(w.file.Name())
}
