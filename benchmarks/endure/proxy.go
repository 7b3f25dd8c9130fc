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

// fate is what a proxy does to one connection.
type fate struct {
	lives time.Duration // after which it is cut
	reset bool          // by a reset instead of an orderly end
	rate  int           // bytes per second towards the client; 0: not throttled
}

// fateOf draws the fate of the n-th connection: an eighth lives for moments only, a quarter is slow.
func fateOf(random *rand.Rand) fate {
	f := fate{lives: time.Duration(1+random.ExpFloat64()*8000) * time.Millisecond, reset: random.IntN(2) == 0}
	if random.IntN(8) == 0 {
		f.lives = time.Duration(1+random.IntN(100)) * time.Millisecond
	}
	if random.IntN(4) == 0 {
		f.rate = 64 << 10 << random.IntN(6)
	}
	return f
}

// proxy passes TCP connections on to a service, and spoils them.
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

// address is the proxy's as clients write it.
func (p *proxy) address() string { return "grpc://" + p.listener.Addr().String() }

// serve passes connections on until the context ends, and ends them with it.
func (p *proxy) serve(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { p.listener.Close() })()
	for n := uint64(0); ; n++ {
		c, err := p.listener.Accept()
		if err != nil {
			break
		}
		p.wg.Go(func() { p.pass(ctx, c.(*net.TCPConn), fateOf(rollout.Stream(p.seed, "proxy", n))) })
	}
	p.wg.Wait()
}

// pass carries bytes both ways until one end closes or the fate is fulfilled.
func (p *proxy) pass(ctx context.Context, near *net.TCPConn, f fate) {
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
	over := time.AfterFunc(f.lives, func() {
		p.cut.Add(1)
		end()
	})
	defer over.Stop()
	defer context.AfterFunc(ctx, end)()
	var back io.Reader = far
	if f.rate > 0 {
		p.slow.Add(1)
		near.SetWriteBuffer(16 << 10) // or the kernel would take everything at once
		far.SetReadBuffer(16 << 10)
		back = &throttle{far, f.rate}
	}
	var both sync.WaitGroup
	both.Go(func() { copyAndEnd(far, near) })
	both.Go(func() { copyAndEnd(near, back) })
	both.Wait()
}

// copyAndEnd copies until there is no more, and says so to the other side.
func copyAndEnd(to *net.TCPConn, from io.Reader) {
	_, err := io.Copy(to, from)
	if err == nil || errors.Is(err, io.EOF) {
		to.CloseWrite()
		return
	}
	to.Close()
}

// throttle reads at most so many bytes a second.
type throttle struct {
	from io.Reader
	rate int // bytes per second
}

// Read returns a twentieth of a second's bytes at most, and takes its time.
func (t *throttle) Read(p []byte) (int, error) {
	n, err := t.from.Read(p[:min(len(p), max(t.rate/20, 1))])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(t.rate))
	return n, err
}
