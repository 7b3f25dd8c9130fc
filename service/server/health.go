package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/watch"
)

// maxHealthBytes bounds what is read of an answer: the risks of a cluster are a line each.
const maxHealthBytes = 64 << 10

// CheckHealth asks the service that a configuration describes, on this machine, for /healthz. It returns an error if
// nothing answers there, or the service is not well. With TLS the service must show the certificate of the
// configuration, and is shown the same: where clients must have one, client_ca must have signed it.
func CheckHealth(ctx context.Context, config Config) error {
	config = config.WithDefaults()
	if config.HTTP == Off {
		return errors.New("http: off: the health is on its pages: want an address there, such as " + DefaultHTTP)
	}
	host, port, err := net.SplitHostPort(config.HTTP)
	if err != nil || port == "0" {
		return fmt.Errorf("http: %q: want HOST:PORT with the port at which the service listens", config.HTTP)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() { // it listens everywhere
		host = "127.0.0.1"
	}
	transport, scheme := &http.Transport{DisableKeepAlives: true}, "http" // no proxy: it is this machine
	if config.TLS.On() {
		scheme = "https"
		if transport.TLSClientConfig, err = showsItsCertificate(config.TLS); err != nil {
			return err
		}
	}
	where := scheme + "://" + net.JoinHostPort(host, port) + "/healthz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return fmt.Errorf("http: %q: %w", config.HTTP, err)
	}
	request.Host = "localhost" // which the pages always answer
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no service answers: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxHealthBytes))
	if err != nil {
		return fmt.Errorf("read %s: %w", where, err)
	}
	var health watch.Health
	switch err := json.Unmarshal(text, &health); {
	case answer.StatusCode == http.StatusServiceUnavailable && err == nil:
		return fmt.Errorf("%s: the service is %s: its log says why", where, health.Status)
	case answer.StatusCode != http.StatusOK || err != nil || health.Status != "ok":
		return fmt.Errorf("%s: %s: no service of tables answers there", where, answer.Status)
	}
	return nil
}

// showsItsCertificate returns the TLS of a connection to a service that shows the certificate in these files. Its names
// do not matter: nobody else has its key.
func showsItsCertificate(files access.TLS) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		Certificates:       []tls.Certificate{own},
		InsecureSkipVerify: true, // VerifyConnection compares the certificate itself
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, own.Certificate[0]) {
				return fmt.Errorf("the service shows another certificate than that in %s", files.Certificate)
			}
			return nil
		},
	}, nil
}
