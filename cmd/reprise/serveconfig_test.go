package main

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/journal"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

func TestATableIsReadFromAFlag(t *testing.T) {
	got, err := parseTable("name=007,capacity=4096, sampler=prioritized,priority.age_decay=inf,priority.exponent=0.6,limiter.samples_per_insert=4,limiter.error_buffer=128,capacity_bytes=2000000000")
	want := wire.Table{
		Name: "007", Capacity: 4096, CapacityBytes: 2_000_000_000, Sampler: "prioritized",
		Priority: &wire.Priority{AgeDecay: wire.Versions(math.Inf(1)), Exponent: 0.6},
		Limiter:  &wire.Limiter{SamplesPerInsert: 4, ErrorBuffer: 128},
	}
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
		if _, err := parseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("name=math,capacity=4096,limiter.samples_per_insert=4")
	f.Add("name=a,priority.age_decay=inf")
	f.Add("name={a: b},x.y.z=[1,2]")
	f.Fuzz(func(t *testing.T, text string) {
		if table, err := parseTable(text); err == nil && table.Name == "" {
			t.Errorf("%q made a table without a name", text)
		}
	})
}

func TestFlagsOverrideTheConfigurationFile(t *testing.T) {
	path := write(t, "serve.yaml", `
listen: 127.0.0.1:1
http: off
unix: /run/reprise.sock
data: /var/lib/reprise
sync: interval
interval: 2s
tokens: /etc/tokens.yaml
tls: {certificate: c.pem, key: k.pem, client_ca: ca.pem, clients: optional}
stop_timeout: 5s
max_message_bytes: 1048576
send_timeout: 10s
tables:
  - {name: math, capacity: 64}
  - name: code
    capacity: 32
    priority: {age_decay: inf}
    sampler: prioritized
    columns: [{name: x_depth, type: int32}]
`)
	c, err := (&serveCommand{Config: file(path)}).load()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:1" || c.HTTP != "off" || c.Unix != "/run/reprise.sock" || c.Data != "/var/lib/reprise" || c.Sync != journal.Interval ||
		c.Interval != 2*time.Second || c.StopTimeout != 5*time.Second || c.MaxMessageBytes != 1<<20 || c.SendTimeout != 10*time.Second || c.Tokens != "/etc/tokens.yaml" ||
		c.TLS != (access.TLS{Certificate: "c.pem", Key: "k.pem", ClientCA: "ca.pem", Clients: "optional"}) || len(c.Tables) != 2 ||
		c.Tables[1].Columns[0].Type != "int32" || !math.IsInf(float64(c.Tables[1].Priority.AgeDecay), 1) {
		t.Errorf("the file is read as %+v", c)
	}
	c, err = (&serveCommand{
		Config: file(path), Listen: "127.0.0.1:2", HTTP: "127.0.0.1:3", Unix: "off", Data: "d", Sync: "off", Interval: time.Minute, StopTimeout: time.Hour,
		MaxMessage: 1 << 21, Tokens: "t", Certificate: "c2", Clients: "required", Table: []string{"name=math,capacity=7", "name=new,capacity=8"},
	}).load()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:2" || c.HTTP != "127.0.0.1:3" || c.Unix != "" || c.Data != "d" || c.Sync != journal.Off || c.Interval != time.Minute ||
		c.StopTimeout != time.Hour || c.MaxMessageBytes != 1<<21 || c.Tokens != "t" || c.TLS != (access.TLS{Certificate: "c2", Key: "k.pem", ClientCA: "ca.pem", Clients: "required"}) ||
		len(c.Tables) != 3 || c.Tables[0].Capacity != 7 || c.Tables[2].Name != "new" {
		t.Errorf("with flags it is %+v", c)
	}
}

func TestAServiceListensOnLoopbackUnlessItIsToldOtherwise(t *testing.T) {
	for _, path := range []string{"", write(t, "empty.yaml", "\n")} {
		c, err := (&serveCommand{Config: file(path)}).load()
		if err != nil || c.Listen != "127.0.0.1:7447" || c.HTTP != "127.0.0.1:7448" || c.StopTimeout != 30*time.Second || c.Data != "" {
			t.Errorf("%q: %+v, %v", path, c, err)
		}
	}
}

func TestBytesAreReadWithTheirUnits(t *testing.T) {
	for text, want := range map[string]byteSize{"1": 1, "268435456": 1 << 28, "256MiB": 1 << 28, "250 MB": 250e6, "1GiB": 1 << 30, "2GB": 2e9, "4KiB": 4096, "5kB": 5000, "7B": 7} {
		var got byteSize
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "much", "-1", "0", "1.5GiB", "99999999999GiB", "1TiB?"} {
		var got byteSize
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}
