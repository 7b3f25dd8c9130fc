package service

import (
	"fmt"
	"io"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/sealed"
)

// gateImages is what the books of gates are saved as.
func gateImages() sealed.Format { return sealed.Format{Magic: "reprgat", Version: 1} }

// gateImage is a gate's books with what the table had counted at that time: what was inserted since, as the journal knows to the last
// acknowledged insertion, is added to them.
type gateImage struct {
	Books    GateBooks
	Inserted uint64 // replay.Flow.Inserted
}

func (t *table) gateImage() gateImage {
	return gateImage{t.gate.Load().Books(), t.store.Flow().Inserted}
}

func (im gateImage) write(w io.Writer) error { return gateImages().Write(w, &im) }

func readGateImage(r io.Reader) (im gateImage, err error) {
	if err = gateImages().Open(r, &im); err != nil {
		err = fmt.Errorf("reading the gate's books: %w", err)
	}
	return im, err
}

// booksOf returns the books as of the table now.
func (im gateImage) booksOf(t *table) GateBooks {
	books := im.Books
	since := t.store.Flow().Inserted
	if since <= im.Inserted {
		return books
	}
	books.Begun = true
	if t.options.Unit != replay.UnitStep { // of steps nobody knows how many rollouts they were: the books may be late by the journal's interval
		books.Inserted += int64(since - im.Inserted)
	}
	return books
}
