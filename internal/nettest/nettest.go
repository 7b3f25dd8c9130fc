// Package nettest has what tests of servers need: free addresses, and certificates.
package nettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// FreeAddresses returns addresses of loopback, as HOST:PORT, at which nobody listens.
func FreeAddresses(tb testing.TB, n int) (list []string) {
	tb.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close() // all at the end, so that no two are the same
		list = append(list, l.Addr().String())
	}
	return list
}

// Authority signs certificates.
type Authority struct {
	tb          testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority returns an authority of a common name.
func NewAuthority(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{tb: tb}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	a.certificate, a.key = a.sign(c)
	return a
}

// sign signs a certificate, with its own new key if there is no authority yet.
func (a *Authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = c, key
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.tb.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	return signed, key
}

// Issue returns a certificate of a common name and its key, as PEM, for servers at 127.0.0.1, localhost and replay.test
// and for their clients.
func (a *Authority) Issue(name string) (certificate, key []byte) {
	a.tb.Helper()
	c, private := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "replay.test"},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.tb.Fatal(err)
	}
	return asPEM("CERTIFICATE", c.Raw), asPEM("PRIVATE KEY", secret)
}

// Pair is [Authority.Issue] for package tls.
func (a *Authority) Pair(name string) tls.Certificate {
	a.tb.Helper()
	pair, err := tls.X509KeyPair(a.Issue(name))
	if err != nil {
		a.tb.Fatal(err)
	}
	return pair
}

// Files writes a certificate of a common name, its key and the authority's certificate into a new folder, and returns
// their paths.
func (a *Authority) Files(name string) (certificate, key, authority string) {
	a.tb.Helper()
	dir := a.tb.TempDir()
	write := func(file string, content []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			a.tb.Fatal(err)
		}
		return path
	}
	c, k := a.Issue(name)
	return write("certificate.pem", c), write("key.pem", k), write("ca.pem", a.PEM())
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return asPEM("CERTIFICATE", a.certificate.Raw) }

// Pool returns the authority as one to trust.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func asPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
