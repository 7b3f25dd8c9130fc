package flightdata

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec leaves all messages but ours to the one for protocol buffers, and has its name.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*outgoing); ok {
		return m.marshal()
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(b mem.BufferSlice, v any) error {
	if m, ok := v.(*incoming); ok {
		m.unmarshal(b)
		return nil
	}
	return c.CodecV2.Unmarshal(b, v)
}

// ServerOption lets a server's streams take what a [Writer] sends and give what a [Reader] wants.
func ServerOption() grpc.ServerOption { return grpc.ForceServerCodecV2(newCodec()) }

// CallOption does so for the calls of a client, as in grpc.WithDefaultCallOptions(flightdata.CallOption()).
func CallOption() grpc.CallOption { return grpc.ForceCodecV2(newCodec()) }
