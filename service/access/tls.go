package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// What a service asks of its clients' certificates.
const (
	ClientsRequired = "required" // every connection shows one that the client CA has signed
	ClientsOptional = "optional" // one that is shown must be signed by the client CA
)

// TLS names the files of a service's TLS.
type TLS struct {
	Certificate string `yaml:"certificate" json:"certificate"` // PEM, the chain in order
	Key         string `yaml:"key" json:"key"`                 // PEM
	ClientCA    string `yaml:"client_ca" json:"client_ca"`     // PEM; who signs the clients' certificates. Empty: none are asked for
	Clients     string `yaml:"clients" json:"clients"`         // required (the default) or optional; with ClientCA
}

// On reports whether TLS is asked for.
func (t TLS) On() bool { return t != TLS{} }

// Validate reports everything that is wrong with the settings, but does not read the files.
func (t TLS) Validate() error {
	if !t.On() {
		return nil
	}
	var problems []error
	if t.Certificate == "" {
		problems = append(problems, errors.New("tls.certificate: none: want a PEM file"))
	}
	if t.Key == "" {
		problems = append(problems, errors.New("tls.key: none: want a PEM file"))
	}
	switch {
	case t.Clients != "" && t.Clients != ClientsRequired && t.Clients != ClientsOptional:
		problems = append(problems, fmt.Errorf("tls.clients: %q: want %s or %s", t.Clients, ClientsRequired, ClientsOptional))
	case t.Clients != "" && t.ClientCA == "":
		problems = append(problems, fmt.Errorf("tls.clients: %q: want tls.client_ca beside it", t.Clients))
	}
	return errors.Join(problems...)
}

// Certificates is a service's TLS certificate and client CA, as its files hold them. It is safe for concurrent use.
type Certificates struct {
	files reloaded[pair]
	tls   TLS
}

// pair is what the files hold.
type pair struct {
	certificate tls.Certificate
	clients     *x509.CertPool // nil: no certificates are asked for
}

// NewCertificates reads the files. A nil clock is time.Now, a nil logger none.
func NewCertificates(t TLS, clock func() time.Time, logger *slog.Logger) (*Certificates, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	c := &Certificates{tls: t}
	c.files.name, c.files.load, c.files.now, c.files.log = "TLS certificate", t.read, clock, logger
	if err := c.files.start(); err != nil {
		return nil, err
	}
	return c, nil
}

func (t TLS) read(read func(string) ([]byte, error)) (*pair, error) {
	chain, err := read(t.Certificate)
	if err != nil {
		return nil, fmt.Errorf("tls.certificate: %w", err)
	}
	key, err := read(t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("tls.certificate %s, tls.key %s: %w", t.Certificate, t.Key, err)
	}
	p := &pair{certificate: certificate}
	if t.ClientCA == "" {
		return p, nil
	}
	authorities, err := read(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls.client_ca: %w", err)
	}
	p.clients = x509.NewCertPool()
	if !p.clients.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("tls.client_ca %s: holds no certificate: want PEM", t.ClientCA)
	}
	return p, nil
}

// Reload reads the files now; on an error the certificate stays what it was.
func (c *Certificates) Reload() error { return c.files.reload() }

// Config returns the TLS configuration of a server that speaks these protocols: "h2" for gRPC, "h2" and "http/1.1" for
// pages. Each connection gets the certificate and the client CA of its moment.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	current := func() *tls.Config {
		p := c.files.get()
		config := &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12, NextProtos: protocols}
		if p.clients != nil {
			config.ClientCAs, config.ClientAuth = p.clients, tls.RequireAndVerifyClientCert
			if c.tls.Clients == ClientsOptional {
				config.ClientAuth = tls.VerifyClientCertIfGiven
			}
		}
		return config
	}
	config := current()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current(), nil }
	return config
}
