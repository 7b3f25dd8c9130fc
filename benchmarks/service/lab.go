package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/benchmarks/process"
	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/wire"
)

// The transports.
const (
	tcp  = "tcp"
	unix = "unix"
)

// endpoint is where a server listens: an address of the loopback interface, and a unix socket.
type endpoint struct{ host, path string }

// newEndpoint finds a free address, and a path in a folder.
func newEndpoint(dir, name string) (endpoint, error) {
	host, err := process.FreeAddress()
	return endpoint{host, filepath.Join(dir, name)}, err
}

// address is what net.Dial takes for a network.
func (e endpoint) address(network string) string {
	if network == unix {
		return e.path
	}
	return e.host
}

// url is the address as clients of the service write it.
func (e endpoint) url(network string) string {
	if network == unix {
		return "grpc+unix://" + e.path
	}
	return "grpc://" + e.host
}

// ready reports whether a server answers on both networks.
func (e endpoint) ready(context.Context) error {
	for _, network := range []string{tcp, unix} {
		c, err := net.Dial(network, e.address(network))
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// lab is the processes of a measurement.
type lab struct {
	dir     string // for sockets
	disk    string // for journals, and for the files that the disk is measured on
	floor   *process.Process
	floorAt endpoint
	plain   *server
	durable *server       // nil: not measured
	redis   *redisServer  // nil: not installed
	python  *pythonClient // nil: not installed
	missing []string      // peers that are not installed, with the reason
}

// newLab starts every process that the settings ask for.
func newLab(ctx context.Context, c *runCommand) (*lab, error) {
	l := &lab{}
	if err := l.open(ctx, c); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) open(ctx context.Context, c *runCommand) (err error) {
	if l.dir, err = os.MkdirTemp("", "reprise-bench"); err != nil {
		return err
	}
	if l.disk, err = os.MkdirTemp(c.Dir, "reprise-bench-disk"); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if l.floorAt, err = newEndpoint(l.dir, "floor.sock"); err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	if l.floor, err = process.Start("the floor", nil, own, "floor", l.floorAt.host, l.floorAt.path); err != nil {
		return err
	}
	if err := l.floor.AwaitReady(ctx, l.floorAt.ready); err != nil {
		return err
	}
	if l.plain, err = startServer(ctx, c.Program, l.dir, "plain", "", c.ServerProfile); err != nil {
		return err
	}
	if c.Durable {
		if l.durable, err = startServer(ctx, c.Program, l.dir, "durable", filepath.Join(l.disk, "journals"),
			""); err != nil {
			return err
		}
	}
	if c.Redis != off {
		l.redis, err = startRedis(ctx, c.Redis, l.dir)
		if err := l.allowMissing(err, c.Redis); err != nil {
			return err
		}
	}
	if c.Python != off {
		l.python, err = startPython(c.Python, l.dir)
		return l.allowMissing(err, c.Python)
	}
	return nil
}

// errMissing means that a peer is not installed.
var errMissing = errors.New("not installed")

// allowMissing notes a peer that is not installed, unless the user named it.
func (l *lab) allowMissing(err error, setting string) error {
	if errors.Is(err, errMissing) && setting == auto {
		l.missing = append(l.missing, err.Error())
		return nil
	}
	return err
}

// close ends every process and removes the files.
func (l *lab) close() error {
	var errs []error
	if l.python != nil {
		errs = append(errs, l.python.close())
	}
	if l.redis != nil && l.redis.process != nil {
		errs = append(errs, l.redis.process.Stop())
	}
	for _, s := range []*server{l.plain, l.durable} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	if l.floor != nil {
		errs = append(errs, l.floor.Stop())
	}
	for _, dir := range []string{l.dir, l.disk} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// server is `reprise serve` in a process of its own, with a connection over each network.
type server struct {
	process *process.Process
	at      endpoint
	clients map[string]*client.Client // by network
}

// startServer starts the service. Data is the folder of its journals, "" for none.
func startServer(ctx context.Context, program, dir, name, data, profile string) (*server, error) {
	at, err := newEndpoint(dir, name+".sock")
	if err != nil {
		return nil, err
	}
	arguments := []string{"serve", "--listen", at.host, "--unix", at.path, "--http", "off"}
	if data != "" {
		arguments = append(arguments, "--data", data, "--sync", "always")
	}
	if profile != "" {
		arguments = append(arguments, "--cpuprofile", profile)
	}
	p, err := process.Start("reprise serve", nil, program, arguments...)
	if err != nil {
		return nil, err
	}
	s := &server{process: p, at: at, clients: make(map[string]*client.Client)}
	if err := p.AwaitReady(ctx, at.ready); err != nil {
		return nil, errors.Join(err, s.close())
	}
	for _, network := range []string{tcp, unix} {
		if s.clients[network], err = s.dial(ctx, network); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// dial makes one more connection.
func (s *server) dial(ctx context.Context, network string) (*client.Client, error) {
	return client.Dial(ctx, s.at.url(network), client.Options{})
}

// create makes a table that keeps the newest rollouts.
func (s *server) create(ctx context.Context, name string, capacity int) error {
	_, err := s.clients[tcp].Create(ctx, wire.Table{Name: name, Options: replay.Options{Capacity: capacity}})
	return err
}

func (s *server) drop(ctx context.Context, name string) error { return s.clients[tcp].Drop(ctx, name) }

// table returns a table over a network.
func (s *server) table(network, name string) *client.Table {
	return s.clients[network].Table(name).Waiting(client.Forever)
}

// close ends the connections and the process.
func (s *server) close() error {
	var errs []error
	for network, c := range s.clients {
		if c == nil {
			continue
		}
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("over %s: %w", network, err))
		}
	}
	return errors.Join(append(errs, s.process.Stop())...)
}
