package run

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout/option"
)

// leaves calls f with every value of a configuration that is no section, under its dotted key.
func leaves(prefix string, v reflect.Value, f func(key string, v reflect.Value)) {
	for field := range option.Fields(v) {
		switch v := field.Value; v.Kind() {
		case reflect.Struct:
			leaves(prefix+field.Key+".", v, f)
		case reflect.Map:
		default:
			f(prefix+field.Key, v)
		}
	}
}

// another changes a value to one that it is not.
func another(v reflect.Value) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 3)
	case reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(v.Float()*1.5 + 0.125)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Pointer:
		other := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			other.Elem().Set(v.Elem())
		}
		another(other.Elem())
		v.Set(other)
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		panic("no other value is known for a " + v.Kind().String())
	}
}

func digest(t *testing.T, c Config) string {
	t.Helper()
	d, err := c.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestADigestDiffersWithEverySettingThatARunReads(t *testing.T) {
	c := Default()
	c.Pipeline.Mode = "sync" // so that the keys of turns stay as they are set
	c.Pipeline.SyncRollouts, c.Pipeline.SyncUpdates = 512, 2
	c.Replay.Sampler = replay.Prioritized // so that its keys are read
	samePrioritized := digest(t, c)
	c.Replay.Sampler = replay.Ordered // so that its are
	sameOrdered := digest(t, c)
	ordered := []string{"replay.order", "replay.cooldown"}
	derived := []string{ // from other sections; Validate refuses them
		"replay.group_size", "replay.shards", "replay.advantage", "replay.vocab", "replay.max_tokens", "replay.seed",
		"replay.lease_seconds",
	}
	keys := 0
	leaves("", reflect.ValueOf(&c).Elem(), func(key string, v reflect.Value) {
		same := samePrioritized
		c.Replay.Sampler = replay.Prioritized
		if slices.Contains(ordered, key) {
			c.Replay.Sampler, same = replay.Ordered, sameOrdered
		}
		before := reflect.ValueOf(v.Interface())
		another(v)
		changed := digest(t, c) != same
		v.Set(before)
		keys++
		if read := key != "name" && !strings.HasPrefix(key, "checkpoint.") && !strings.HasPrefix(key, "baseline.") &&
			!strings.HasPrefix(key, "live.") && !slices.Contains(derived, key); changed != read {
			t.Errorf("%s: another value gives another digest: %t, want %t", key, changed, read)
		}
	})
	if keys < 80 {
		t.Errorf("%d keys were tried, there are more", keys)
	}
	if c.Replay.Sampler = replay.Prioritized; digest(t, c) != samePrioritized {
		t.Error("the test did not put the configuration back")
	}
	for _, task := range []map[string]any{{"name": "countdown"}, {"name": "arithmetic", "max": 10},
		{"name": "arithmetic", "held_out": 20}} {
		other := c
		other.Task = task
		if digest(t, other) == samePrioritized {
			t.Errorf("task %v has the digest of %v", task, c.Task)
		}
	}
}

func TestADigestIsThatOfTheResolvedConfiguration(t *testing.T) {
	implicit, explicit := Default(), Default()
	implicit.Replay.Capacity, explicit.Replay.Capacity = 0, 2*explicit.Pipeline.Batch
	explicit.Task = map[string]any{"name": "arithmetic", "max": 100}
	explicit.Generate.Precision = policy.Full
	if a, b := digest(t, implicit), digest(t, explicit); a != b {
		t.Errorf("a default left out has the digest %s, written out %s", a, b)
	}
	settings, err := implicit.Settings()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"replay.capacity": "2048", "task.max": "100", "learner.objective": `"grpo"`, "evaluate.pass_at": "[1,2,4]",
		"warmup.until": "0.35", "seed": "1",
	} {
		if settings[key] != want {
			t.Errorf("%s: %s, want %s", key, settings[key], want)
		}
	}
}

func TestAZeroSettingHasTheDigestOfAnAbsentOne(t *testing.T) {
	old := map[string]string{"a.b": "1", "c": `"x"`}
	for value, same := range map[string]bool{"0": true, "false": true, `""`: true, "[]": true, "1": false,
		"true": false, `"0"`: false, "[0]": false} {
		grown := map[string]string{"a.b": "1", "a.new": value, "c": `"x"`}
		if got := digestOf(grown) == digestOf(old); got != same {
			t.Errorf("a new key of %s leaves the digest: %t, want %t", value, got, same)
		}
	}
}

// A pool of runs outlives the program: were the digest of a configuration to change, all its runs would be made again.
func TestTheDigestOfTheBuiltInExperimentStays(t *testing.T) {
	if got, want := digest(t, Default()), "b95b1b775b756c00"; got != want {
		t.Errorf("digest %s, want %s: studies would make their runs again; if that is meant, put the new digest here",
			got, want)
	}
}

func TestDefaultsOfCorrectionsAreWrittenOut(t *testing.T) {
	of := func(assignments ...string) string {
		c, err := Load("", assignments)
		if err != nil {
			t.Fatal(err)
		}
		return digest(t, c)
	}
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"learner.correction=[{kind: mask}]", "learner.correction=[{kind: mask, level: token, low: 0.5, high: 5}]", true},
		{"learner.correction=[{kind: mask, low: 0.5}]", "learner.correction=[{kind: mask, low: 0.5, high: 5}]", false},
		{"learner.correction=[{kind: m2po}]", "learner.correction=[{kind: m2po, limit: 0.04}]", true},
		{"learner.proximal=behaviour", "learner.clip_low=0.2", true},
		{"learner.proximal=recompute", "learner.proximal=unweighted", false},
	} {
		if a, b := of(c.one), of(c.other); (a == b) != c.same {
			t.Errorf("%s and %s: the same run %t, want %t", c.one, c.other, a == b, c.same)
		}
	}
	m2po := "learner.correction=[{kind: m2po}]"
	if free := of(m2po, "pipeline.forward_cost=0"); free == of(m2po) || free == of("pipeline.forward_cost=0") {
		t.Error("a forward pass that costs nothing is the same as the default, or as none")
	}
}

func TestTheSettingsReadFromAFolderAreThoseOfTheConfiguration(t *testing.T) {
	c := Default()
	want, err := c.Settings()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := writeConfig(dir, c); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, results.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	got := results.Settings(string(text))
	for key, value := range want {
		list := strings.HasPrefix(value, "[") && value != "[]"
		if given, ok := got[key]; !ok || !list && !results.SameSetting(given, strings.Trim(value, `"`)) && given != value {
			t.Errorf("%s is %q, want %s", key, given, value)
		}
	}
	for key := range got {
		section, _, _ := strings.Cut(key, ".")
		if _, ok := want[key]; !ok && !slices.Contains(unread(), section) {
			t.Errorf("%s is no key of the configuration", key)
		}
	}
}
