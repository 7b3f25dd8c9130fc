package client

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxMessageBytes = 256 << 20
	DefaultPatience        = time.Minute
	DefaultCallTimeout     = time.Minute
)

// Options configure a connection. The zero value is one without token to a service on this machine, or by TLS to one whose
// certificate the system trusts.
type Options struct {
	Token      string `yaml:"token" json:"-"`                           // bearer token; beyond this machine by TLS only
	TokenFile  string `yaml:"token_file" json:"token_file,omitempty"`   // holds the token instead
	CA         string `yaml:"ca" json:"ca,omitempty"`                   // PEM file of those who may have signed the service's certificate; "": the system's
	Cert       string `yaml:"certificate" json:"certificate,omitempty"` // PEM file of the client's own certificate, for services that ask for one
	Key        string `yaml:"key" json:"key,omitempty"`                 // PEM file of its key
	ServerName string `yaml:"server_name" json:"server_name,omitempty"` // name in the service's certificate; "": that of the address

	// MaxMessageBytes bounds one batch as it travels; 0: 256 MiB.
	MaxMessageBytes int `yaml:"max_message_bytes" json:"max_message_bytes,omitempty"`

	// Patience is how long a call is repeated while the service cannot be reached or is stopping; 0: a minute, below 0: as long
	// as the call's context allows.
	Patience time.Duration `yaml:"patience" json:"patience,omitempty"`

	// CallTimeout is how long one answer may take, beyond what the service was asked to wait; 0: a minute. After it the call is
	// repeated as if the connection had been lost.
	CallTimeout time.Duration `yaml:"call_timeout" json:"call_timeout,omitempty"`
}

func (o Options) withDefaults() Options {
	orElse(&o.MaxMessageBytes, DefaultMaxMessageBytes)
	orElse(&o.Patience, DefaultPatience)
	orElse(&o.CallTimeout, DefaultCallTimeout)
	return o
}

func orElse[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Validate reports every problem at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(ok bool, key string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: want %s", key, value, want))
		}
	}
	check(o.Token == "" || o.TokenFile == "", "token_file", o.TokenFile, "a token or a file that holds it, not both")
	check((o.Cert == "") == (o.Key == ""), "certificate", o.Cert, "a certificate and its key, both or neither")
	check(o.MaxMessageBytes >= 1<<10 && o.MaxMessageBytes <= 1<<31-1, "max_message_bytes", o.MaxMessageBytes, "1024 to 2147483647")
	check(o.CallTimeout > 0, "call_timeout", o.CallTimeout, "more than 0s")
	return errors.Join(errs...)
}

// secured reports whether something of TLS is asked for.
func (o Options) secured() bool { return o.CA != "" || o.Cert != "" || o.ServerName != "" }
