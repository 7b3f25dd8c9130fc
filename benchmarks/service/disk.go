package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// diskBytes is the size to which files grow that disk bandwidth is measured on.
const diskBytes = 256 << 20

// diskFile is a file that is written from front to end over and over: either a new one each time, as a log writes its
// segments, or the same one, over blocks that it has already. Many disks, above all those of virtual machines, are several
// times as fast at the second.
type diskFile struct {
	path    string
	rewrite bool
	file    *os.File
	block   []byte
	at      int64
}

// newDiskFile makes the file. One to be written over is written once, so that its blocks have their place on the disk.
func newDiskFile(dir string, rewrite bool) (*diskFile, error) {
	d := &diskFile{path: filepath.Join(dir, fmt.Sprintf("disk-%t", rewrite)), rewrite: rewrite, block: make([]byte, 64<<20)}
	for i := range d.block {
		d.block[i] = byte(i * 2654435761 >> 13) // nothing that a clever disk could shorten to a run of zeros
	}
	if err := d.begin(); err != nil {
		return nil, err
	}
	if !rewrite {
		return d, nil
	}
	for at := int64(0); at < diskBytes; at += int64(len(d.block)) {
		if _, err := d.file.WriteAt(d.block, at); err != nil {
			d.close()
			return nil, err
		}
	}
	if err := d.file.Sync(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// begin begins a new file, in the place of one that is there.
func (d *diskFile) begin() (err error) {
	if d.file != nil {
		d.close()
	}
	d.file, err = os.Create(d.path)
	return err
}

// write writes the next block of so many bytes and has it reach the disk.
func (d *diskFile) write(bytes int) error {
	if d.at+int64(bytes) > diskBytes {
		d.at = 0
		if !d.rewrite {
			if err := d.begin(); err != nil {
				return err
			}
		}
	}
	if _, err := d.file.WriteAt(d.block[:bytes], d.at); err != nil {
		return err
	}
	d.at += int64(bytes)
	return datasync(d.file)
}

// contender writes blocks of so many bytes, each with fdatasync.
func (d *diskFile) contender(bytes int) contender {
	return repeated(fmt.Sprintf("disk, %d KiB blocks", bytes>>10), func(context.Context) error { return d.write(bytes) })
}

func (d *diskFile) close() {
	d.file.Close()
	os.Remove(d.path)
}
