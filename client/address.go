package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

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

// address is the address of a service.
type address struct {
	scheme string
	host   string // without brackets; "" for a socket
	port   string
	path   string // of a socket, else ""
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
			return address{}, fmt.Errorf("address: %q: want the absolute path of a socket, "+
				"grpc+unix:///run/reprise.sock", text)
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

// local reports whether the bytes stay on this machine.
func (a address) local() bool {
	if a.scheme == unixScheme || a.host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.IsLoopback()
}

// SplitTable splits the address of a table: "grpc://host:7447/lab" is table lab of the service at grpc://host:7447, and
// "grpc+unix:///run/reprise.sock/lab" table lab of the service at a socket.
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

// SplitTables splits the addresses of the parts of a table, separated by commas: "grpc://a:7447/lab,grpc://b:7447/lab"
// is table lab in parts on two services. One address is a table of one service.
func SplitTables(text string) (services []string, table string, err error) {
	for i, part := range strings.Split(text, ",") {
		service, name, err := SplitTable(strings.TrimSpace(part))
		if err != nil {
			return nil, "", err
		}
		if i > 0 && name != table {
			return nil, "", fmt.Errorf("address: %q: want parts of one table, not of %s and of %s", text, table, name)
		}
		services, table = append(services, service), name
	}
	return services, table, nil
}

// transport returns the transport security for an address.
func (o Options) transport(a address) (credentials.TransportCredentials, error) {
	if a.scheme != tlsScheme {
		if o.CA != "" || o.Cert != "" || o.ServerName != "" {
			return nil, fmt.Errorf("address: %s: want %s://… with ca, certificate or server_name, which only TLS uses",
				a, tlsScheme)
		}
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca: %s: want a file with certificates in PEM", o.CA)
		}
	}
	if o.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate: %s with key %s: %w", o.Cert, o.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

// bearer returns the token of the options, "" for none. It refuses to send one over plain TCP to another machine.
func (o Options) bearer(a address) (bearer, error) {
	token := o.Token
	if o.TokenFile != "" {
		text, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return "", fmt.Errorf("token_file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", fmt.Errorf("token_file: %s: empty: want a token in it", o.TokenFile)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("token: want printable ASCII characters without spaces")
	}
	if token != "" && a.scheme == plainScheme && !a.local() {
		return "", fmt.Errorf("address: %s: want %s://… with a token: anyone on the way could read it", a, tlsScheme)
	}
	return bearer(token), nil
}

// bearer is a token that gRPC sends with every call.
type bearer string

// GetRequestMetadata returns the header.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity returns false: [Options.bearer] has checked it, and lets sockets and loopback do without.
func (b bearer) RequireTransportSecurity() bool { return false }
