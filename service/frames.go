package service

// dataFrames counts the payload of the DATA frames of HTTP/2 in the bytes of a client, in whatever pieces they come
// (RFC 9113, section 4.1): all that gRPC keeps until a call takes it.
type dataFrames struct {
	skip   int // bytes before the next header: the preface, a frame's payload
	header [9]byte
	have   int // bytes of header
}

const (
	prefaceBytes = 24
	dataFrame    = 0
	prefixBytes  = 5 // before a gRPC message, in its frames
)

// count returns the bytes of the payloads whose headers end in b.
func (f *dataFrames) count(b []byte) (payload int64) {
	for {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		n = copy(f.header[f.have:], b)
		f.have += n
		if f.have < len(f.header) {
			return payload
		}
		b = b[n:]
		f.have = 0
		f.skip = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		if f.header[3] == dataFrame {
			payload += int64(f.skip)
		}
	}
}
