package service

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// definition is a wire.Table with its defaults filled in, and the schema that follows from it.
type definition struct {
	wire.Table
	fields []arrow.Field // of the user's own columns
	schema *arrow.Schema // of sampling, with all columns
}

// define checks the definition of a new table and fills in its defaults. It reports every problem at once, each with
// its key, under code wire.Invalid.
func define(w wire.Table) (*definition, error) {
	problems := checkProgress(w)
	problems.Check(len(w.Columns) <= maxColumns, "columns", len(w.Columns), "at most %d", maxColumns)
	for i, c := range w.Columns {
		problems.Check(len(c.Type) <= maxTypeText, fmt.Sprintf("columns[%d].type", i),
			fmt.Sprintf("%d characters", len(c.Type)), "at most %d", maxTypeText)
	}
	return complete(w, problems)
}

// Bounds of the columns of the user's own: each batch has a part for each of them, and for each field of their types.
const (
	maxColumns  = 64
	maxTypeText = 4096 // characters
)

// complete fills in a definition's defaults. Definitions of journals may have what [define] refuses today.
func complete(w wire.Table, problems option.Problems) (*definition, error) {
	d := &definition{Table: w}
	problems.Add(wire.CheckName(w.Name), w.Options.Validate())
	if w.Limiter != nil {
		problems.Add(checkLimiter(*w.Limiter, w.GroupSize)...)
	}
	if w.Gate != nil {
		problems.Add(checkGate(*w.Gate)...)
	}
	if w.Prompts != nil {
		filled := w.Prompts.WithDefaults()
		if w.Prompts.Fraction == 0 {
			filled = prompts.Defaults()
		}
		d.Prompts = &filled
		problems.Add(option.Under("prompts", d.Prompts.Validate()))
	}
	var err error
	if d.fields, err = wire.ExtraFields(w.Columns); err != nil {
		problems.Add(err)
	} else if d.schema, err = wire.SampleSchema(nil, d.fields...); err != nil {
		problems.Add(err)
	}
	if len(problems) > 0 {
		return nil, wire.Errorf(wire.Invalid, "table %q: %s", w.Name,
			strings.ReplaceAll(problems.Err().Error(), "\n", "; "))
	}
	d.Options = w.Options.WithDefaults()
	d.Clock = nil // the service's own
	if w.Gate != nil && w.Gate.GrantSeconds == 0 {
		gate := *w.Gate
		gate.GrantSeconds = defaultGrantTime.Seconds()
		d.Gate = &gate
	}
	if len(w.Columns) == 0 {
		d.Columns = nil
	}
	return d, nil
}

// text is the definition as journals keep it.
func (d *definition) text() ([]byte, error) { return json.Marshal(d.Table) }

// readDefinition reads what text returned.
func readDefinition(text []byte) (*definition, error) {
	var w wire.Table
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil {
		return nil, fmt.Errorf("reading a table's definition: %w", err)
	}
	return complete(w, nil)
}

// differences describes every key in which a definition differs from the table's, both with defaults filled in.
func differences(given, there wire.Table) (list []string) {
	for _, d := range option.Differences(given, there) {
		list = append(list, fmt.Sprintf("%s is %s, the table's is %s", d.Key, d.A, d.B))
	}
	return list
}
