package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/reprise-rl/reprise/service/server"
)

// healthCommand asks the service on this machine whether it is well: for containers without a shell.
type healthCommand struct {
	Config  file          `short:"c" help:"The configuration file that the service was started with."`
	HTTP    address       `name:"http" help:"Address of its pages, if it is not the file's (127.0.0.1:7448)."`
	Timeout time.Duration `default:"5s" help:"How long the answer may take."`
}

// Run prints nothing if the service is well.
func (c *healthCommand) Run(ctx context.Context) error {
	config, err := server.Read(string(c.Config))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	config.HTTP = cmp.Or(string(c.HTTP), config.HTTP)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return server.CheckHealth(ctx, config)
}
