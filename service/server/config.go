package server

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"

	"github.com/reprise-rl/reprise/internal/hosts"
	"github.com/reprise-rl/reprise/internal/words"
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
	Tokens      string        `yaml:"tokens"`       // file of tokens and their rights [clients need no token]
	TLS         access.TLS    `yaml:"tls"`          // for Listen and HTTP
	StopTimeout time.Duration `yaml:"stop_timeout"` // how long calls may take to finish once the server stops

	Cluster cluster.Options `yaml:"cluster"` // the nodes that this service is to be one of [none]

	service.Options `yaml:",inline"`
}

// Read reads a configuration file; "" is the empty configuration. An unknown key is an error that names it.
func Read(path string) (Config, error) {
	var c Config
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return c, nil
	}
	if err := decode(text, &c, true); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
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
	c = c.WithDefaults()
	var problems option.Problems
	problems.Add(c.TLS.Validate(), c.Options.Validate())
	if c.Cluster.On() {
		problems.Add(c.clusterOptions(nil).Validate())
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
	return problems.Err()
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

// ParseTable reads a table from key=value,… with the keys of the configuration file. A dot leads to the keys of a part:
// name=math,capacity=4096,limiter.samples_per_insert=4.
func ParseTable(text string) (wire.Table, error) {
	tree := make(map[string]any)
	for assignment := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(assignment, "=")
		if !ok || key == "" {
			return wire.Table{}, fmt.Errorf("%q: want key=value,… such as name=math,capacity=4096,sampler=prioritized",
				assignment)
		}
		if err := setPath(tree, strings.Split(strings.TrimSpace(key), "."), strings.TrimSpace(value)); err != nil {
			return wire.Table{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	source, err := yaml.Marshal(tree)
	if err != nil {
		return wire.Table{}, err
	}
	var t wire.Table
	if err := decode(source, &t, false); err != nil {
		return wire.Table{}, fmt.Errorf("%s: %w", text, err)
	}
	if t.Name == "" {
		return wire.Table{}, fmt.Errorf("%s: want a name=… in it", text)
	}
	return t, nil
}

// setPath sets a value, read as YAML, under a path of keys.
func setPath(tree map[string]any, path []string, value string) error {
	key := path[0]
	present, taken := tree[key]
	if len(path) > 1 {
		below, ok := present.(map[string]any)
		if taken && !ok {
			return errors.New("given as a value too")
		}
		if !taken {
			below = make(map[string]any)
			tree[key] = below
		}
		return setPath(below, path[1:], value)
	}
	if taken {
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

// decode reads YAML into a value and refuses unknown keys. Its errors have the form of all configuration errors,
// key: value: want …, after the line's number if the user wrote lines.
func decode(text []byte, into any, lines bool) error {
	err := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(into)
	var found yaml.Error
	if !errors.As(err, &found) || found.GetToken() == nil {
		return err
	}
	at, line := found.GetToken(), ""
	if lines {
		line = fmt.Sprintf("line %d: ", at.Position.Line)
	}
	var unknown *yaml.UnknownFieldError
	var kind *yaml.TypeError
	var overflow *yaml.OverflowError
	var shape *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s%s: unknown key: want %s", line, at.Value, suggestKey(at.Value))
	case errors.As(err, &kind):
		return fmt.Errorf("%s%s%s: want %s", line, keyOf(at), at.Value, describeKind(kind.DstType))
	case errors.As(err, &shape):
		return fmt.Errorf("%s%s%s: want a %s", line, keyOf(at), at.Value, shape.Expected.YAMLName())
	case errors.As(err, &overflow):
		return fmt.Errorf("%s%s%s: want a smaller number", line, keyOf(at), at.Value)
	}
	return fmt.Errorf("%s%s", line, found.GetMessage())
}

// keyOf returns the key of a value with a colon, "" for a value in a list.
func keyOf(at *token.Token) string {
	if at.Prev == nil || at.Prev.Type != token.MappingValueType || at.Prev.Prev == nil {
		return ""
	}
	return at.Prev.Prev.Value + ": "
}

// suggestKey names the key that the user probably meant, or the page that lists the keys.
func suggestKey(key string) string {
	for _, k := range keysOf(reflect.TypeFor[Config]()) {
		if words.OneTypoApart(k, key) {
			return k
		}
	}
	return "one of those in docs/reference.md"
}

// keysOf returns the YAML keys of a type and of all its parts.
func keysOf(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keysOf(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	var keys []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("yaml"), f.Tag.Get("json")), ",")
		if name != "" && name != "-" {
			keys = append(keys, name)
		}
		if name != "-" && f.IsExported() {
			keys = append(keys, keysOf(f.Type)...)
		}
	}
	return keys
}

// describeKind names a type of values in the user's words.
func describeKind(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "a time with its unit, such as 500ms, 30s or 5m"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "keys with values"
	}
	return "text"
}
