package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// unread are the parts of a configuration that change nothing of what a run computes: how it is called, how often it is saved, and
// what another arm would do otherwise.
func unread() []string { return []string{"name", "checkpoint", "baseline"} }

// Settings returns what makes the run this run: the resolved configuration under dotted keys, each value as JSON. The name and the
// sections checkpoint and baseline, which a single run computes nothing from, are left out. The configuration is a valid one.
func (c Config) Settings() (map[string]string, error) {
	c, err := c.resolved()
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	for _, key := range unread() {
		delete(tree, key)
	}
	settings := make(map[string]string)
	return settings, flatten("", tree, settings)
}

// flatten writes the leaves of a tree under dotted keys; a list is one leaf.
func flatten(prefix string, tree map[string]any, into map[string]string) error {
	for key, value := range tree {
		if below, ok := value.(map[string]any); ok {
			if err := flatten(prefix+key+".", below, into); err != nil {
				return err
			}
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s%s: %w", prefix, key, err)
		}
		into[prefix+key] = string(text)
	}
	return nil
}

// Digest returns 16 hexadecimal digits that two runs share if their [Config.Settings] are the same. A setting of 0, false or nothing
// counts as one that is not there: a key that a later program adds, whose zero means what was done before, leaves the digests as they
// are. What a folder or file named in the configuration holds is not part of it.
func (c Config) Digest() (string, error) {
	settings, err := c.Settings()
	if err != nil {
		return "", err
	}
	return digestOf(settings), nil
}

func digestOf(settings map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		switch value := settings[key]; value {
		case "0", "false", `""`, "[]", "null":
		default:
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}
