package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The floor's protocol: a request is one byte, seven bytes of padding and a number of bytes. The answer to a fetch is
// that many bytes. A store sends them after the request, and its answer is one byte.
const (
	floorFetch  = 'f'
	floorStore  = 's'
	floorHeader = 16
	floorMost   = 1 << 30 // bytes in a block
)

// serveFloor answers connections until the listener is closed. Each has its own goroutine and buffer.
func serveFloor(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = answerFloor(c) // clients end by closing the connection
		}()
	}
}

// answerFloor answers one connection's requests until it ends. Blocks cycle through as much memory as a measured table
// takes, so that a fetch does not find the last one in the cache.
func answerFloor(c net.Conn) error {
	var header [floorHeader]byte
	var memory []byte
	next := uint64(0)
	for {
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(header[8:])
		if n > floorMost {
			return fmt.Errorf("a block of %d bytes: want at most %d", n, floorMost)
		}
		if uint64(len(memory)) < batches*n {
			memory = make([]byte, batches*n)
		}
		block := memory[next*n:][:n]
		next = (next + 1) % batches
		switch header[0] {
		case floorFetch:
			if _, err := c.Write(block); err != nil {
				return err
			}
		case floorStore:
			if _, err := io.ReadFull(c, block); err != nil {
				return err
			}
			if _, err := c.Write(header[:1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("request %q: want %q or %q", header[0], floorFetch, floorStore)
		}
	}
}

// floorClient is one connection to the floor.
type floorClient struct {
	conn  net.Conn
	block []byte
}

// dialFloor connects, for blocks of the given bytes.
func dialFloor(network, address string, bytes int64) (*floorClient, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &floorClient{c, make([]byte, bytes)}, nil
}

func (f *floorClient) header(kind byte) []byte {
	var h [floorHeader]byte
	h[0] = kind
	binary.LittleEndian.PutUint64(h[8:], uint64(len(f.block)))
	return h[:]
}

// fetch makes the server send a block.
func (f *floorClient) fetch() error {
	if _, err := f.conn.Write(f.header(floorFetch)); err != nil {
		return err
	}
	_, err := io.ReadFull(f.conn, f.block)
	return err
}

// store sends a block and waits for the answer.
func (f *floorClient) store() error {
	both := net.Buffers{f.header(floorStore), f.block} // one writev
	if _, err := both.WriteTo(f.conn); err != nil {
		return err
	}
	var answer [1]byte
	_, err := io.ReadFull(f.conn, answer[:])
	return err
}

func (f *floorClient) close() { f.conn.Close() }
