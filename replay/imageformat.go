package replay

import (
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/reprise-rl/reprise/replay/sealed"
	"github.com/reprise-rl/reprise/rollout"
)

// A snapshot of format 3 is a sealed stream of a gob stream, of an image without its columns and of these in pieces, and of the rollouts, each
// behind its length as a varint, ended by a length of 0. One of format 2, which is read but not written, is one sealed value.
const snapshotMagic = "reprtab"

func format3() sealed.Format { return sealed.Format{Magic: snapshotMagic, Version: 3} }
func format2() sealed.Format { return sealed.Format{Magic: snapshotMagic, Version: 2} }

// write writes the image, in little memory beside it.
func (im *image) write(w io.Writer) error {
	out := format3().NewWriter(w)
	books := gob.NewEncoder(out)
	err := books.Encode(im.withoutColumns())
	for _, c := range im.columns() {
		if err == nil {
			err = c.write(books)
		}
	}
	if err == nil {
		err = writeRollouts(out, im.Rollouts)
	}
	if err != nil {
		return err
	}
	return out.Close()
}

func writeRollouts(w io.Writer, list []*rollout.Rollout) (err error) {
	var head [binary.MaxVarintLen64]byte
	var body []byte
	for _, r := range list {
		if body, err = r.AppendBinary(body[:0]); err != nil {
			return err
		}
		if _, err = w.Write(head[:binary.PutUvarint(head[:], uint64(len(body)))]); err != nil {
			return err
		}
		if _, err = w.Write(body); err != nil {
			return err
		}
	}
	_, err = w.Write([]byte{0})
	return err
}

// readImage reads an image of either format. Accept sees it as early as its options are known.
func readImage(r io.Reader, accept func(*image) error) (*image, error) {
	version, r, err := sealed.Version(r, snapshotMagic)
	if err != nil {
		return nil, err
	}
	im := new(image)
	switch version {
	case format3().Version:
		err = im.read(r, accept)
	case format2().Version:
		if err = format2().Open(r, im); err == nil {
			err = accept(im)
		}
	default:
		err = fmt.Errorf("its format is %d, only %d and %d are known: %w", version, format2().Version, format3().Version, rollout.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return im, nil
}

// read reads what write wrote, in little memory beside the image.
func (im *image) read(r io.Reader, accept func(*image) error) error {
	in, err := format3().NewReader(r)
	if err != nil {
		return err
	}
	books := gob.NewDecoder(in)
	if err := books.Decode(im); err != nil {
		return fmt.Errorf("decoding: %w", cutShort(err))
	}
	if err := accept(im); err != nil {
		return err
	}
	for _, c := range im.columns() {
		if err := c.read(books); err != nil {
			return fmt.Errorf("decoding: %w", cutShort(err))
		}
	}
	if im.Rollouts, err = readRollouts(in); err != nil {
		return err
	}
	return in.End()
}

func readRollouts(in *sealed.Reader) (list []*rollout.Rollout, err error) {
	var body []byte
	for {
		length, err := binary.ReadUvarint(in)
		if err == nil && length == 0 {
			return list, nil
		}
		if err == nil {
			body, err = appendRead(body[:0], in, length)
		}
		r := new(rollout.Rollout)
		if err == nil {
			err = r.UnmarshalBinary(body)
		}
		if err != nil {
			return nil, fmt.Errorf("reading rollout %d: %w", len(list), cutShort(err))
		}
		list = append(list, r)
	}
}

// appendRead appends so many bytes of r. It makes room for as many again as have come, whatever the length claims.
func appendRead(b []byte, r io.Reader, length uint64) ([]byte, error) {
	const first = 1 << 16
	for length > 0 {
		n := int(min(length, uint64(max(len(b), first))))
		b = slices.Grow(b, n)
		if _, err := io.ReadFull(r, b[len(b):len(b)+n]); err != nil {
			return b, err
		}
		b = b[:len(b)+n]
		length -= uint64(n)
	}
	return b, nil
}

// cutShort says of an end that came too early that it did.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
