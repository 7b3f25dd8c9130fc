package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzServeConfig reads any text as a configuration file: it is refused with the file's name, or every check can be made of it.
func FuzzServeConfig(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nhttp: off\nsync: interval\ninterval: 2s\ntls: {certificate: c.pem, key: k.pem}\ntables: [{name: a, capacity: 8}]\n")
	f.Add("tables:\n  - name: b\n    sampler: prioritized\n    priority: {age_decay: inf, exponent: .nan}\n    limiter: {samples_per_insert: 2, error_buffer: 64}\n    columns: [{name: x_a, type: 'list<int8>'}]\n")
	f.Add("max_message_bytes: 99999999999999999999\ntables: [null, {}]\n")
	f.Add("a: &a [*a]\n<<: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readServeConfig(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%q is refused without the file's name: %v", text, err)
			}
			return
		}
		c.fill()
		if err := c.validate(); err == nil && (c.Listen == "" || c.StopTimeout <= 0) {
			t.Errorf("%q leaves listen %q and stop_timeout %v", text, c.Listen, c.StopTimeout)
		}
	})
}
