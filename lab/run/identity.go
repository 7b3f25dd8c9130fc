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

// unread returns the parts of a configuration that do not change what a run computes: its name, how often it is saved,
// the settings of a comparison's other arm, and those of the real clock.
func unread() []string { return []string{"name", "checkpoint", "baseline", "live"} }

// Settings returns all settings of a valid configuration that determine what a run computes: the resolved configuration
// under dotted keys, with values in JSON, without the name and the sections checkpoint, baseline and live.
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

// flatten writes the leaves of a tree under dotted keys. A list is one leaf.
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

// Digest returns 16 hexadecimal digits that are the same for two runs if their [Config.Settings] are. A setting that is
// 0, false or empty counts as absent, so that a new key whose zero means the old behaviour does not change the digest.
// The content of files named in the configuration is not part of it.
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
