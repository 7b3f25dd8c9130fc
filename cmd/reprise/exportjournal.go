package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/wire"
)

// fromJournal exports the table of a journal: a service of its own opens a copy, and nothing is written to the journal.
func (c *exportCommand) fromJournal(ctx context.Context, done *exported) (err error) {
	data, err := os.MkdirTemp("", "reprise-export")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	name, err := copyJournal(string(c.Source), data)
	if err != nil {
		return err
	}
	return withService(ctx, data, func(connected *client.Client) error {
		return c.write(ctx, connected.Table(name), done)
	})
}

// copyJournal copies what a whole journal holds to where a service with that data folder looks for it, and returns the table's name.
func copyJournal(path, data string) (name string, err error) {
	folder := filepath.Join(data, "tables")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	unnamed := filepath.Join(data, "journal")
	report, err := journal.Salvage(path, unnamed)
	if err != nil {
		return "", err
	}
	if !report.Whole() {
		return "", fmt.Errorf("the journal is damaged: %s\n`reprise journal salvage %s --out NEW` writes what is whole into a new file, which can be exported", report, path)
	}
	if name, err = tableOf(unnamed); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return name, os.Rename(unnamed, filepath.Join(folder, name+".journal"))
}

// tableOf returns the name of the table in a journal's definition.
func tableOf(path string) (string, error) {
	var definition wire.Table
	enough := errors.New("the definition is known")
	_, _, _, err := journal.Open(journal.Options{Path: path}, func(text []byte) (*replay.Table, error) {
		if err := json.Unmarshal(text, &definition); err != nil {
			return nil, fmt.Errorf("the definition of its table: %w", err)
		}
		return nil, enough
	})
	if !errors.Is(err, enough) {
		return "", err
	}
	return definition.Name, wire.CheckName(definition.Name)
}

// withService calls use with a connection to a service of the tables in a data folder, which ends afterwards.
func withService(ctx context.Context, data string, use func(*client.Client) error) (err error) {
	socket := filepath.Join(data, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s, err := service.New(service.Options{Data: data, Sync: journal.Off, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := grpc.NewServer(s.GRPCOptions()...)
	s.Register(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.Listener(l)) }()
	defer func() {
		_, stopped := s.Stop(context.WithoutCancel(ctx))
		server.Stop()
		err = errors.Join(err, stopped, <-ended)
	}()
	connected, err := client.Dial(ctx, "grpc+unix://"+socket, client.Options{})
	if err != nil {
		return err
	}
	return errors.Join(use(connected), connected.Close())
}
