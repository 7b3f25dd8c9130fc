package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/rollout"
)

func TestTheProxyForwardsBytesAndCuts(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	p, err := newProxy(echo.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		p.serve(ctx)
		close(served)
	}()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "hello" {
		t.Fatalf("the proxy forwarded %q, %v", answer, err)
	}
	cancel() // this cuts open connections
	if _, err := c.Read(answer); err == nil {
		t.Error("a connection that was cut still gave bytes")
	}
	<-served
}

func TestFaultsAreOfEveryKind(t *testing.T) {
	var short, slow, reset int
	for n := range uint64(1000) {
		f := newFault(rollout.Stream(1, "proxy", n))
		if f.after <= 0 {
			t.Fatalf("a connection is cut after %v", f.after)
		}
		if f.after <= 100*time.Millisecond {
			short++
		}
		if f.rate > 0 {
			slow++
		}
		if f.reset {
			reset++
		}
	}
	for name, n := range map[string]int{"short": short, "slow": slow, "reset": reset} {
		if n < 80 || n > 700 {
			t.Errorf("%d of 1,000 connections are %s", n, name)
		}
	}
}
