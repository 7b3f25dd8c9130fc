// Package hosts keeps pages from browsers that reached them under a name of somebody else, and tells whose an address
// is.
package hosts

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Only passes requests on to a handler if their Host header names this service: localhost, a loopback address, the
// address at which it listens or to which the connection came, or one of the names given, each with any port. It
// answers the others with 421: by a name that was made to resolve to this machine, the page of another site could read
// what the browser of a reader may.
func Only(next http.Handler, at net.Addr, names []string) http.Handler {
	known := []string{"localhost", hostOf(at.String())}
	for _, n := range names {
		known = append(known, canonical(n))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		ip, err := netip.ParseAddr(host)
		if host != "" && slices.Contains(known, host) || err == nil && ip.IsLoopback() ||
			local != nil && host == hostOf(local.String()) {
			next.ServeHTTP(w, r)
			return
		}
		http.Error(w, fmt.Sprintf("Host: %.100q: want localhost or the address of these pages; reprise serve takes "+
			"other names as http_hosts", r.Host), http.StatusMisdirectedRequest)
	})
}

// hostOf returns the host of HOST:PORT or HOST, without the brackets of an IPv6 address.
func hostOf(address string) string { return canonical((&url.URL{Host: address}).Hostname()) }

// canonical returns the one form of a host by which hosts are compared.
func canonical(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Valid reports whether a text is a host as [Only] takes names: without a scheme, a port and brackets.
func Valid(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name != "" && !strings.ContainsAny(name, ":/@*?#[] \t")
}

// Network returns what the caller without a name at HOST:PORT is known by: an IPv4 address, or the /64 network of an
// IPv6 address, which one host may have to itself. All unix sockets of this machine are one's.
func Network(peer string) string {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return "a unix socket"
	}
	address := at.Addr().Unmap().WithZone("")
	if address.Is6() {
		if network, err := address.Prefix(64); err == nil {
			return network.String()
		}
	}
	return address.String()
}
