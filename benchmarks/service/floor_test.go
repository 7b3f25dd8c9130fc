package main

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
)

// listening starts a floor and returns its address.
func listening(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serveFloor(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-ended; err != nil {
			t.Errorf("the floor ended with %v", err)
		}
	})
	return l.Addr().String()
}

func TestTheFloorMovesWholeBlocksBothWays(t *testing.T) {
	for network, address := range map[string]string{tcp: "127.0.0.1:0",
		unix: filepath.Join(t.TempDir(), "floor.sock")} {
		at := listening(t, network, address)
		c, err := dialFloor(network, at, 3<<20+5)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.block {
			c.block[i] = byte(i * 7)
		}
		sent := string(c.block)
		if err := c.store(); err != nil {
			t.Fatal(err)
		}
		for fetched := 1; fetched <= batches; fetched++ { // the last is the block that was stored
			clear(c.block)
			if err := c.fetch(); err != nil {
				t.Fatal(err)
			}
			if got := string(c.block) == sent; got != (fetched == batches) {
				t.Errorf("%s: fetch %d gave the block that was stored: %t", network, fetched, got)
			}
		}
		c.close()
	}
}

func TestTheFloorEndsConnectionsThatBreakItsProtocol(t *testing.T) {
	at := listening(t, tcp, "127.0.0.1:0")
	for name, header := range map[string]struct {
		kind byte
		size uint64
	}{
		"an unknown request": {'x', 1},
		"a block too large":  {floorFetch, floorMost + 1},
	} {
		c, err := net.Dial(tcp, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		h := make([]byte, floorHeader)
		h[0] = header.kind
		binary.LittleEndian.PutUint64(h[8:], header.size)
		if _, err := c.Write(h); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(h); err != io.EOF {
			t.Errorf("%s: %d bytes, %v: want the end", name, n, err)
		}
	}
}
