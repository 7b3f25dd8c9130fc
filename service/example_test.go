package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/wire"
)

func Example() {
	s, err := service.New(service.Options{
		Logger: slog.New(slog.DiscardHandler),
		Tables: []wire.Table{{Name: "math", Options: replay.Options{Capacity: 4096, Sampler: "prioritized",
			MaxStaleness: 8}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.Listener(l)) }()

	for _, t := range s.Observe().Tables {
		fmt.Println(t.Name, t.Definition.Sampler, t.Stats.Present)
	}

	sum, err := s.Stop(context.Background())
	server.Stop()
	<-ended
	fmt.Println(sum.Tables, sum.Durable, sum.Left, err)
	// Output:
	// math prioritized 0
	// 1 0 0 <nil>
}
