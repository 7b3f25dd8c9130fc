package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/reprise-rl/reprise/wire"
)

// lookup is net.Resolver's LookupIPAddr.
type lookup func(ctx context.Context, host string) ([]net.IPAddr, error)

// checkAddress refuses an address that other machines can reach, unless both TLS and tokens are on.
func checkAddress(ctx context.Context, resolve lookup, address string, tls, tokens bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: want HOST:PORT, such as 127.0.0.1:7447", address)
	}
	if tls && tokens {
		return nil
	}
	loopback, err := isLoopback(ctx, resolve, host)
	if err != nil {
		return fmt.Errorf("%q: %w: want a host that resolves here, such as 127.0.0.1", address, err)
	}
	if !loopback {
		return errReachable(address, tls, tokens)
	}
	return nil
}

// errReachable refuses an address and names what is missing.
func errReachable(address string, tls, tokens bool) error {
	missing := "TLS (tls.certificate and tls.key) and tokens (a tokens file)"
	switch {
	case tls:
		missing = "tokens (a tokens file)"
	case tokens:
		missing = "TLS (tls.certificate and tls.key)"
	}
	return wire.Errorf(wire.Invalid, "%q can be reached from other machines: add %s, or listen on 127.0.0.1", address,
		missing)
}

func isLoopback(ctx context.Context, resolve lookup, host string) (bool, error) {
	if host == "" {
		return false, nil
	}
	found, err := resolve(ctx, host)
	if err != nil {
		return false, err
	}
	for _, a := range found {
		if !a.IP.IsLoopback() {
			return false, nil
		}
	}
	return len(found) > 0, nil
}

// Listen listens on a TCP address. It refuses one that other machines can reach unless both TLS and tokens are on
// (invariant 10). An address without a host, 0.0.0.0 and :: can be reached. A host name must resolve to loopback
// addresses alone; Listen checks the bound address again, because the name may resolve differently a moment later.
func Listen(ctx context.Context, address string, tls, tokens bool) (net.Listener, error) {
	return listen(ctx, net.DefaultResolver.LookupIPAddr, address, tls, tokens)
}

func listen(ctx context.Context, resolve lookup, address string, tls, tokens bool) (net.Listener, error) {
	if err := checkAddress(ctx, resolve, address, tls, tokens); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, listenError(address, err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); !(tls && tokens) && (!ok || !at.IP.IsLoopback()) {
		return nil, errors.Join(errReachable(address, tls, tokens), l.Close())
	}
	return l, nil
}

// ErrInUse is the error of an address at which another program listens.
var ErrInUse = errors.New("is in use")

// listenError adds the remedy to an error of the system.
func listenError(address string, err error) error {
	remedy := "want the address of an interface of this machine, and a port of 0 to 65535"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%q %w: another program listens there: stop it, or choose another port", address, ErrInUse)
	case errors.Is(err, syscall.EACCES):
		remedy = "want a port above 1023, or the right to use a lower one"
	}
	return fmt.Errorf("%q: %w: %s", address, err, remedy)
}

// maxSocket bounds the path of a socket in characters.
const maxSocket = 103 // sockaddr_un on all systems; Linux allows 107

// ListenUnix listens on a unix socket that only its owner can open (mode 0600). It replaces a socket that a dead
// service left behind, but not one with a listener, nor any other file.
func ListenUnix(path string) (net.Listener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	// The socket gets its mode in a folder that nobody else can enter, and its name after that.
	folder, err := os.MkdirTemp(filepath.Dir(path), ".*")
	if err != nil {
		return nil, fmt.Errorf("unix: making a folder for the socket %s: %w: want a folder that exists and may be "+
			"written to", path, err)
	}
	defer os.RemoveAll(folder)
	hidden := filepath.Join(folder, "s")
	if n := max(len(path), len(hidden)); n > maxSocket {
		return nil, fmt.Errorf("unix: %s: %d characters too long: want a socket in a folder with a shorter name", path,
			n-maxSocket)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("unix: listening for %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		return nil, fmt.Errorf("unix: %w", errors.Join(err, l.Close()))
	}
	return &unixListener{UnixListener: l, path: path}, nil
}

// removeDead removes a socket without a listener.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("unix: %w", err)
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("unix: %s exists and is not a socket: remove it, or choose another path", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("unix: a program listens on %s already: stop it, or choose another path", path),
			c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("unix: %s: %w", path, err)
	}
	return os.Remove(path)
}

// unixListener is a listener whose socket was renamed to path.
type unixListener struct {
	*net.UnixListener
	path string
	once sync.Once
}

// Addr returns the address that clients dial.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket and stops listening. The name goes first, while nobody else can have taken it.
func (l *unixListener) Close() error {
	var err error
	l.once.Do(func() {
		if err = os.Remove(l.path); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	})
	return errors.Join(err, l.UnixListener.Close())
}
