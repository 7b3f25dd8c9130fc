package client

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/reprise-rl/reprise/wire"
)

// DefaultPort is the port of an address that names none.
const DefaultPort = "7447"

// The schemes of addresses.
const (
	plainScheme = "grpc"
	tlsScheme   = "grpc+tls"
	unixScheme  = "grpc+unix"
)

const addressForms = "want grpc://host:port, grpc+tls://host:port or grpc+unix:///path/of/socket"

// address is where a service listens.
type address struct {
	scheme string
	host   string // without brackets; "" of a socket
	port   string
	path   string // of a socket
}

// parseAddress reads an address as [Dial] takes it.
func parseAddress(text string) (address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return address{}, fmt.Errorf("address: %q: %s", text, addressForms)
	}
	a := address{scheme: scheme}
	switch scheme {
	case unixScheme:
		if !strings.HasPrefix(rest, "/") || strings.HasSuffix(rest, "/") {
			return address{}, fmt.Errorf("address: %q: want the absolute path of a socket, grpc+unix:///run/reprise.sock", text)
		}
		a.path = rest
		return a, nil
	case plainScheme, tlsScheme:
	default:
		return address{}, fmt.Errorf("address: %q: %s", text, addressForms)
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, "/?#@ ") || rest == "" {
		return address{}, fmt.Errorf("address: %q: %s", text, addressForms)
	}
	var err error
	if a.host, a.port, err = net.SplitHostPort(rest); err != nil { // without a port
		if a.host, a.port, err = net.SplitHostPort(rest + ":" + DefaultPort); err != nil {
			return address{}, fmt.Errorf("address: %q: %s", text, addressForms)
		}
	}
	if a.host == "" || a.port == "" {
		return address{}, fmt.Errorf("address: %q: %s", text, addressForms)
	}
	return a, nil
}

// String returns the address as Dial takes it.
func (a address) String() string {
	if a.scheme == unixScheme {
		return unixScheme + "://" + a.path
	}
	return a.scheme + "://" + net.JoinHostPort(a.host, a.port)
}

// target is the address as gRPC takes it.
func (a address) target() string {
	if a.scheme == unixScheme {
		return "unix://" + a.path
	}
	return "dns:///" + net.JoinHostPort(a.host, a.port)
}

// local reports whether nobody outside of this machine can listen in.
func (a address) local() bool {
	if a.scheme == unixScheme || a.host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.IsLoopback()
}

// SplitTable takes the address of a table apart: "grpc://host:7447/lab" names table lab of the service at grpc://host:7447, and
// "grpc+unix:///run/reprise.sock/lab" that of the service at a socket.
func SplitTable(text string) (service, table string, err error) {
	i := strings.LastIndex(text, "/")
	if i < 0 || strings.HasSuffix(text[:i+1], "://") {
		return "", "", fmt.Errorf("address: %q names no table: want grpc://host:port/table", text)
	}
	a, err := parseAddress(text[:i])
	if err != nil {
		return "", "", err
	}
	if err := wire.CheckName(text[i+1:]); err != nil {
		return "", "", fmt.Errorf("address: %q: %w", text, err)
	}
	return a.String(), text[i+1:], nil
}
