package access

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// names resolves what a test knows.
func names(_ context.Context, host string) ([]net.IPAddr, error) {
	known := map[string][]string{
		"localhost": {"127.0.0.1", "::1"}, "elsewhere": {"192.0.2.7"}, "both": {"127.0.0.1", "192.0.2.7"},
	}
	if ip := net.ParseIP(host); ip != nil {
		return []net.IPAddr{{IP: ip}}, nil
	}
	var found []net.IPAddr
	for _, a := range known[host] {
		found = append(found, net.IPAddr{IP: net.ParseIP(a)})
	}
	if found == nil {
		return nil, errors.New("no such host")
	}
	return found, nil
}

// Invariant 10.
func TestNothingListensBeyondLoopbackWithoutTLSAndTokens(t *testing.T) {
	for address, loopback := range map[string]bool{
		"127.0.0.1:7447": true, "127.8.9.1:0": true, "[::1]:7447": true, "[::ffff:127.0.0.1]:1": true,
		"localhost:7447": true,
		"0.0.0.0:7447":   false, "[::]:7447": false, ":7447": false, "192.0.2.7:7447": false,
		"[::ffff:192.0.2.7]:1": false,
		"elsewhere:7447":       false, "both:7447": false, "[2001:db8::1]:7447": false, "10.0.0.1:7447": false,
	} {
		for _, secured := range []struct {
			tls, tokens bool
			remedy      string
		}{
			{false, false, "tls.certificate and tls.key) and tokens"},
			{true, false, "add tokens (a tokens file)"},
			{false, true, "add TLS (tls.certificate and tls.key)"},
			{true, true, ""},
		} {
			err := checkAddress(t.Context(), names, address, secured.tls, secured.tokens)
			if allowed := loopback || secured.remedy == ""; (err == nil) != allowed {
				t.Errorf("%s with TLS %v and tokens %v: %v", address, secured.tls, secured.tokens, err)
			}
			if err != nil && !strings.Contains(err.Error(), secured.remedy) {
				t.Errorf("%s: %v: want %q in it", address, err, secured.remedy)
			}
		}
	}
	for _, address := range []string{"", "127.0.0.1", "nowhere:1"} {
		if err := checkAddress(t.Context(), names, address, false, false); err == nil {
			t.Errorf("%q was let through", address)
		}
	}
}

func TestListenRefusesWhatOthersCanReach(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if l, err := Listen(t.Context(), address, false, false); err == nil {
			t.Errorf("%s listens at %s", address, l.Addr())
			_ = l.Close()
		}
	}
	lie := func(context.Context, string) ([]net.IPAddr, error) {
		return []net.IPAddr{{IP: net.IPv4(127, 0, 0, 1)}}, nil
	}
	if l, err := listen(t.Context(), lie, "0.0.0.0:0", false, true); err == nil {
		t.Errorf("a name that came to another address a moment later listens at %s", l.Addr())
		_ = l.Close()
	}
	l, err := Listen(t.Context(), "localhost:0", false, false)
	if err != nil {
		t.Fatal(err)
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		t.Errorf("listens at %s", l.Addr())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestOnlyItsOwnerCanOpenAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if l.Addr().String() != path {
		t.Errorf("listens at %s", l.Addr())
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second listener: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestListenUnixReplacesOnlyTheSocketOfADeadService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()

	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("in place of a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file: %q, %v", text, err)
	}
	if _, err := ListenUnix(filepath.Join(t.TempDir(), "none", "s")); err == nil {
		t.Error("a folder that is not there")
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 110))
	if _, err := ListenUnix(long); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a path of %d characters: %v", len(long), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(long)); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
