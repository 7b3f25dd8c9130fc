package run

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/service"
)

// lab is a service in this process that can be stopped and started again, as a new one over the same data.
type lab struct {
	t      testing.TB
	data   string
	socket string
	cuts   func() int64 // bytes after which a connection is cut; nil: none is
	stop   func()       // nil: it is stopped
}

func newLab(t testing.TB) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab") // short: the path of a socket may not be long
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, data: filepath.Join(dir, "data"), socket: filepath.Join(dir, "s")}
	t.Cleanup(func() { l.halt(); os.RemoveAll(dir) })
	l.start()
	return l
}

func (l *lab) start() {
	l.t.Helper()
	if err := l.open(); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) open() error {
	s, err := service.New(service.Options{Data: l.data, Sync: journal.Off, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", l.socket)
	if err != nil {
		return err
	}
	if l.cuts != nil {
		listener = cutting{listener, l.cuts}
	}
	g := grpc.NewServer(s.GRPCOptions()...)
	s.Register(g)
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(listener) }()
	l.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if _, err := s.Stop(ctx); err != nil {
			l.t.Errorf("stop the service: %v", err)
		}
		g.Stop()
		<-done
	})
	return nil
}

// cutting is a listener whose connections break after some bytes.
type cutting struct {
	net.Listener
	after func() int64
}

func (c cutting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b := &breaking{Conn: conn}
	b.left.Store(c.after())
	return b, nil
}

type breaking struct {
	net.Conn
	left atomic.Int64 // bytes, in both directions
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	return n, errors.Join(err, b.passed(n))
}

func (b *breaking) Write(p []byte) (int, error) {
	if err := b.passed(len(p)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}

func (b *breaking) passed(n int) error {
	if b.left.Add(-int64(n)) < 0 {
		b.Close()
		return net.ErrClosed
	}
	return nil
}

func (l *lab) halt() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// address is that of a table.
func (l *lab) address(table string) string { return "grpc+unix://" + l.socket + "/" + table }

// table connects to a table until the test ends.
func (l *lab) table(name string) *client.Table {
	l.t.Helper()
	c, err := client.Dial(context.Background(), "grpc+unix://"+l.socket, client.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	return c.Table(name)
}

// elsewhere returns the configuration with its table in the lab.
func (l *lab) elsewhere(c Config, table string) Config {
	return c.WithBuffer(Remote{Address: l.address(table)})
}
