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
			wire.Table{Name: "lab", Options: replay.Options{Capacity: 512, PromptIndex: true}}); err != nil {
			b.Fatal(err)
		}
		table := c.Table("lab")
		bytes, prompts, groups := int64(0), make([]string, 16), make([]rollout.Group, 16)
		for i := range groups {
			prompts[i], groups[i] = fmt.Sprint("prompt ", i), long(4, tokens)
			for _, r := range groups[i].Rollouts {
				r.PromptID = prompts[i]
				bytes += r.Bytes()
			}
		}
		b.Run(fmt.Sprintf("insert/%d", tokens), func(b *testing.B) {
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Insert(context.Background(), groups...); err != nil {
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
		b.Run(fmt.Sprintf("prompts/%d", tokens), func(b *testing.B) {
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				batch, err := table.Sample(context.Background(), rollout.Request{Prompts: prompts, PerPrompt: 4,
					Where: "reward >= 0 && age < 8", Order: "-uses"})
				if err != nil || len(batch.Draws) != 64 {
					b.Fatalf("%d draws, %v", len(batch.Draws), err)
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
