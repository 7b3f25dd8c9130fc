package server

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/service/cluster"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// Off, as an address, means that a server does not listen there.
const Off = "off"

// Defaults of Config.
const (
	DefaultListen      = "127.0.0.1:7447"
	DefaultHTTP        = "127.0.0.1:7448"
	DefaultStopTimeout = 30 * time.Second
)

// Config is the configuration file of `reprise serve`. Zero values are the documented defaults.
type Config struct {
	Listen      string        `yaml:"listen"`       // HOST:PORT of Flight, or off
	Unix        string        `yaml:"unix"`         // path of a unix socket for Flight, or off
	HTTP        string        `yaml:"http"`         // HOST:PORT of the dashboard, metrics and health, or off
	HTTPHosts   []string      `yaml:"http_hosts"`   // hosts of the pages besides their address [localhost]
	Tokenizer   string        `yaml:"tokenizer"`    // Hugging Face folder by which people read what came without text [none]
	Tokens      string        `yaml:"tokens"`       // file of tokens and their rights [clients need no token]
	TLS         access.TLS    `yaml:"tls"`          // for Listen and HTTP
	StopTimeout time.Duration `yaml:"stop_timeout"` // how long calls may take to finish once the server stops

	Cluster cluster.Options `yaml:"cluster"` // the nodes that this service is to be one of [none]

	service.Options `yaml:",inline"`
}

// Read reads a configuration file; "" is the empty configuration. The error has every problem of what is written, for
// [Config.Check] to go on from.
func Read(path string) (c Config, err error) {
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	var problems option.Problems
	for _, err := range option.Each(settings.Reader{}.YAML(text, &c)) {
		problems.Add(fmt.Errorf("%s: %w", path, err))
	}
	return c, problems.Err()
}

// WithDefaults returns the configuration with the defaults of its own keys filled in.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.HTTP = cmp.Or(c.HTTP, DefaultHTTP)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	if c.Unix == Off {
		c.Unix = ""
	}
	return c
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var problems option.Problems
	c.Check(&problems)
	return problems.Err()
}

// Check adds the problems of the configuration to those of reading it, from which some may follow.
func (c Config) Check(problems *option.Problems) {
	c = c.WithDefaults()
	problems.AddNew(c.TLS.Validate())
	c.Options.Check(problems)
	if c.Cluster.On() {
		problems.AddNew(c.clusterOptions(nil).Validate())
		problems.Check(c.Tokens == "" || c.Cluster.SecretFile != "", "cluster.secret_file", "none", "a file with a secret "+
			"that the nodes share, with tokens: without one, whoever can log in to this machine can join the cluster and "+
			"read its tables")
		problems.Check(c.Sync == "" || c.Sync == journal.Always, "sync", c.Sync, "always in a cluster, whose nodes "+
			"sync what they acknowledge")
	}
	problems.Check(c.Listen != Off || c.Unix != "", "listen", c.Listen, "a unix socket, or an address")
	for i, name := range c.HTTPHosts {
		problems.Check(hosts.Valid(name), fmt.Sprintf("http_hosts[%d]", i), name,
			"a host without scheme and port, such as replay.example")
	}
	problems.Check(c.StopTimeout >= 0, "stop_timeout", c.StopTimeout, "0s (the default of %v) or more",
		DefaultStopTimeout)
}

// clusterOptions returns the options of the service's node.
func (c Config) clusterOptions(between *tls.Config) cluster.Options {
	o := c.Cluster
	o.Data, o.TLS = c.Data, between
	if o.TLS == nil && c.TLS.ClientCA != "" {
		o.TLS = new(tls.Config) // Validate asks whether there is one
	}
	return o
}

// SetTable adds a table, or replaces the table of that name.
func (c *Config) SetTable(t wire.Table) {
	for i := range c.Tables {
		if c.Tables[i].Name == t.Name {
			c.Tables[i] = t
			return
		}
	}
	c.Tables = append(c.Tables, t)
}

// ParseTable reads a table from key=value,… with the keys of the configuration file. A dot leads to the keys of a
// section: name=math,capacity=4096,limiter.samples_per_insert=4.
func ParseTable(text string) (t wire.Table, err error) {
	tree := make(map[string]any)
	for assignment := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(assignment, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" {
			return t, fmt.Errorf("%q: want key=value,… such as name=math,capacity=4096,sampler=prioritized", assignment)
		}
		if err := settings.Set(tree, key, value); err != nil {
			return t, err
		}
		if key == "name" { // which may look like a number
			tree[key] = value
		}
	}
	if err := (settings.Reader{}).Tree("", tree, &t); err != nil {
		return t, fmt.Errorf("%s: %w", text, err)
	}
	if t.Name == "" {
		return t, fmt.Errorf("%s: want a name=… in it", text)
	}
	return t, nil
}
