package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// transport returns how the bytes travel to an address.
func (o Options) transport(a address) (credentials.TransportCredentials, error) {
	if a.scheme != tlsScheme {
		if o.secured() {
			return nil, fmt.Errorf("address: %s: want %s://… with ca, certificate or server_name, which are of TLS", a, tlsScheme)
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

// bearer returns the token of the options, "" for none. Over plain TCP it stays on this machine.
func (o Options) bearer(a address) (bearer, error) {
	token := o.Token
	if o.TokenFile != "" {
		text, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return "", fmt.Errorf("token_file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", fmt.Errorf("token_file: %s: want a token in it: it is empty", o.TokenFile)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("token: want printable ASCII characters without spaces")
	}
	if token != "" && a.scheme == plainScheme && !a.local() {
		return "", fmt.Errorf("address: %s: want %s://… with a token, which anyone on the way could read", a, tlsScheme)
	}
	return bearer(token), nil
}

// bearer is a token that goes with every call.
type bearer string

// GetRequestMetadata gives gRPC the header.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false because [Options.bearer] has seen to it, sockets and loopback excepted.
func (b bearer) RequireTransportSecurity() bool { return false }
