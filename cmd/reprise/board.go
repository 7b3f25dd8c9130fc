package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/reprise-rl/reprise/lab/board"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

// boardCommand serves a folder of runs to browsers on this machine.
type boardCommand struct {
	Dir    dir     `arg:"" optional:"" default:"runs" help:"Folder whose runs, comparisons and studies are shown, however deep."`
	Listen address `default:"127.0.0.1:6007" help:"Address of the pages, which only this machine can reach. With port 0 the system chooses one."`
}

// maxBoardConnections bounds what browsers can make the board hold.
const maxBoardConnections = 64

// Run serves until the context ends.
func (c *boardCommand) Run(ctx context.Context) error {
	shown, err := board.Open(string(c.Dir), board.Tables{
		Files: run.TableFiles(), Last: lastTable, PolicyFiles: run.PolicyFiles(),
		Policy: func(dir string) (board.Scorer, error) { return run.LastScorer(dir) },
	})
	if err != nil {
		return err
	}
	defer shown.Close()
	l, err := listenOnLoopback(ctx, string(c.Listen))
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := &http.Server{Handler: shown, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(l, maxBoardConnections)) }()
	fmt.Printf("board of %s: http://%s/\nCtrl-C stops it\n", c.Dir, l.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

// listenOnLoopback listens where only this machine can connect. Its errors say how else to look at the pages.
func listenOnLoopback(ctx context.Context, address string) (net.Listener, error) {
	l, err := access.Listen(ctx, address, false, false)
	switch {
	case wire.CodeOf(err) == wire.Invalid:
		return nil, fmt.Errorf("%q can be reached from other machines, and the board has no password: want "+
			"127.0.0.1:PORT. To watch from another machine: ssh -L 6007:127.0.0.1:6007 HOST", address)
	case errors.Is(err, access.ErrInUse):
		if free, e := access.Listen(ctx, net.JoinHostPort("127.0.0.1", "0"), false, false); e == nil {
			err = fmt.Errorf("%w: --listen %s is free", err, free.Addr())
			_ = free.Close()
		}
	}
	return l, err
}
