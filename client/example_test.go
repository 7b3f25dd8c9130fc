package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/wire"
)

// serve starts a service in this process, which otherwise `reprise serve` is.
func serve() (address string, stop func()) {
	s, err := service.New(service.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	g := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(g)
	go g.Serve(l)
	return "grpc://" + l.Addr().String(), func() {
		s.Stop(context.Background())
		g.Stop()
	}
}

// A generator puts a group of answers to one question into a table, and a trainer learns from batches of them.
func Example() {
	address, stop := serve()
	defer stop()
	ctx := context.Background()

	c, err := client.Dial(ctx, address, client.Options{})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if _, err := c.Create(ctx,
		wire.Table{Name: "lab", Options: replay.Options{Capacity: 1000, Sampler: "fifo"}}); err != nil {
		panic(err)
	}
	table := c.Table("lab")

	group := rollout.Group{Size: 2}
	for i, answer := range []string{"4", "5"} {
		r := rollout.New("2+2", []int32{2, 10, 2}, rollout.Completion{
			Tokens: []int32{int32(4 + i)}, Logprobs: []float32{-0.7}, Reward: float32(1 - i),
		})
		r.Text = answer
		group.Rollouts = append(group.Rollouts, r)
	}
	ids, err := table.Insert(ctx, group)
	if err != nil {
		panic(err)
	}
	fmt.Println("inserted", ids)

	batch, err := table.Sample(ctx, rollout.Request{Size: 2})
	if err != nil {
		panic(err)
	}
	for _, d := range batch.Draws {
		fmt.Printf("%s=%s: advantage %+.0f, staleness %d\n", d.Rollout.PromptID, d.Rollout.Text, d.Advantage,
			d.Staleness)
	}
	if err := table.Advance(ctx, batch.Version+1); err != nil {
		panic(err)
	}
	// Output:
	// inserted [1 2]
	// 2+2=4: advantage +1, staleness 0
	// 2+2=5: advantage -1, staleness 0
}

// A trainer draws from a table in parts as from one table: every rollout of both services is as likely as its priority
// says.
func ExampleDialAll() {
	a, stopA := serve()
	defer stopA()
	b, stopB := serve()
	defer stopB()
	ctx := context.Background()

	services, err := client.DialAll(ctx, []string{a, b}, client.AllOptions{Scope: client.AllParts})
	if err != nil {
		panic(err)
	}
	defer services.Close()
	if _, err := services.Create(ctx, wire.Table{Name: "lab", Options: replay.Options{Capacity: 1000}}); err != nil {
		panic(err)
	}
	table := services.Table("lab")

	var groups []rollout.Group
	for i := range 100 {
		r := rollout.New(fmt.Sprint(i), []int32{1}, rollout.Completion{Tokens: []int32{2}, Logprobs: []float32{-0.7}})
		groups = append(groups, rollout.Group{Rollouts: []*rollout.Rollout{r}})
	}
	if _, err := table.Insert(ctx, groups...); err != nil {
		panic(err)
	}
	batch, err := table.Sample(ctx, rollout.Request{Size: 64})
	if err != nil {
		panic(err)
	}
	if err := table.Advance(ctx, 1); err != nil {
		panic(err)
	}
	stats, err := table.Statistics(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(batch.Draws), "of", stats.Present, "rollouts; parts that are down:", len(stats.Down))
	// Output: 64 of 100 rollouts; parts that are down: 0
}
