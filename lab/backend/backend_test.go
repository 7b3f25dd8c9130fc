package backend

import (
	"strings"
	"testing"
)

func TestOpenRefuses(t *testing.T) {
	for value, want := range map[string]string{
		"cuda":                         `"cuda": want go, or xla:/absolute`,
		"xla:plugin.so":                `"xla:plugin.so": want go, or xla:/absolute`,
		"xla:/does/not/exist.so":       "give the path of a PJRT plugin",
		"xla:/does/not.so,tf32=true":   "/does/not.so",
		"xla:/bin/sh,preallocate=true": "xla:/bin/sh,preallocate=true",
	} {
		t.Setenv(Variable, value)
		if _, err := Open(true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", value, err, want)
		}
	}
}
