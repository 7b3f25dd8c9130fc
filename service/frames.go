package service

// clientFrames counts the frames of HTTP/2 that matter here in the bytes of a client, in whatever pieces they come (RFC
// 9113, section 4.1): the payload of DATA, all that gRPC keeps until a call takes it, and HEADERS, each of which begins a
// call.
type clientFrames struct {
	skip   int // bytes before the next header: the preface, a frame's payload
	header [9]byte
	have   int // bytes of header
}

const (
	prefaceBytes = 24
	dataFrame    = 0
	headersFrame = 1
	prefixBytes  = 5 // before a gRPC message, in its frames
)

// count returns the bytes of DATA and the number of HEADERS of the frames whose own headers end in b.
func (f *clientFrames) count(b []byte) (data int64, begun int) {
	for {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		n = copy(f.header[f.have:], b)
		f.have += n
		if f.have < len(f.header) {
			return data, begun
		}
		b = b[n:]
		f.have = 0
		f.skip = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		switch f.header[3] {
		case dataFrame:
			data += int64(f.skip)
		case headersFrame:
			begun++
		}
	}
}
