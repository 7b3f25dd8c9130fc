package service

import (
	"fmt"
	"net"
	"path/filepath"
)

// The transports.
const (
	TCP  = "tcp"
	Unix = "unix"
)

// place is where a server listens: a port of the loopback interface, and a unix socket.
type place struct {
	port int
	path string
}

// newPlace finds a free port, and a path in dir. Another program could take the port before the server does, which the
// server then says.
func newPlace(dir, name string) (place, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return place{}, err
	}
	defer l.Close()
	return place{l.Addr().(*net.TCPAddr).Port, filepath.Join(dir, name)}, nil
}

// host is the TCP address, host:port.
func (p place) host() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// address is what net.Dial takes for a transport.
func (p place) address(over string) string {
	if over == Unix {
		return p.path
	}
	return p.host()
}

// location is the address as clients of the service write it.
func (p place) location(over string) string {
	if over == Unix {
		return "grpc+unix://" + p.path
	}
	return "grpc://" + p.host()
}
