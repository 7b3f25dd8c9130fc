package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reprise-rl/reprise/rollout"
)

// vandal sends what no client would, straight to the service.
type vandal struct {
	target     string // host:port
	web        string // host:port of HTTP
	maxMessage int    // the service's limit, bytes
	verdict    *Verdict
	done       *tally
	random     *rand.Rand
	number     int // of insertions
}

func newVandal(s *server, maxMessage int, v *Verdict, done *tally, seed uint64, number int) *vandal {
	return &vandal{
		target: s.listen, web: s.web, maxMessage: maxMessage, verdict: v, done: done,
		random: rollout.Stream(seed, "vandal", uint64(number)), number: number << 32,
	}
}

// attack is one kind of nonsense. Refused must fail: what it sends can never be served.
type attack struct {
	name    string
	refused bool
	do      func(*vandal, context.Context, *grpc.ClientConn) error
}

func attacks() []attack {
	return []attack{
		{"noise", false, (*vandal).sendNoise},
		{"frames", false, (*vandal).sendFrames},
		{"bytes", true, (*vandal).sendBytes},
		{"bent insertion", false, (*vandal).sendBent},
		{"bent request", false, (*vandal).sendBentRequest},
		{"bent action", false, (*vandal).sendBentAction},
		{"wrong columns", true, (*vandal).sendWrongColumns},
		{"too large", true, (*vandal).sendTooLarge},
		{"half a call", false, (*vandal).stopHalfway},
		{"deaf reader", false, (*vandal).neverRead},
		{"many calls", false, (*vandal).openMany},
		{"web noise", false, (*vandal).sendWebNoise},
	}
}

// run sends one thing after the other until the context ends.
func (v *vandal) run(ctx context.Context) {
	kinds := attacks()
	for ctx.Err() == nil {
		conn, err := rawConnection(v.target)
		if err != nil {
			v.verdict.violate("vandal: %v", err)
			return
		}
		for range 1 + v.random.IntN(30) {
			if ctx.Err() == nil {
				v.attack(ctx, kinds[v.random.IntN(len(kinds))], conn)
				wait(ctx, time.Duration(v.random.IntN(50))*time.Millisecond)
			}
		}
		conn.Close()
	}
}

func (v *vandal) attack(ctx context.Context, a attack, conn *grpc.ClientConn) {
	err := a.do(v, ctx, conn)
	if ctx.Err() != nil {
		return
	}
	v.done.add(a.name)
	switch {
	case a.refused && err == nil:
		v.verdict.violate("%s: the service took what it must refuse", a.name)
	case a.refused && (status.Code(err) == codes.Internal || status.Code(err) == codes.Unknown):
		v.done.add("vague")
	case status.Code(err) == codes.Internal:
		v.done.add("internal")
	}
}

// sendNoise sends random bytes to the port.
func (v *vandal) sendNoise(ctx context.Context, _ *grpc.ClientConn) error {
	return v.toSocket(ctx, v.target, noise(v.random, 1+v.random.IntN(32<<10)))
}

// sendFrames sends frames of HTTP/2 of any type, length and stream.
func (v *vandal) sendFrames(ctx context.Context, _ *grpc.ClientConn) error {
	message := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for range 1 + v.random.IntN(40) {
		payload := noise(v.random, v.random.IntN(256))
		n := len(payload)
		head := []byte{byte(n >> 16), byte(n >> 8), byte(n), byte(v.random.IntN(12)), byte(v.random.Uint32()), 0, 0, 0, byte(v.random.IntN(16))}
		message = append(append(message, head...), payload...)
	}
	return v.toSocket(ctx, v.target, message)
}

// sendWebNoise sends random bytes, or a request with a random path, to the HTTP port.
func (v *vandal) sendWebNoise(ctx context.Context, _ *grpc.ClientConn) error {
	message := noise(v.random, 1+v.random.IntN(4<<10))
	if v.random.IntN(2) == 0 {
		message = fmt.Appendf(nil, "GET /%x?%x=%q HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", noise(v.random, 8), noise(v.random, 4), noise(v.random, 64))
	}
	return v.toSocket(ctx, v.web, message)
}

// toSocket sends bytes over a connection of their own, and takes a moment's answers.
func (v *vandal) toSocket(ctx context.Context, address string, message []byte) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Duration(20+v.random.IntN(300)) * time.Millisecond))
	if _, err := c.Write(message); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	for err == nil {
		_, err = c.Read(answer)
	}
	return err
}
