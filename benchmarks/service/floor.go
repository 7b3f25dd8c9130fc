package service

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The floor's protocol: a request is one byte, seven of padding and a number of bytes; a fetch is answered with so many bytes,
// a store brings them after the request and is answered with one byte.
const (
	floorFetch  = 'f'
	floorStore  = 's'
	floorHeader = 16
	floorMost   = 1 << 30 // bytes in a block
)

// ServeFloor answers connections until the listener is closed. Each has its own goroutine and buffer.
func ServeFloor(l net.Listener) error {
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
			// The end of a connection is how clients of the floor say that they are done.
			_ = answerFloor(c)
		}()
	}
}

// answerFloor answers one connection's requests until it ends. The blocks that are fetched and stored lie one after another in
// memory of the size of a table that is measured: what is fetched is not what was fetched just before.
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

// dialFloor connects, with a buffer for blocks of up to so many bytes.
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

// fetch has the server send a block.
func (f *floorClient) fetch() error {
	if _, err := f.conn.Write(f.header(floorFetch)); err != nil {
		return err
	}
	_, err := io.ReadFull(f.conn, f.block)
	return err
}

// store sends a block and awaits the answer.
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
