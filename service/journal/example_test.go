package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal"
)

func Example() {
	folder, err := os.MkdirTemp("", "journal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	o := journal.Options{Path: filepath.Join(folder, "table.journal"), Sync: journal.Always}

	// A table, and a journal beside it.
	table, _ := replay.New(replay.Options{Capacity: 100})
	j, err := journal.Create(o, []byte("capacity 100"), table)
	fmt.Println(err)
	ctx := context.Background()
	r := rollout.New("", []int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-0.5}, Reward: 1})
	ids, _ := table.ServiceView().InsertOnce(ctx, "batch 1", rollout.Group{Rollouts: []*rollout.Rollout{r}})
	fmt.Println(j.Commit(ctx), ids) // on disk: tell the client
	fmt.Println(j.Close())

	// After a crash, the same table again.
	j, table, recovery, err := journal.Open(o, func(definition []byte) (*replay.Table, error) {
		fmt.Printf("the definition is %q\n", definition)
		return replay.New(replay.Options{Capacity: 100})
	})
	fmt.Println(err, recovery.Rollouts, table.ServiceView().Flow().Present)
	fmt.Println(j.Close())
	report, err := journal.Verify(o.Path)
	fmt.Println(err, report.Whole())
	// Output:
	// <nil>
	// <nil> [1]
	// <nil>
	// the definition is "capacity 100"
	// <nil> 1 1
	// <nil>
	// <nil> true
}
