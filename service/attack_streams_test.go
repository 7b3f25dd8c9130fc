package service

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.etcd.io/bbolt"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/wire"
)

// withDictionary returns a rollout whose prompt_id comes by a dictionary.
func withDictionary(t testing.TB, prompt string) arrow.RecordBatch {
	t.Helper()
	rec := rows(t, alone(1, 0)...)
	defer rec.Release()
	words := array.NewDictionaryBuilder(memory.DefaultAllocator, &arrow.DictionaryType{
		IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	if err := words.AppendString(prompt); err != nil {
		t.Fatal(err)
	}
	fields, columns := rec.Schema().Fields(), rec.Columns()
	for i := range fields {
		if fields[i].Name == "prompt_id" {
			columns[i] = words.NewArray()
			fields[i].Type = columns[i].DataType()
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
}

// A caller leaves while a dictionary of its next insertion gets its memory and the one before is being committed: what
// is reserved after the call has ended is given back too.
func TestAttackACallerThatLeavesWhileADictionaryIsReserved(t *testing.T) {
	var db *bbolt.DB
	disk.Opened = func(_ string, opened any) { db = opened.(*bbolt.DB) }
	defer func() { disk.Opened = nil }()
	var armed atomic.Bool
	reserving, goOn := make(chan struct{}), make(chan struct{})
	v := serve(t, Options{Data: t.TempDir(), Caller: func(context.Context) string {
		if armed.CompareAndSwap(true, false) {
			close(reserving)
			<-goOn
		}
		return ""
	}})
	v.create(wire.Table{Name: "a"})
	first, second := withDictionary(t, "p"), withDictionary(t, "q")
	p := v.putter(v.dial(), "a", first.Schema())
	busy, err := db.Begin(true) // no commit succeeds
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Rollback() }()
	p.send(first, wire.InsertRequest{})
	v.await("the first is inserted", func(o TableView) bool { return o.Stats.Inserted == 1 })
	armed.Store(true)
	p.send(second, wire.InsertRequest{})
	<-reserving
	p.cancel()
	v.await("the call has ended", func(TableView) bool { return v.service.calls.all.used.Load() == 0 })
	close(goOn)
	v.memoryIsFree()
}
