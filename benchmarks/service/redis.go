package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/benchmarks/process"
	"github.com/reprise-rl/reprise/rollout/option"
)

// redisServer is a Redis server that keeps nothing on disk, or one that runs already.
type redisServer struct {
	process *process.Process // nil: not ours
	at      endpoint
	version string
}

// startRedis starts the server that the setting names, on addresses of its own.
func startRedis(ctx context.Context, setting, dir string) (*redisServer, error) {
	if host, port, err := net.SplitHostPort(setting); err == nil {
		if _, err := strconv.Atoi(port); err != nil || host != "127.0.0.1" && host != "localhost" {
			return nil, &option.Error{Key: "--redis", Value: setting,
				Want: "auto, off, a redis-server's path or 127.0.0.1:PORT"}
		}
		return &redisServer{at: endpoint{host: setting}}, nil
	}
	program := setting
	if setting == auto {
		program = "redis-server"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("redis: %s is %w", program, errMissing)
	}
	at, err := newEndpoint(dir, "redis.sock")
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(at.host, ":")
	p, err := process.Start("redis-server", nil, path, "--bind", "127.0.0.1", "--port", port, "--unixsocket", at.path,
		"--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no", "--logfile", "")
	if err != nil {
		return nil, err
	}
	if err := p.AwaitReady(ctx, at.ready); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return &redisServer{p, at, redisVersion(path)}, nil
}

func redisVersion(path string) string {
	out, _ := exec.Command(path, "--version").Output()
	for _, word := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return v
		}
	}
	return ""
}

// redisContenders store and fetch blocks of the given bytes: as one value, and as several values with one command.
// Forget removes them.
func redisContenders(r *redisClient, bytes int64, values int) (store, fetch []contender, forget func() error,
	err error) {
	block := make([]byte, bytes)
	const key = "reprise-bench"
	set, get := [][]byte{[]byte("SET"), []byte(key), block}, [][]byte{[]byte("GET"), []byte(key)}
	mset, mget, del := [][]byte{[]byte("MSET")}, [][]byte{[]byte("MGET")}, [][]byte{[]byte("DEL"), []byte(key)}
	for i := range values {
		k := fmt.Appendf(nil, "%s-%d", key, i)
		mset = append(mset, k, block[int64(i)*bytes/int64(values):int64(i+1)*bytes/int64(values)])
		mget, del = append(mget, k), append(del, k)
	}
	fetchAll := func(command [][]byte) error {
		n, err := r.fetch(command)
		if err == nil && int64(n) != bytes {
			err = fmt.Errorf("got %d of %d bytes", n, bytes)
		}
		return err
	}
	if err := errors.Join(r.store(set), r.store(mset)); err != nil {
		return nil, nil, nil, err
	}
	store = []contender{
		repeated("redis SET", func(context.Context) error { return r.store(set) }),
		repeated("redis MSET", func(context.Context) error { return r.store(mset) }),
	}
	fetch = []contender{
		repeated("redis GET", func(context.Context) error { return fetchAll(get) }),
		repeated("redis MGET", func(context.Context) error { return fetchAll(mget) }),
	}
	return store, fetch, func() error {
		if err := r.send(del); err != nil {
			return err
		}
		_, err := r.number(':')
		return err
	}, nil
}

// maxRedisValue is the largest value that a Redis server stores.
const maxRedisValue = 512 << 20

// redisClient speaks enough of Redis's protocol, RESP2, to store and fetch values. It sends values from where they are,
// in one writev, and receives them in one buffer. Client libraries copy values, so they would make Redis look slower
// than it is.
type redisClient struct {
	conn net.Conn
	read *bufio.Reader
	into []byte // grows to the largest value
}

func dialRedis(network, address string) (*redisClient, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return newRedisClient(c), nil
}

func newRedisClient(c net.Conn) *redisClient {
	return &redisClient{conn: c, read: bufio.NewReaderSize(c, 64<<10)}
}

func (r *redisClient) close() { r.conn.Close() }

// send writes a command, an array of bulk strings.
func (r *redisClient) send(arguments [][]byte) error {
	out := make(net.Buffers, 0, 2*len(arguments)+1)
	out = append(out, fmt.Appendf(nil, "*%d\r\n", len(arguments)))
	for _, a := range arguments {
		// The end of one argument and the head of the next are one buffer.
		last := len(out) - 1
		out[last] = fmt.Appendf(out[last], "$%d\r\n", len(a))
		out = append(out, a, []byte("\r\n"))
	}
	_, err := out.WriteTo(r.conn)
	return err
}

// store sends a command whose answer is +OK.
func (r *redisClient) store(command [][]byte) error {
	if err := r.send(command); err != nil {
		return err
	}
	line, err := r.line()
	if err == nil && line != "+OK" {
		err = fmt.Errorf("answer %q: want +OK", line)
	}
	return err
}

// fetch sends GET or MGET and returns the number of bytes of all values, which follow one another in r.into.
func (r *redisClient) fetch(command [][]byte) (int, error) {
	if err := r.send(command); err != nil {
		return 0, err
	}
	values := len(command) - 1
	if string(command[0]) == "MGET" {
		n, err := r.number('*')
		if err != nil {
			return 0, err
		}
		if n != values {
			return 0, fmt.Errorf("%d values: want %d", n, values)
		}
	}
	end := 0
	for range values {
		var err error
		if end, err = r.value(end); err != nil {
			return 0, err
		}
	}
	return end, nil
}

// value reads a bulk string into r.into from an offset on, and returns where it ends.
func (r *redisClient) value(at int) (int, error) {
	n, err := r.number('$')
	if err != nil {
		return 0, err
	}
	if at+n > len(r.into) {
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

// number reads a line that holds a length or a count after its kind.
func (r *redisClient) number(kind byte) (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	if line == "" || line[0] != kind {
		return 0, fmt.Errorf("answer %.80q: want a number after %q", line, kind)
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > maxRedisValue {
		return 0, fmt.Errorf("answer %.80q: want a number from 0 to %d", line, maxRedisValue)
	}
	return n, nil
}

// line reads a line of at most 64 KiB.
func (r *redisClient) line() (string, error) {
	text, err := r.read.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(text) < 2 || text[len(text)-2] != '\r' {
		return "", fmt.Errorf("answer %.80q: want a line that ends with CR and LF", text)
	}
	return string(text[:len(text)-2]), nil
}
