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

// checkListener refuses an address that can be reached from beyond this machine, unless TLS and tokens are both asked for.
func checkListener(ctx context.Context, resolve lookup, address string, tls, tokens bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q: want HOST:PORT, such as 127.0.0.1:7447", address)
	}
	if tls && tokens {
		return nil
	}
	loopback, err := isLoopback(ctx, resolve, host)
	if err != nil {
		return fmt.Errorf("%q: %w: want a host that this machine knows, such as 127.0.0.1", address, err)
	}
	if !loopback {
		return beyond(address, tls, tokens)
	}
	return nil
}

// beyond is the refusal, with what is missing.
func beyond(address string, tls, tokens bool) error {
	missing := "TLS (tls.certificate and tls.key) and tokens (a tokens file)"
	switch {
	case tls:
		missing = "tokens (a tokens file)"
	case tokens:
		missing = "TLS (tls.certificate and tls.key)"
	}
	return wire.Errorf(wire.Invalid, "%q can be reached from other machines: add %s, or listen on 127.0.0.1", address, missing)
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

// Listen listens on a TCP address. One that can be reached from beyond this machine is refused unless TLS and tokens are both asked
// for (invariant 10): an address without a host, 0.0.0.0 and :: can be reached; a host name must come to loopback addresses
// alone, and what it came to is looked at again once it is bound, as a name may resolve differently a moment later.
func Listen(ctx context.Context, address string, tls, tokens bool) (net.Listener, error) {
	return listen(ctx, net.DefaultResolver.LookupIPAddr, address, tls, tokens)
}

func listen(ctx context.Context, resolve lookup, address string, tls, tokens bool) (net.Listener, error) {
	if err := checkListener(ctx, resolve, address, tls, tokens); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, refusal(address, err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); !(tls && tokens) && (!ok || !at.IP.IsLoopback()) {
		return nil, errors.Join(beyond(address, tls, tokens), l.Close())
	}
	return l, nil
}

// refusal says what may be done about an address that the system does not give.
func refusal(address string, err error) error {
	remedy := "want the address of an interface of this machine, and a port of 0 to 65535"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%q is in use: some program listens there: stop it, or give another port", address)
	case errors.Is(err, syscall.EACCES):
		remedy = "want a port above 1023, or the right to use a lower one"
	}
	return fmt.Errorf("%q: %w: %s", address, err, remedy)
}

// longestSocket is how many characters the path of a socket may have.
const longestSocket = 103 // of sockaddr_un on all systems; Linux allows 107

// ListenUnix listens on a unix socket that only its owner can open (mode 0600). A socket that a dead service left is
// replaced; one that somebody listens on, and any other file, is not.
func ListenUnix(path string) (net.Listener, error) {
	if err := clear(path); err != nil {
		return nil, err
	}
	// The socket gets its mode in a folder that nobody else can enter, and only then its name.
	folder, err := os.MkdirTemp(filepath.Dir(path), ".*")
	if err != nil {
		return nil, fmt.Errorf("unix: making room for the socket %s: %w: want a folder that is there and may be written to", path, err)
	}
	defer os.RemoveAll(folder)
	hidden := filepath.Join(folder, "s")
	if n := max(len(path), len(hidden)); n > longestSocket {
		return nil, fmt.Errorf("unix: %s: %d characters too long: want a socket in a folder with a shorter name", path, n-longestSocket)
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

// clear removes a socket that nobody listens on.
func clear(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("unix: %w", err)
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("unix: %s is there and is no socket: remove it, or give another path", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("unix: somebody listens on %s already: stop it, or give another path", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("unix: %s: %w", path, err)
	}
	return os.Remove(path)
}

// unixListener is a socket under the name that it was moved to.
type unixListener struct {
	*net.UnixListener
	path string
	once sync.Once
}

// Addr returns the name that clients dial.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket and stops listening. The name goes first, so that it is nobody else's yet.
func (l *unixListener) Close() error {
	var err error
	l.once.Do(func() {
		if err = os.Remove(l.path); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	})
	return errors.Join(err, l.UnixListener.Close())
}
