package service

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// FuzzClientFrames compares the counts with x/net's framer, for frames of any kind in any pieces.
func FuzzClientFrames(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, seed, cuts uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		text := bytes.NewBufferString(http2.ClientPreface)
		framer := http2.NewFramer(text, nil)
		want, wantBegun := int64(0), 0
		for range random.IntN(50) {
			payload := make([]byte, random.IntN(1<<random.IntN(15)))
			stream := 1 + 2*random.Uint32N(5)
			var err error
			switch random.IntN(5) {
			case 0:
				err = framer.WritePing(false, [8]byte{})
			case 1:
				wantBegun++
				err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: payload,
					EndHeaders: true})
			case 2:
				err = framer.WriteRSTStream(stream, http2.ErrCodeCancel)
			default:
				err = framer.WriteData(stream, false, payload)
				want += int64(len(payload))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		counted, got, begun := clientFrames{skip: prefaceBytes}, int64(0), 0
		pieces := rand.New(rand.NewPCG(cuts, 1))
		for b := text.Bytes(); len(b) > 0; {
			n := min(1+pieces.IntN(1<<pieces.IntN(15)), len(b))
			data, calls := counted.count(b[:n])
			got, begun = got+data, begun+calls
			b = b[n:]
		}
		if got != want || begun != wantBegun {
			t.Errorf("%d bytes of data, %d calls begun: want %d and %d", got, begun, want, wantBegun)
		}
	})
}

// opened adds a connection without a client. Its checks run when the test calls them.
func (all *connections) opened(t *testing.T) *conn {
	raw, other := net.Pipe()
	c := all.add(raw)
	c.slow = time.AfterFunc(time.Hour, func() {})
	t.Cleanup(func() {
		_ = c.Close()
		_ = other.Close()
	})
	return c
}

func TestAClosedConnectionIsNotCheckedAgain(t *testing.T) {
	all := newConnections(Options{SendTimeout: time.Hour}.withDefaults())
	c := all.opened(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.checkSender() // its timer fired before Close stopped it
	if c.slow.Stop() {
		t.Error("the timer of a closed connection was set again")
	}
}
