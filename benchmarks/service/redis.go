package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// errAbsent says that a peer is not here, which leaves it out.
var errAbsent = errors.New("not installed")

// redisServer is a Redis server: a child that keeps nothing on disk, or one that runs already.
type redisServer struct {
	*child  // nil: not ours
	place   place
	version string
}

// startRedis starts the server that the setting names, on a port and a unix socket of its own.
func startRedis(ctx context.Context, setting, dir string) (*redisServer, error) {
	if host, port, err := net.SplitHostPort(setting); err == nil {
		return foreignRedis(host, port)
	}
	program := setting
	if setting == Auto {
		program = "redis-server"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("redis: %s is %w", program, errAbsent)
	}
	at, err := newPlace(dir, "redis.sock")
	if err != nil {
		return nil, err
	}
	c, err := start("redis-server", path, "--bind", "127.0.0.1", "--port", strconv.Itoa(at.port), "--unixsocket", at.path,
		"--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no", "--logfile", "")
	if err != nil {
		return nil, err
	}
	if err := c.answers(ctx, func() error { return dials(at) }); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return &redisServer{c, at, redisVersion(path)}, nil
}

// foreignRedis takes a server that runs, over TCP alone.
func foreignRedis(host, port string) (*redisServer, error) {
	n, err := strconv.Atoi(port)
	if err != nil || host != "127.0.0.1" && host != "localhost" {
		return nil, &SettingError{"redis", net.JoinHostPort(host, port), "auto, off, a redis-server's path or 127.0.0.1:PORT"}
	}
	return &redisServer{nil, place{port: n}, ""}, nil
}

func redisVersion(path string) string {
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return ""
	}
	for _, word := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return v
		}
	}
	return ""
}

// redisContenders store and fetch so many bytes: as one value, and as many values by one command. Forget removes them.
func redisContenders(r *respClient, bytes int64, values int) (store, fetch []contender, forget func() error, err error) {
	block := make([]byte, bytes)
	keys, parts := make([]string, values), make([][]byte, values)
	for i := range parts {
		keys[i] = fmt.Sprintf("reprise-bench-%d", i)
		parts[i] = block[int64(i)*bytes/int64(values) : int64(i+1)*bytes/int64(values)]
	}
	const key = "reprise-bench"
	if err := errors.Join(r.set(key, block), r.mset(keys, parts)); err != nil {
		return nil, nil, nil, err
	}
	whole := func(n int, err error) error {
		if err == nil && int64(n) != bytes {
			err = fmt.Errorf("got %d of %d bytes", n, bytes)
		}
		return err
	}
	store = []contender{
		repeated("redis SET", func(context.Context) error { return r.set(key, block) }),
		repeated("redis MSET", func(context.Context) error { return r.mset(keys, parts) }),
	}
	fetch = []contender{
		repeated("redis GET", func(context.Context) error { return whole(r.get(key)) }),
		repeated("redis MGET", func(context.Context) error { return whole(r.mget(keys)) }),
	}
	return store, fetch, func() error { return r.del(append(keys, key)) }, nil
}
