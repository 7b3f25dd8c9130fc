package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

// fault is what a proxy does to one connection.
type fault struct {
	after time.Duration // until it is cut
	reset bool          // by a reset, instead of closing it
	rate  int           // bytes per second towards the client; 0: not throttled
}

// newFault draws a fault: an eighth of the connections is cut within moments, a quarter is slow.
func newFault(random *rand.Rand) fault {
	f := fault{after: time.Duration(1+random.ExpFloat64()*8000) * time.Millisecond, reset: random.IntN(2) == 0}
	if random.IntN(8) == 0 {
		f.after = time.Duration(1+random.IntN(100)) * time.Millisecond
	}
	if random.IntN(4) == 0 {
		f.rate = 64 << 10 << random.IntN(6)
	}
	return f
}

// proxy forwards TCP connections to a service, and cuts and throttles them.
type proxy struct {
	listener net.Listener
	target   string
	seed     uint64

	cut, slow atomic.Uint64
	wg        sync.WaitGroup
}

func newProxy(target string, seed uint64) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &proxy{listener: l, target: target, seed: seed}, nil
}

// address is the proxy's address as clients write it.
func (p *proxy) address() string { return "grpc://" + p.listener.Addr().String() }

// serve forwards connections until the context ends, which cuts them.
func (p *proxy) serve(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { p.listener.Close() })()
	for n := uint64(0); ; n++ {
		c, err := p.listener.Accept()
		if err != nil {
			break
		}
		p.wg.Go(func() { p.forward(ctx, c.(*net.TCPConn), newFault(rollout.Stream(p.seed, "proxy", n))) })
	}
	p.wg.Wait()
}

// forward copies bytes both ways until one end closes, or the connection is cut.
func (p *proxy) forward(ctx context.Context, near *net.TCPConn, f fault) {
	defer near.Close()
	c, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	far := c.(*net.TCPConn)
	defer far.Close()
	end := func() {
		if f.reset {
			near.SetLinger(0)
			far.SetLinger(0)
		}
		near.Close()
		far.Close()
	}
	over := time.AfterFunc(f.after, func() {
		p.cut.Add(1)
		end()
	})
	defer over.Stop()
	defer context.AfterFunc(ctx, end)()
	var back io.Reader = far
	if f.rate > 0 {
		p.slow.Add(1)
		near.SetWriteBuffer(16 << 10) // or the kernel would buffer everything
		far.SetReadBuffer(16 << 10)
		back = &throttle{far, f.rate}
	}
	var both sync.WaitGroup
	both.Go(func() { copyAndEnd(far, near) })
	both.Go(func() { copyAndEnd(near, back) })
	both.Wait()
}

// copyAndEnd copies to the end, and closes the other side for writing.
func copyAndEnd(to *net.TCPConn, from io.Reader) {
	_, err := io.Copy(to, from)
	if err == nil || errors.Is(err, io.EOF) {
		to.CloseWrite()
		return
	}
	to.Close()
}

// throttle is a reader with a limited rate.
type throttle struct {
	from io.Reader
	rate int // bytes per second
}

// Read returns at most the bytes of a twentieth of a second, after that time.
func (t *throttle) Read(p []byte) (int, error) {
	n, err := t.from.Read(p[:min(len(p), max(t.rate/20, 1))])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(t.rate))
	return n, err
}
