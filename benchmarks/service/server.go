package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/wire"
)

// server is `reprise serve` in a process of its own, with a connection over each transport.
type server struct {
	*child
	place   place
	clients map[string]*client.Client // by transport
}

// startServer starts the service; data is the folder of its journals, "" for none.
func startServer(ctx context.Context, program, dir, name, data, profile string) (*server, error) {
	at, err := newPlace(dir, name+".sock")
	if err != nil {
		return nil, err
	}
	arguments := []string{"serve", "--listen", at.host(), "--unix", at.path, "--http", "off"}
	if data != "" {
		arguments = append(arguments, "--data", data, "--sync", "always")
	}
	if profile != "" {
		arguments = append(arguments, "--cpuprofile", profile)
	}
	c, err := start("reprise serve", program, arguments...)
	if err != nil {
		return nil, err
	}
	s := &server{child: c, place: at, clients: make(map[string]*client.Client)}
	if err := c.answers(ctx, func() error { return dials(at) }); err != nil {
		return nil, errors.Join(err, s.close())
	}
	for _, over := range []string{TCP, Unix} {
		if s.clients[over], err = s.dial(ctx, over); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// dial makes one more connection.
func (s *server) dial(ctx context.Context, over string) (*client.Client, error) {
	return client.Dial(ctx, s.place.location(over), client.Options{})
}

// create makes a table of so many rollouts, the newest kept.
func (s *server) create(ctx context.Context, name string, capacity int) error {
	_, err := s.clients[TCP].Create(ctx, wire.Table{Name: name, Capacity: capacity})
	return err
}

func (s *server) drop(ctx context.Context, name string) error { return s.clients[TCP].Drop(ctx, name) }

// table returns a table over a transport.
func (s *server) table(over, name string) *client.Table {
	return s.clients[over].Table(name).Waiting(client.Forever)
}

// close ends the connections and the process.
func (s *server) close() error {
	var errs []error
	for over, c := range s.clients {
		if c == nil {
			continue
		}
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("over %s: %w", over, err))
		}
	}
	return errors.Join(append(errs, s.stop())...)
}
