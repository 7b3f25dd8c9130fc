package service

import (
	"bytes"
	"encoding/json"
	"fmt"

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
// its key, under code wire.Invalid; read has those of reading it.
func define(w wire.Table, read ...error) (*definition, error) {
	var p option.Problems
	p.Add(read...)
	checkNew(&p, w)
	if len(p) > 0 {
		return nil, wire.Errorf(wire.Invalid, "table %q: %s", w.Name, p.Line())
	}
	return complete(w)
}

// Bounds of the columns of the user's own: each batch has a part for each of them, and for each field of their types.
const (
	maxColumns  = 64
	maxTypeText = 4096 // characters
)

// checkNew adds the problems of the definition of a new table.
func checkNew(p *option.Problems, w wire.Table) {
	checkKept(p, w)
	p.Check(len(w.Columns) <= maxColumns, "columns", len(w.Columns), "at most %d", maxColumns)
	for i, c := range w.Columns {
		p.Check(len(c.Type) <= maxTypeText, fmt.Sprintf("columns[%d].type", i),
			fmt.Sprintf("%d characters", len(c.Type)), "at most %d", maxTypeText)
	}
	if len(*p) == 0 {
		p.Add(checkProgress(w)...)
	}
}

// checkKept adds the problems of any definition, those of journals included, which may have what [checkNew] refuses
// today.
func checkKept(p *option.Problems, w wire.Table) {
	wire.AddName(p, w.Name)
	p.AddNew(w.Options.Validate())
	if w.Limiter != nil {
		checkLimiter(p, *w.Limiter, w.GroupSize)
	}
	if w.Gate != nil {
		p.In("gate", func(p *option.Problems) { p.CheckFields(*w.Gate, nil) })
	}
	if w.Prompts != nil {
		o := promptOptions(w)
		p.AddNew(option.Under("prompts", o.Validate()))
		p.Check(o.Skip == "", "prompts.skip", o.Skip, "none: a generator passes over its fresh prompts by itself")
	}
	wire.AddColumns(p, w.Columns)
}

// promptOptions returns the options of a definition that has prompt replay.
func promptOptions(w wire.Table) prompts.Options {
	if w.Prompts.Fraction == 0 {
		return prompts.Defaults()
	}
	return w.Prompts.WithDefaults()
}

// complete fills in a definition's defaults.
func complete(w wire.Table) (*definition, error) {
	var p option.Problems
	if checkKept(&p, w); len(p) > 0 {
		return nil, wire.Errorf(wire.Invalid, "table %q: %s", w.Name, p.Line())
	}
	d := &definition{Table: w}
	var err error
	if d.fields, err = wire.ExtraFields(w.Columns); err == nil {
		d.schema, err = wire.SampleSchema(nil, d.fields...)
	}
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", w.Name, err)
	}
	d.Options = w.Options.WithDefaults()
	d.Clock = nil // the service's own
	if w.Prompts != nil {
		d.Prompts = new(promptOptions(w))
	}
	if w.Gate != nil {
		d.Gate = new(*w.Gate)
		option.Fill(d.Gate)
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
	return complete(w)
}
