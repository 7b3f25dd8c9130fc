package service

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"

	"github.com/reprise-rl/reprise/wire"
)

// Calls with as many headers as they may have hold no more than what they are charged, the client's half included.
func TestAttackCallsWithFullHeaders(t *testing.T) {
	v := serve(t, Options{MemoryBytes: 4 << 30})
	v.create(wire.Table{Name: "a"})
	ctx := v.ctx
	for i := range (maxHeaders - 1000) / 40 { // HTTP/2 counts 32 bytes more for each
		ctx = metadata.AppendToOutgoingContext(ctx, fmt.Sprintf("k%d", i), "v")
	}
	const calls = 200
	inUse := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := inUse()
	for range calls {
		stream, err := v.client.DoExchange(ctx)
		if err == nil {
			err = stream.Send(&flight.FlightData{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	v.await("all calls are there", func(TableView) bool {
		return v.service.calls.all.used.Load() == calls*callOverhead
	})
	if each := (inUse() - before) / calls; each > callOverhead {
		t.Errorf("a call holds %d bytes, and is charged %d", each, callOverhead)
	}
}
