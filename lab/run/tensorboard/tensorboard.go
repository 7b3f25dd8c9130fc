// Package tensorboard writes what a run records as event files, which TensorBoard reads and Weights & Biases imports.
//
// [Create] opens an event file in a folder, and a [Writer] appends the scalars of the lines of metrics.jsonl and
// eval.jsonl, as package results names them, at the step of their update. What was appended is in the file at once. The
// files are for watching: nothing reads them back.
package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/reprise-rl/reprise/lab/results"
)

// Fields of the messages Event, SessionLog, Summary and Summary.Value of tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto.
const (
	eventWallTime    = 1 // double, seconds since 1970
	eventStep        = 2 // int64
	eventFileVersion = 3 // string
	eventSummary     = 5 // Summary
	eventSessionLog  = 7 // SessionLog

	sessionStatus = 1 // enum
	sessionStart  = 1 // of that enum

	summaryValue = 1 // repeated Value

	valueTag    = 1 // string
	valueSimple = 2 // float
)

// fileVersion is the format that the first event declares.
const fileVersion = "brain.Event:2"

// Writer appends events to a file. It is not safe for concurrent use.
type Writer struct{ file *os.File }

// Create makes dir if needed and opens a new event file in it. updates is the number of updates already made:
// TensorBoard drops earlier events with later steps.
func Create(dir string, now time.Time, updates int) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.%09d.reprise", now.Unix(), now.Nanosecond()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	version := protowire.AppendTag(newEvent(now, 0), eventFileVersion, protowire.BytesType)
	records := appendRecord(nil, protowire.AppendString(version, fileVersion))
	start := protowire.AppendTag(nil, sessionStatus, protowire.VarintType)
	start = protowire.AppendVarint(start, sessionStart)
	// TensorBoard drops events at this step and later
	begun := protowire.AppendTag(newEvent(now, updates+1), eventSessionLog, protowire.BytesType)
	records = appendRecord(records, protowire.AppendBytes(begun, start))
	if _, err := f.Write(records); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Writer{f}, nil
}

// Append writes the scalars of an update at the time now, all in one event and one write. Values that overflow float32
// are skipped.
func (w *Writer) Append(now time.Time, update int, scalars []results.Scalar) error {
	var summary []byte
	for _, s := range scalars {
		v := float32(s.Value)
		if math.IsInf(float64(v), 0) || math.IsNaN(s.Value) {
			continue
		}
		value := protowire.AppendTag(nil, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, s.Name)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(v))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	event := protowire.AppendTag(newEvent(now, update), eventSummary, protowire.BytesType)
	_, err := w.file.Write(appendRecord(nil, protowire.AppendBytes(event, summary)))
	return err
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// newEvent begins an Event.
func newEvent(now time.Time, step int) []byte {
	event := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	event = protowire.AppendFixed64(event, math.Float64bits(float64(now.UnixMicro())/1e6))
	event = protowire.AppendTag(event, eventStep, protowire.VarintType)
	return protowire.AppendVarint(event, uint64(step))
}

// appendRecord appends a TFRecord: the length of the data and the data, each with its checksum behind it.
func appendRecord(to, data []byte) []byte {
	from := len(to)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(data)))
	to = binary.LittleEndian.AppendUint32(to, checksum(to[from:]))
	to = append(to, data...)
	return binary.LittleEndian.AppendUint32(to, checksum(data))
}

// checksum is the masked CRC-32C of a TFRecord.
func checksum(data []byte) uint32 {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}
