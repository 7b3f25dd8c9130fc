package service

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// respMost bounds what a value read from a Redis server may be: its own limit.
const respMost = 512 << 20

// respClient speaks just enough of Redis's protocol, RESP2, to store and fetch values. Values are sent from where they
// are, in one writev, and read into one buffer.
type respClient struct {
	conn net.Conn
	read *bufio.Reader
	into []byte // grown to the largest value
}

func dialRESP(network, address string) (*respClient, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return newRESP(c), nil
}

func newRESP(c net.Conn) *respClient {
	return &respClient{conn: c, read: bufio.NewReaderSize(c, 64<<10)}
}

func (r *respClient) close() { r.conn.Close() }

// send writes a command, an array of bulk strings.
func (r *respClient) send(arguments ...[]byte) error {
	out := make(net.Buffers, 0, 2*len(arguments)+1)
	out = append(out, fmt.Appendf(nil, "*%d\r\n", len(arguments)))
	for _, a := range arguments {
		// The end of one argument and the head of the next travel together.
		last := len(out) - 1
		out[last] = fmt.Appendf(out[last], "$%d\r\n", len(a))
		out = append(out, a, []byte("\r\n"))
	}
	_, err := out.WriteTo(r.conn)
	return err
}

// set stores a value under a key.
func (r *respClient) set(key string, value []byte) error {
	if err := r.send([]byte("SET"), []byte(key), value); err != nil {
		return err
	}
	return r.ok()
}

// mset stores values under keys, at once.
func (r *respClient) mset(keys []string, values [][]byte) error {
	arguments := [][]byte{[]byte("MSET")}
	for i, k := range keys {
		arguments = append(arguments, []byte(k), values[i])
	}
	if err := r.send(arguments...); err != nil {
		return err
	}
	return r.ok()
}

// get fetches a value and returns its length; it is in r.into.
func (r *respClient) get(key string) (int, error) {
	if err := r.send([]byte("GET"), []byte(key)); err != nil {
		return 0, err
	}
	return r.bulk(0)
}

// mget fetches values at once and returns their lengths together; they follow one another in r.into.
func (r *respClient) mget(keys []string) (int, error) {
	arguments := [][]byte{[]byte("MGET")}
	for _, k := range keys {
		arguments = append(arguments, []byte(k))
	}
	if err := r.send(arguments...); err != nil {
		return 0, err
	}
	n, err := r.number('*')
	if err != nil {
		return 0, err
	}
	if n != len(keys) {
		return 0, fmt.Errorf("MGET of %d keys: got %d values", len(keys), n)
	}
	total := 0
	for range n {
		if total, err = r.bulk(total); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// del removes keys.
func (r *respClient) del(keys []string) error {
	arguments := [][]byte{[]byte("DEL")}
	for _, k := range keys {
		arguments = append(arguments, []byte(k))
	}
	if err := r.send(arguments...); err != nil {
		return err
	}
	_, err := r.number(':')
	return err
}

// ok reads +OK.
func (r *respClient) ok() error {
	line, err := r.line()
	if err == nil && line != "+OK" {
		err = fmt.Errorf("answer %q: want +OK", line)
	}
	return err
}

// bulk reads a value to offset at of r.into and returns where it ends.
func (r *respClient) bulk(at int) (int, error) {
	n, err := r.number('$')
	if err != nil {
		return 0, err
	}
	if need := at + n; need > len(r.into) {
		r.into = append(r.into[:at], make([]byte, n)...)
	}
	if _, err := io.ReadFull(r.read, r.into[at:at+n]); err != nil {
		return 0, err
	}
	var end [2]byte
	if _, err := io.ReadFull(r.read, end[:]); err != nil {
		return 0, err
	}
	if end != [2]byte{'\r', '\n'} {
		return 0, errors.New("a value does not end with its length")
	}
	return at + n, nil
}

// number reads a line of a kind that holds a length or a count.
func (r *respClient) number(kind byte) (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	if line == "" || line[0] != kind {
		return 0, fmt.Errorf("answer %.80q: want a number after %q", line, kind)
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > respMost {
		return 0, fmt.Errorf("answer %.80q: want a number from 0 to %d", line, respMost)
	}
	return n, nil
}

// line reads up to the end of a line, of at most 64 KiB.
func (r *respClient) line() (string, error) {
	text, err := r.read.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(text) < 2 || text[len(text)-2] != '\r' {
		return "", fmt.Errorf("answer %.80q: want a line that ends with CR and LF", text)
	}
	return string(text[:len(text)-2]), nil
}
