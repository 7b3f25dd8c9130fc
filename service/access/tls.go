package access

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-rl/reprise/rollout/option"
)

// Values of TLS.Clients.
const (
	ClientsRequired = "required" // every connection shows a certificate that the client CA signed
	ClientsOptional = "optional" // a certificate that is shown must be signed by the client CA
)

// TLS names the files of a service's TLS, all PEM.
type TLS struct {
	Certificate string `yaml:"certificate" json:"certificate"` // PEM file of the service's certificate and its chain
	Key         string `yaml:"key" json:"key"`                 // PEM file of the certificate's key
	// PEM file of who signs the clients' certificates [clients need none]
	ClientCA string `yaml:"client_ca" json:"client_ca"`
	Clients  string `yaml:"clients" json:"clients"` // required or optional, with client_ca [required]
}

// On reports whether TLS is on.
func (t TLS) On() bool { return t != TLS{} }

// Validate reports every problem of the settings at once. It does not read the files.
func (t TLS) Validate() error {
	if !t.On() {
		return nil
	}
	var p option.Problems
	p.Check(t.Certificate != "", "tls.certificate", "none", "a PEM file")
	p.Check(t.Key != "", "tls.key", "none", "a PEM file")
	known := t.Clients == "" || t.Clients == ClientsRequired || t.Clients == ClientsOptional
	p.Check(known, "tls.clients", t.Clients, "%s or %s", ClientsRequired, ClientsOptional)
	p.Check(!known || t.Clients == "" || t.ClientCA != "", "tls.clients", t.Clients, "tls.client_ca with it")
	return p.Err()
}

// Certificates holds a service's TLS certificate and client CA, as their files have them. It is safe for concurrent
// use.
type Certificates struct {
	files reloaded[pair]
	tls   TLS
}

// pair is the content of the files.
type pair struct {
	certificate tls.Certificate
	clients     *x509.CertPool // nil: clients need no certificate
}

// NewCertificates reads the files. A nil clock is time.Now; a nil logger logs nothing.
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

// Config returns the TLS configuration of a server with these protocols: "h2" for gRPC, "h2" and "http/1.1" for pages.
// Each connection gets the certificate and the client CA of its time.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	current := func() *tls.Config {
		p := c.files.get()
		config := &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12,
			NextProtos: protocols}
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

// Mutual returns the TLS configuration between services that share a configuration: either side shows its certificate
// and wants one that the client CA has signed. Without a client CA nobody is let in.
func (c *Certificates) Mutual() *tls.Config {
	certificate := func() (*tls.Certificate, error) { return &c.files.get().certificate, nil }
	clients := cmp.Or(c.files.get().clients, x509.NewCertPool())
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: clients, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() },
	}
}

// recheck is how often files are checked for changes, at most.
const recheck = time.Second

// reloaded is a value made from files, and made anew when they change. Whoever asks for the value checks the files,
// once per recheck; nothing runs in between. Time is the clock's monotonic reading: stepping the machine's clock
// delays no check. It is safe for concurrent use.
type reloaded[T any] struct {
	name string                                                   // of the value, for the log
	load func(read func(path string) ([]byte, error)) (*T, error) // reads every file with read
	now  func() time.Time
	log  *slog.Logger

	value   atomic.Pointer[T]
	checked atomic.Pointer[time.Time] // when the files were last checked

	mu   sync.Mutex             // held while files are read
	seen map[string]os.FileInfo // each file before it was read, nil if it was missing
}

// start loads the value for the first time.
func (r *reloaded[T]) start() error {
	if r.now == nil {
		r.now = time.Now
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.checked.Store(new(r.now()))
	return r.reload()
}

// get returns the value of the files as they were at most recheck ago. A clock without a monotonic reading that went
// back tells nothing of the time since the last check: then get checks.
func (r *reloaded[T]) get() *T {
	last, now := r.checked.Load(), r.now()
	passed := now.Sub(*last)
	if (passed < 0 || passed >= recheck) && r.checked.CompareAndSwap(last, new(now)) && r.changed() {
		if err := r.reload(); err != nil {
			r.log.Error("changed files are invalid: keeping what they held before", "what", r.name, "error", err)
		} else {
			r.log.Info("read changed files", "what", r.name)
		}
	}
	return r.value.Load()
}

func (r *reloaded[T]) changed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, before := range r.seen {
		now, _ := os.Stat(path)
		if now == nil || before == nil {
			if now != before {
				return true
			}
			continue
		}
		if !os.SameFile(now, before) || now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
			return true
		}
	}
	return false
}

// reload reads the files now; on an error the value stays what it was.
func (r *reloaded[T]) reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = make(map[string]os.FileInfo)
	value, err := r.load(func(path string) ([]byte, error) {
		r.seen[path], _ = os.Stat(path)
		return os.ReadFile(path)
	})
	if err != nil {
		return err
	}
	r.value.Store(value)
	return nil
}
