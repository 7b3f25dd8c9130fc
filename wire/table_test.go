package wire

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
)

// everyKey is a definition in which every key is given, at a value that is not its default, zero where zero is a value.
// The tables together have every key, as some exclude others.
func everyKey() []Table {
	return []Table{prioritizedKeys(), {Name: "lab", Options: replay.Options{
		Retention: replay.KeepPositive, PositiveFraction: 0.5, PositivesPerPrompt: 2, PositiveShare: 0.25,
		PromptIndex: true, History: 100, UnknownLogprobs: true, DrawAdvantage: replay.AdvantageBaseline, Select: 4,
		SelectBy: replay.SelectReward}},
		{Name: "lab", Options: replay.Options{Sources: []replay.Source{
			{Name: "new", Pool: replay.PoolFresh, Count: 2, Where: "reward > 0", Backfill: "old"},
			{Name: "old", Share: "0.25", Weight: "0.5 ** age", PerPrompt: 1},
		}, PendingRewards: 3600}}, {Name: "lab", Options: replay.Options{Sampler: replay.Prioritized, Priority: "reward"}},
		{Name: "lab", Options: replay.Options{Sampler: replay.Ordered, Order: "reward", Cooldown: 2,
			Retention: replay.KeepScored, Score: "length", KeptPerPrompt: 3,
			MaxStaleness: 4, Pin: "reward > 0"}}}
}

func prioritizedKeys() Table {
	return Table{
		Name: "lab",
		Options: replay.Options{
			Capacity: 24, CapacityBytes: 1000, Retention: replay.KeepPositive, PositiveFraction: 0.25,
			PositiveThreshold: new(float32(0)),
			MaxStaleness:      7, MaxUses: 3, Sampler: replay.Prioritized, MinSize: 2, Unit: replay.UnitStep, GroupSize: 4,
			StepReturns:  replay.ToTheEnd,
			StepDiscount: 0.9, PriorityBase: replay.BaseReward, PriorityEpsilon: 0.5, PriorityExponent: 2,
			AgeDecay:   replay.Versions(math.Inf(1)),
			DecayOrder: replay.AfterExponent, TargetESS: 0.8, Draws: replay.Independent, Entry: replay.EnterMax,
			EntryUntil:       replay.UntilRefresh,
			ImportanceBeta:   new(0.0),
			ImportanceAnneal: new(9), ImportanceNorm: replay.ByTable, Shards: 3, Advantage: "no_std", Vocab: 50,
			MaxTokens: 60, Seed: 1 << 63, LeaseSeconds: 1.5,
		},
		Limiter: &Limiter{SamplesPerInsert: 2, ErrorBuffer: 100}, Gate: &Gate{RolloutsPerUpdate: 64, GrantSeconds: 9},
		Prompts: &prompts.Options{Fraction: 0.5, Band: 0, Cooldown: 0, MaxReuse: 1, MaxPrompts: 9},
		Columns: []Column{{"x_a", "int8"}},
	}
}

func TestADefinitionSurvivesJSONAndYAMLWithEveryKey(t *testing.T) {
	tables := everyKey()
	for f, v := range reflect.ValueOf(tables[0].Options).Fields() {
		more := func(table Table) bool { return !reflect.ValueOf(table.Options).FieldByName(f.Name).IsZero() }
		if v.IsZero() && !slices.ContainsFunc(tables[1:], more) && f.Tag.Get("json") != "-" {
			t.Errorf("everyKey leaves %s out", f.Name)
		}
	}
	for _, want := range tables {
		survives(t, want)
	}
}

func survives(t *testing.T, want Table) {
	t.Helper()
	if err := want.Options.Validate(); err != nil {
		t.Error(err)
	}
	asJSON, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Table
	if err := json.Unmarshal(asJSON, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: %v: got %+v, want %+v", err, got, want)
	}
	got = Table{}
	if err := (settings.Reader{}).JSON(asJSON, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON, read by its keys: %v: got %+v, want %+v", err, got, want)
	}
	for name, text := range map[string][]byte{"JSON read as YAML": asJSON, "YAML": marshalYAML(t, want)} {
		var got Table
		if err := (settings.Reader{}).YAML(text, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v: got %+v, want %+v", name, err, got, want)
		}
	}
}

func marshalYAML(t *testing.T, v any) []byte {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestADefinitionWithNoKeyGivenHasTheDefaults(t *testing.T) {
	for _, sampler := range replay.Samplers() {
		given := Table{Name: "lab", Options: replay.Options{Sampler: sampler}}
		filled := Table{Name: "lab", Options: given.Options.WithDefaults()}
		for name, text := range map[string]string{"JSON": `{"name": "lab", "sampler": "` + string(sampler) + `"}`,
			"YAML": "name: lab\nsampler: " + string(sampler)} {
			var got Table
			err := settings.Reader{}.YAML([]byte(text), &got)
			if err != nil || !reflect.DeepEqual(got, given) {
				t.Errorf("%s: %v: got %+v", name, err, got)
			}
		}
		text, err := json.Marshal(filled)
		if err != nil {
			t.Fatal(err)
		}
		var again Table
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		again.Options = again.WithDefaults()
		if a, _ := json.Marshal(again); string(a) != string(text) {
			t.Errorf("defaults written out are\n%s, read and filled in again\n%s", text, a)
		}
	}
	want := prompts.Options{Fraction: 0.5, Band: 0.3, Cooldown: 5, MaxReuse: 10, MaxPrompts: 1 << 20}
	var read, decoded Table
	const part = `{"name": "lab", "prompts": {"fraction": 0.5}}`
	err := errors.Join(settings.Reader{}.YAML([]byte(part), &read), json.Unmarshal([]byte(part), &decoded))
	if err != nil || *read.Prompts != want || *decoded.Prompts != want {
		t.Errorf("prompts in part: %+v, %+v, %v", read.Prompts, decoded.Prompts, err)
	}
	if err := json.Unmarshal([]byte(`{"prompts": {"bands": 1}}`), &decoded); err == nil {
		t.Error("an unknown key of prompts is ignored")
	}
}

func TestNamesOfTablesAreNamesOfFiles(t *testing.T) {
	for _, name := range []string{"a", "table-1", "Math.v2_x", strings.Repeat("a", 128)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "a b", "größe", "a\x00", strings.Repeat("a", 129)} {
		if err := CheckName(name); CodeOf(err) != Invalid || !strings.Contains(err.Error(), "want 1 to 128 letters") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
