package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/reprise-rl/reprise/client"
)

// connection says how a service is reached.
type connection struct {
	TokenFile  file `help:"File with the bearer token."`
	CA         file `name:"ca" help:"PEM file of those who may have signed the service's certificate."`
	Cert       file `name:"certificate" help:"PEM file of this client's certificate, for services that ask for one."`
	Key        file `help:"PEM file of its key."`
	ServerName text `help:"Name in the service's certificate, where it is not that of the address."`
}

// table connects to the service that an address names, and returns its table.
func (c connection) table(ctx context.Context, address string) (*client.Client, *client.Table, error) {
	where, name, err := client.SplitTable(address)
	if err != nil {
		return nil, nil, err
	}
	connected, err := client.Dial(ctx, where, c.options())
	if err != nil {
		return nil, nil, err
	}
	return connected, connected.Table(name), nil
}

// options returns the flags as package client takes them.
func (c connection) options() client.Options {
	return client.Options{TokenFile: string(c.TokenFile), CA: string(c.CA), Cert: string(c.Cert), Key: string(c.Key), ServerName: string(c.ServerName)}
}

// isAddress tells the address of a table from the name of a file.
func isAddress(source string) bool { return strings.Contains(source, "://") }

// refuseToReplace demands that nothing stands under a name, but for a file if it may be replaced.
func refuseToReplace(path string, force bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("--out %s: it is there and no file", path)
	case !force:
		return fmt.Errorf("--out %s: it is there; --force replaces it", path)
	}
	return nil
}
