package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// expertsFolder keeps the routed experts of a log's rollouts on this machine, in segments: files that are appended to,
// and removed with the part of the log that they belong to. A record is
//
//	0  number of the cut that has the rollout, uint64
//	8  id of the rollout, uint64
//	16 length of the experts in bytes, uint32
//	20 CRC-32C of the 20 bytes before and the experts, uint32
//	24 the experts, uint16
//
// Nothing is synced: a segment may end within a record. An error of the disk costs the experts only, and is logged.
type expertsFolder struct {
	files    disk.Files
	path     string
	largest  int64 // bytes of a segment, about
	log      *slog.Logger
	segments []expertsSegment // the oldest first
	bytes    int64            // of all segments
	file     disk.File        // the last segment; nil: the next record begins another
}

// expertsSegment is a file, named by the position in the log of its first record's cut.
type expertsSegment struct {
	first uint64
	bytes int64
}

const expertsHeader = 24

// newExpertsFolder returns the folder of the options, nil if there is none.
func newExpertsFolder(o Options) *expertsFolder {
	if o.Experts == "" {
		return nil
	}
	return &expertsFolder{files: o.Disk, path: o.Experts, largest: o.slack / 8, log: o.Logger}
}

func withExperts(all []replay.Stored) (list []replay.Stored) {
	for _, k := range all {
		if len(k.Rollout.RoutedExperts) > 0 {
			list = append(list, k)
		}
	}
	return list
}

func (f *expertsFolder) name(first uint64) string {
	return filepath.Join(f.path, fmt.Sprintf("%016x", first))
}

// put appends the experts of rollouts that a cut has, which is at a position of the log.
func (f *expertsFolder) put(position, cut uint64, list []replay.Stored) {
	if len(list) == 0 {
		return
	}
	if err := f.append(position, cut, list); err != nil {
		f.log.Warn("keeping routed experts: those of these rollouts do not survive this process", "rollouts", len(list),
			"error", err)
		f.end()
	}
}

func (f *expertsFolder) append(position, cut uint64, list []replay.Stored) (err error) {
	if n := len(f.segments); f.file != nil && f.segments[n-1].bytes >= f.largest {
		f.end()
	}
	if f.file == nil {
		if err := f.files.MakeFolder(f.path); err != nil {
			return err
		}
		if f.file, err = f.files.Open(f.name(position), os.O_CREATE|os.O_WRONLY|os.O_TRUNC); err != nil {
			return err
		}
		for n := len(f.segments) - 1; n >= 0 && f.segments[n].first >= position; n-- { // the log lost what this belonged to
			f.bytes -= f.segments[n].bytes
			f.segments = f.segments[:n]
		}
		f.segments = append(f.segments, expertsSegment{first: position})
	}
	last := &f.segments[len(f.segments)-1]
	w := bufio.NewWriterSize(io.NewOffsetWriter(f.file, last.bytes), 1<<18)
	var record []byte
	for _, k := range list {
		experts := k.Rollout.RoutedExperts
		record = binary.LittleEndian.AppendUint64(record[:0], cut)
		record = binary.LittleEndian.AppendUint64(record, uint64(k.ID))
		record = binary.LittleEndian.AppendUint32(record, uint32(2*len(experts)))
		record = append(record, 0, 0, 0, 0)
		for _, e := range experts {
			record = binary.LittleEndian.AppendUint16(record, e)
		}
		binary.LittleEndian.PutUint32(record[20:], expertsSum(record))
		if _, err := w.Write(record); err != nil {
			return err
		}
		last.bytes += int64(len(record))
		f.bytes += int64(len(record))
	}
	return w.Flush()
}

func expertsSum(record []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(record[:20], table), table, record[expertsHeader:])
}

// end has the next record begin another segment.
func (f *expertsFolder) end() {
	if f.file != nil {
		_ = f.file.Close() // nothing is synced
		f.file = nil
	}
}

// trim removes the segments that have only records before a position.
func (f *expertsFolder) trim(before uint64) {
	for len(f.segments) > 1 && f.segments[1].first <= before {
		if err := f.files.Remove(f.name(f.segments[0].first)); err != nil {
			f.log.Warn("removing routed experts", "error", err)
		}
		f.bytes -= f.segments[0].bytes
		f.segments = f.segments[1:]
	}
}

// restore gives rollouts their experts, and takes those out of apart, which has the number of each rollout's cut.
func (f *expertsFolder) restore(stored map[rollout.ID]replay.Stored, apart map[rollout.ID]uint64) {
	names, err := f.files.List(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.log.Warn("reading routed experts", "error", err)
	}
	var found []rollout.ID
	for _, name := range names { // in order, which is that of positions
		first, err := strconv.ParseUint(name, 16, 64)
		if err != nil {
			continue // it is not ours
		}
		segment := expertsSegment{first: first}
		segment.bytes, err = f.read(first, func(cut uint64, id rollout.ID, experts []uint16) {
			if at, wanted := apart[id]; wanted && at == cut {
				stored[id].Rollout.RoutedExperts = experts
				found = append(found, id)
			}
		})
		if err != nil {
			f.log.Warn("reading routed experts", "file", f.name(first), "error", err)
		}
		f.segments = append(f.segments, segment)
		f.bytes += segment.bytes
	}
	for _, id := range found {
		delete(apart, id)
	}
}

// read yields the records of a segment up to the first that is not whole.
func (f *expertsFolder) read(first uint64, yield func(uint64, rollout.ID, []uint16)) (bytes int64, err error) {
	file, err := f.files.Open(f.name(first), os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer file.Close() // it is only read
	size, err := file.Size()
	if err != nil {
		return 0, err
	}
	r := bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 1<<18)
	var record []byte
	for bytes < size {
		record = slices.Grow(record[:0], expertsHeader)[:expertsHeader]
		if _, err := io.ReadFull(r, record); err != nil {
			return bytes, err
		}
		n := int64(binary.LittleEndian.Uint32(record[16:]))
		if n%2 != 0 || n > size-bytes-expertsHeader {
			return bytes, fmt.Errorf("the record at %d has %d bytes of experts: the file ends before", bytes, n)
		}
		record = slices.Grow(record, int(n))[:expertsHeader+n]
		if _, err := io.ReadFull(r, record[expertsHeader:]); err != nil {
			return bytes, err
		}
		if sum := binary.LittleEndian.Uint32(record[20:]); sum != expertsSum(record) {
			return bytes, fmt.Errorf("the record at %d has checksum %08x, its content %08x", bytes, sum, expertsSum(record))
		}
		experts := make([]uint16, n/2)
		for i := range experts {
			experts[i] = binary.LittleEndian.Uint16(record[expertsHeader+2*i:])
		}
		yield(binary.LittleEndian.Uint64(record), rollout.ID(binary.LittleEndian.Uint64(record[8:])), experts)
		bytes += int64(len(record))
	}
	return bytes, nil
}
