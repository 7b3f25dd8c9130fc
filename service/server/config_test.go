package server

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/wire"
)

func TestParseTableReadsKeysAndParts(t *testing.T) {
	got, err := ParseTable("name=007,capacity=4096, sampler=prioritized,age_decay=inf,priority_exponent=0.6,limiter.samples_per_insert=4,limiter.error_buffer=128,capacity_bytes=2000000000")
	want := wire.Table{Name: "007", Options: replay.Options{Capacity: 4096, CapacityBytes: 2_000_000_000,
		Sampler: "prioritized", AgeDecay: replay.Versions(math.Inf(1)), PriorityExponent: 0.6},
		Limiter: &wire.Limiter{SamplesPerInsert: 4, ErrorBuffer: 128}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                             "want key=value",
		"name":                         "want key=value",
		"=1":                           "want key=value",
		"capacity=4":                   "want a name=",
		"name=a,size=4":                `size: unknown key`,
		"name=a,capacity=many":         "capacity",
		"name=a,capacity=1,capacity=2": "given twice",
		"name=a,limiter=1,limiter.x=2": "given as a value too",
		"name=a,limiter.x=2,limiter=1": "given twice",
		"name=a,limiter.colour=2":      `colour: unknown key`,
	} {
		if _, err := ParseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("name=math,capacity=4096,limiter.samples_per_insert=4")
	f.Add("name=a,age_decay=inf")
	f.Add("name={a: b},x.y.z=[1,2]")
	f.Fuzz(func(t *testing.T, text string) {
		if table, err := ParseTable(text); err == nil && table.Name == "" {
			t.Errorf("%q made a table without a name", text)
		}
	})
}

// FuzzRead reads any text as a configuration file: it is refused with the file's name, or every check can be made of
// it.
func FuzzRead(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nhttp: off\nsync: interval\ninterval: 2s\ntls: {certificate: c.pem, key: k.pem}\n" +
		"tables: [{name: a, capacity: 8}]\n")
	f.Add("tables:\n  - name: b\n    sampler: prioritized\n    age_decay: inf\n    priority_exponent: .nan\n" +
		"    limiter: {samples_per_insert: 2, error_buffer: 64}\n    columns: [{name: x_a, type: 'list<int8>'}]\n")
	f.Add("max_message_bytes: 99999999999999999999\ntables: [null, {}]\n")
	f.Add("a: &a [*a]\n<<: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "serve.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Read(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%q is refused without the file's name: %v", text, err)
			}
			return
		}
		c = c.WithDefaults()
		if err := c.Validate(); err == nil && (c.Listen == "" || c.StopTimeout <= 0) {
			t.Errorf("%q leaves listen %q and stop_timeout %v", text, c.Listen, c.StopTimeout)
		}
	})
}

func TestTheConfigurationForKubernetesIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/serve.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	if err := (settings.Reader{}).YAML(text, &c); err != nil {
		t.Fatal(err)
	}
	c.Data, c.Cluster.Node = "/data", "reprise-0" // by flags
	c.Cluster.Peers = []string{"reprise-0.a:6222", "reprise-1.a:6222", "reprise-2.a:6222"}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Listen != "0.0.0.0:7447" || c.HTTP != "0.0.0.0:7448" || !c.TLS.On() || c.Tokens == "" {
		t.Errorf("other machines cannot reach %+v, or without TLS and tokens", c)
	}
}

// Whoever reaches a node's port can join a cluster without a secret: tokens would not keep them from its tables.
func TestAClusterWithTokensNeedsASecret(t *testing.T) {
	for _, tokens := range []string{"", "tokens.yaml"} {
		c := Config{Tokens: tokens}
		c.Data = "data"
		c.Cluster.Listen, c.Cluster.Replicas, c.Cluster.AcceptRisk, c.Cluster.Node = "127.0.0.1:6222", 1, true, "a"
		if err := c.Validate(); (err != nil) != (tokens != "") ||
			err != nil && !strings.Contains(err.Error(), "cluster.secret_file: none: want a file with a secret") {
			t.Errorf("tokens %q: %v", tokens, err)
		}
		c.Cluster.SecretFile = "secret"
		if err := c.Validate(); err != nil {
			t.Errorf("tokens %q and a secret: %v", tokens, err)
		}
	}
}
