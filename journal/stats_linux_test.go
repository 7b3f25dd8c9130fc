package journal

import (
	"os"
	"testing"

	"github.com/reprise-rl/reprise/replay"
)

// Whoever watches a journal looks at it whatever became of its file: reading what is gone would end the process.
func TestStatisticsReadNothingOfAFileThatWasCutShort(t *testing.T) {
	o := in(t)
	table := newTable(t, replay.Options{})
	j := create(t, o, table)
	before := j.Stats()
	if before.FileBytes == 0 || before.FreeBytes <= 0 || before.FreeBytes >= before.FileBytes {
		t.Errorf("%d of %d bytes are free", before.FreeBytes, before.FileBytes)
	}
	must(t, os.Truncate(o.Path, 0))
	if st := j.Stats(); st.FileBytes != 0 || st.Err != nil {
		t.Errorf("cut short, and not known to be: %+v", st)
	}
	if err := table.Advance(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(ctx); err == nil {
		t.Error("a file that was cut short is written as if nothing were")
	}
	if st := j.Stats(); st.Err == nil {
		t.Error("the statistics tell of no error")
	}
	if err := j.Close(); err == nil {
		t.Error("closing tells of no error")
	}
}
