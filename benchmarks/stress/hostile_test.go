package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestMostInsertionsAreCorrupted(t *testing.T) {
	random := rollout.Stream(1, "corrupt", 0)
	changed := 0
	for i := range 500 {
		messages, err := insertion(hostileTable, i, 2, 64, i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		good := make([]string, len(messages))
		for j, m := range messages {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			good[j] = string(b)
		}
		out, err := corruptInsertion(random, messages)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, len(out))
		for j := range out {
			got[j] = string(out[j])
		}
		if strings.Join(good, "|") != strings.Join(got, "|") {
			changed++
		}
	}
	if changed < 350 || changed == 500 { // some stay as they are
		t.Errorf("%d of 500 insertions were changed", changed)
	}
}

// replayer gives collected messages to a reader.
type replayer struct{ messages []*flight.FlightData }

func (r *replayer) Recv() (*flight.FlightData, error) {
	if len(r.messages) == 0 {
		return nil, io.EOF
	}
	m := r.messages[0]
	r.messages = r.messages[1:]
	return m, nil
}

func TestAnInsertionHoldsItsGroups(t *testing.T) {
	messages, err := insertion(hostileTable, 7, 3, 64, true)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := flight.NewRecordReader(&replayer{messages})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if !reader.Next() {
		t.Fatal(reader.Err())
	}
	got, _, err := wire.Groups(reader.RecordBatch(), nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d groups, %v", len(got), err)
	}
	for _, g := range got {
		for _, r := range g.Rollouts {
			if _, err := checkRollout(r, 64); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEveryInvalidRowIsRefusedByATable(t *testing.T) {
	for row, fields := range invalidRows() {
		rec, err := recordOf(row, fields, memory.NewGoAllocator())
		if err != nil {
			t.Errorf("%s: %v", row, err)
			continue
		}
		table, err := replay.New(replay.Options{Vocab: vocab})
		if err != nil {
			t.Fatal(err)
		}
		made, _, err := wire.Groups(rec, nil)
		if err == nil {
			for i := range made {
				made[i].Size = groupSize
			}
			_, err = table.Insert(t.Context(), made...)
		}
		if !errors.Is(err, rollout.ErrInvalid) {
			t.Errorf("%s: %v, want an error that wraps ErrInvalid", row, err)
		}
		rec.Release()
	}
}
