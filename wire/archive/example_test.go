package archive_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// A group is written and read back for an insertion.
func Example() {
	dir, err := os.MkdirTemp("", "archive")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	group := rollout.Group{}
	for _, reward := range []float32{0, 1} {
		group.Rollouts = append(group.Rollouts, rollout.New("12+7=", []int32{5}, rollout.Completion{
			Tokens: []int32{6, 7}, Logprobs: []float32{-0.5, -0.25}, Version: 3, Reward: reward,
		}))
	}
	rows, err := wire.Rows([]rollout.Group{group}, nil)
	if err != nil {
		panic(err)
	}
	defer rows.Release()

	path := filepath.Join(dir, "rollouts.arrow")
	_, err = archive.Write(path, rows.Schema(), func(add func(arrow.RecordBatch) error) error { return add(rows) })
	if err != nil {
		panic(err)
	}

	read, err := archive.Open(path)
	if err != nil {
		panic(err)
	}
	for in, err := range read.Insertions(archive.Options{}) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d group of %d rollouts, up to version %d, rewards %g and %g\n",
			len(in.Groups), in.Rollouts, in.Newest, in.Groups[0].Rollouts[0].Reward, in.Groups[0].Rollouts[1].Reward)
	}
	// Output: 1 group of 2 rollouts, up to version 3, rewards 0 and 1
}
