package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// Client and service share the process and its cores here; make bench-service measures them apart, beside raw sockets.
func BenchmarkBatchesOf64(b *testing.B) {
	for _, tokens := range []int{256, 4096} {
		address, stop := serve()
		defer stop()
		c, err := client.Dial(context.Background(), address, client.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Create(context.Background(),
			wire.Table{Name: "lab", Options: replay.Options{Capacity: 512}}); err != nil {
			b.Fatal(err)
		}
		table := c.Table("lab")
		g := long(64, tokens)
		bytes := int64(0)
		for _, r := range g.Rollouts {
			bytes += r.Bytes()
		}
		b.Run(fmt.Sprintf("insert/%d", tokens), func(b *testing.B) {
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Insert(context.Background(), g); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("sample/%d", tokens), func(b *testing.B) {
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Sample(context.Background(), rollout.Request{Size: 64}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("stream/%d", tokens), func(b *testing.B) {
			s, err := table.Stream(context.Background(), wire.SampleRequest{Size: 64})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Next(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// long returns a group of rollouts of the given tokens.
func long(rollouts, tokens int) rollout.Group {
	g := rollout.Group{Size: rollouts}
	for i := range rollouts {
		g.Rollouts = append(g.Rollouts, &rollout.Rollout{
			PromptID: "p", Tokens: make([]int32, tokens), Mask: ones(tokens), Logprobs: make([]float32,
				tokens), Versions: make([]rollout.Version, tokens),
			Temperature: 1, TopP: 1, Reward: float32(i % 2),
		})
	}
	return g
}
