package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

// Where a service listens unless it is told otherwise, and how long it stops at most.
const (
	defaultListen      = "127.0.0.1:7447"
	defaultHTTP        = "127.0.0.1:7448"
	defaultStopTimeout = 30 * time.Second
	listenNowhere      = "off"
)

// serveConfig is what a configuration file of `reprise serve` may say. Zero is the documented default.
type serveConfig struct {
	Listen      string        `yaml:"listen"`       // HOST:PORT of Flight, or off; "": defaultListen
	Unix        string        `yaml:"unix"`         // socket of Flight; "": none
	HTTP        string        `yaml:"http"`         // HOST:PORT of the dashboard, metrics and health, or off; "": defaultHTTP
	Tokens      string        `yaml:"tokens"`       // tokens file; "": none are asked for
	TLS         access.TLS    `yaml:"tls"`          // of Listen and HTTP
	StopTimeout time.Duration `yaml:"stop_timeout"` // for what is under way when the service is to stop; 0: defaultStopTimeout

	service.Options `yaml:",inline"`
}

// readServeConfig reads a configuration file; a key that it does not know is an error with its name.
func readServeConfig(path string) (serveConfig, error) {
	var c serveConfig
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("--config: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return c, nil
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", path, yamlError(err, true))
	}
	return c, nil
}

// fill puts the defaults in.
func (c *serveConfig) fill() {
	if c.Listen == "" {
		c.Listen = defaultListen
	}
	if c.HTTP == "" {
		c.HTTP = defaultHTTP
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = defaultStopTimeout
	}
	if c.Unix == listenNowhere {
		c.Unix = ""
	}
}

// validate reports everything that is wrong at once.
func (c *serveConfig) validate() error {
	problems := []error{c.TLS.Validate(), c.Options.Validate()}
	if c.Listen == listenNowhere && c.Unix == "" {
		problems = append(problems, errors.New("listen: off: want a unix socket beside it, or an address"))
	}
	if c.StopTimeout < 0 {
		problems = append(problems, fmt.Errorf("stop_timeout: %v: want 0s (the default of %v) or more", c.StopTimeout, defaultStopTimeout))
	}
	return errors.Join(problems...)
}

// put adds a table, or replaces the one of that name.
func (c *serveConfig) put(t wire.Table) {
	for i := range c.Tables {
		if c.Tables[i].Name == t.Name {
			c.Tables[i] = t
			return
		}
	}
	c.Tables = append(c.Tables, t)
}

// parseTable reads a table as key=value,…, with the keys of the configuration file, those of its parts after a dot:
// name=math,capacity=4096,limiter.samples_per_insert=4.
func parseTable(text string) (wire.Table, error) {
	tree := make(map[string]any)
	for _, assignment := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(assignment, "=")
		if !ok || key == "" {
			return wire.Table{}, fmt.Errorf("--table: %q: want key=value,… such as name=math,capacity=4096,sampler=prioritized", assignment)
		}
		if err := plant(tree, strings.Split(strings.TrimSpace(key), "."), strings.TrimSpace(value)); err != nil {
			return wire.Table{}, fmt.Errorf("--table: %s: %w", key, err)
		}
	}
	source, err := yaml.Marshal(tree)
	if err != nil {
		return wire.Table{}, fmt.Errorf("--table: %w", err)
	}
	var t wire.Table
	if err := yaml.NewDecoder(bytes.NewReader(source), yaml.DisallowUnknownField()).Decode(&t); err != nil {
		return wire.Table{}, fmt.Errorf("--table: %s: %w", text, yamlError(err, false))
	}
	if t.Name == "" {
		return wire.Table{}, fmt.Errorf("--table: %s: want a name=… in it", text)
	}
	return t, nil
}

// plant puts a value, read as YAML reads it, under a path of keys.
func plant(tree map[string]any, path []string, value string) error {
	key := path[0]
	if len(path) > 1 {
		below, ok := tree[key].(map[string]any)
		if !ok {
			if _, taken := tree[key]; taken {
				return errors.New("given as a value too")
			}
			below = make(map[string]any)
			tree[key] = below
		}
		return plant(below, path[1:], value)
	}
	if _, taken := tree[key]; taken {
		return errors.New("given twice")
	}
	var scalar any
	if err := yaml.Unmarshal([]byte(value), &scalar); err != nil {
		return fmt.Errorf("%q is no value", value)
	}
	if key == "name" { // a name may look like a number
		scalar = value
	}
	tree[key] = scalar
	return nil
}

// byteSize is a number of bytes: 268435456, 256MiB or 250MB.
type byteSize int64

// UnmarshalText reads it.
func (b *byteSize) UnmarshalText(text []byte) error {
	number, factor := string(text), int64(1)
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/factor {
		return fmt.Errorf("%q: want a number of bytes, such as 268435456, 256MiB or 250MB", text)
	}
	*b = byteSize(n * factor)
	return nil
}
