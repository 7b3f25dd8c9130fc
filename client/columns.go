package client

import (
	"context"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/wire"
)

// columns is what a table's own columns make of the schemas.
type columns struct {
	insert *arrow.Schema
}

// columns returns what the table's definition says of its columns, asked for once.
func (t *Table) columns(ctx context.Context) (*columns, error) {
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	if known != nil {
		return known, nil
	}
	info, err := t.Info(ctx)
	if err != nil {
		return nil, err
	}
	var own []wire.Column
	if info.Definition != nil {
		own = info.Definition.Columns
	}
	extra, err := wire.ExtraFields(own)
	if err != nil {
		return nil, t.failed("read its definition", err)
	}
	known = &columns{insert: wire.InsertSchema(extra...)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = known
	return known, nil
}

// forget has the columns asked for anew.
func (t *Table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = nil
}

// extraOf returns the fields of a schema that are of the table's own.
func extraOf(s *arrow.Schema) []arrow.Field {
	var extra []arrow.Field
	for _, f := range s.Fields() {
		if strings.HasPrefix(f.Name, "x_") {
			extra = append(extra, f)
		}
	}
	return extra
}
