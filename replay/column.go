package replay

import (
	"encoding/gob"
	"slices"
)

// column is a slice of an image that grows with the table, and is written in pieces so that neither end needs a buffer for all of it.
type column interface {
	write(to *gob.Encoder) error
	read(from *gob.Decoder) error
	drop()
}

// So many elements are a piece: of slots, and of batches, which have some hundred draws each.
const (
	slotPiece  = 1 << 12
	batchPiece = 1 << 4
)

// columns returns the columns in the order in which they are written.
func (im *image) columns() []column {
	list := []column{pieces[answerOf[idRange]]{&im.Inserted, slotPiece}}
	for i := range im.Shards {
		list = append(list, im.Shards[i].columns()...)
	}
	return list
}

func (im *shardImage) columns() []column {
	st, w := &im.Sampler, &im.Sampler.Weights
	return []column{
		pieces[item]{&im.Items, slotPiece}, pieces[links]{&im.Links, slotPiece}, pieces[int32]{&im.Rollouts, slotPiece},
		pieces[int32]{&im.Free, slotPiece}, pieces[int32]{&st.Slots, slotPiece}, pieces[int32]{&st.Pos, slotPiece}, pieces[int32]{&st.Uses, slotPiece},
		pieces[float64]{&w.Bases, slotPiece}, pieces[float64]{&w.Weights, slotPiece}, pieces[float64]{&w.Leasts, slotPiece},
		pieces[leaseImage]{&im.Leases, batchPiece}, pieces[answerOf[batchImage]]{&im.Answered, batchPiece},
	}
}

// withoutColumns returns a copy of everything else.
func (im *image) withoutColumns() *image {
	rest := *im
	rest.Rollouts, rest.Shards = nil, slices.Clone(im.Shards)
	for _, c := range rest.columns() {
		c.drop()
	}
	return &rest
}

// pieces is a column of pieces of size elements; a shorter one, perhaps empty, is the last.
type pieces[T any] struct {
	of   *[]T
	size int
}

func (p pieces[T]) drop() { *p.of = nil }

func (p pieces[T]) write(to *gob.Encoder) error {
	for left := *p.of; ; {
		n := min(len(left), p.size)
		if err := to.Encode(left[:n]); err != nil || n < p.size {
			return err
		}
		left = left[n:]
	}
}

func (p pieces[T]) read(from *gob.Decoder) error {
	*p.of = nil
	for {
		var piece []T // a new one: gob leaves alone what is zero
		if err := from.Decode(&piece); err != nil {
			return err
		}
		*p.of = append(*p.of, piece...)
		if len(piece) < p.size {
			return nil
		}
	}
}
