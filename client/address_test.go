package client

import (
	"strings"
	"testing"
)

func TestAddressesAreReadAsTheyAreWritten(t *testing.T) {
	for _, c := range []struct{ text, canonical, target string }{
		{"grpc://127.0.0.1:7000", "grpc://127.0.0.1:7000", "dns:///127.0.0.1:7000"},
		{"grpc://gpu-7", "grpc://gpu-7:7447", "dns:///gpu-7:7447"},
		{"grpc+tls://replay.example.org/", "grpc+tls://replay.example.org:7447", "dns:///replay.example.org:7447"},
		{"grpc://[::1]:7000", "grpc://[::1]:7000", "dns:///[::1]:7000"},
		{"grpc+unix:///run/reprise.sock", "grpc+unix:///run/reprise.sock", "unix:///run/reprise.sock"},
	} {
		a, err := parseAddress(c.text)
		if err != nil || a.String() != c.canonical || a.target() != c.target {
			t.Errorf("%s is %v (%s), %v: want %s (%s)", c.text, a, a.target(), err, c.canonical, c.target)
		}
	}
}

func TestWhatIsNoAddressIsRefusedWithTheForms(t *testing.T) {
	for _, text := range []string{"", "localhost:7447", "http://a:1", "grpc://", "grpc:///x", "grpc://a:1/b", "grpc://u@a:1", "grpc+unix://rel", "grpc+unix:///", "grpc://:7447", "grpc://a:", "grpc://::1:7"} {
		if a, err := parseAddress(text); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%q is %v, %v", text, a, err)
		}
	}
}

func TestTheLastPartOfATablesAddressIsItsName(t *testing.T) {
	for _, c := range []struct{ text, service, table string }{
		{"grpc://127.0.0.1:7447/lab", "grpc://127.0.0.1:7447", "lab"},
		{"grpc+tls://h/run_1.a", "grpc+tls://h:7447", "run_1.a"},
		{"grpc+unix:///run/reprise.sock/lab", "grpc+unix:///run/reprise.sock", "lab"},
	} {
		service, table, err := SplitTable(c.text)
		if err != nil || service != c.service || table != c.table {
			t.Errorf("%s is %s, %s, %v", c.text, service, table, err)
		}
	}
	for _, text := range []string{"lab", "grpc://host:7447", "grpc://host/", "grpc+unix:///lab", "grpc://host/a b", "grpc://host/a/b", ""} {
		if service, table, err := SplitTable(text); err == nil {
			t.Errorf("%q is table %q of %q", text, table, service)
		}
	}
}

func FuzzSplitTable(f *testing.F) {
	for _, text := range []string{"grpc://127.0.0.1:7447/lab", "grpc+unix:///a/b/c", "grpc+tls://[::1]/x", "grpc://a:b:c/d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		service, table, err := SplitTable(text)
		if err != nil {
			return
		}
		again, name, err := SplitTable(service + "/" + table)
		if err != nil || again != service || name != table {
			t.Errorf("%q is %q of %q, which reads back as %q of %q, %v", text, table, service, name, again, err)
		}
	})
}
