package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/protobuf/proto"

	"github.com/reprise-rl/reprise/wire"
)

// corrupt returns a copy of a message with one to four faults: flipped bits, overwritten bytes, a missing end or piece,
// a piece twice.
func corrupt(random *rand.Rand, message []byte) []byte {
	b := append([]byte(nil), message...)
	for range 1 + random.IntN(4) {
		if len(b) == 0 {
			return noise(random, 1+random.IntN(64))
		}
		at := random.IntN(len(b))
		switch random.IntN(6) {
		case 0, 1:
			b[at] ^= 1 << random.IntN(8)
		case 2:
			copy(b[at:], noise(random, 1+random.IntN(8)))
		case 3:
			b = b[:at]
		case 4:
			end := min(len(b), at+1+random.IntN(64))
			b = append(b[:at], b[end:]...)
		case 5:
			end := min(len(b), at+1+random.IntN(64))
			b = append(b[:end], append(append([]byte(nil), b[at:end]...), b[end:]...)...)
		}
	}
	return b
}

// noise is random bytes.
func noise(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// collector keeps the messages that a writer sends.
type collector struct{ messages []*flight.FlightData }

// Send keeps a message.
func (c *collector) Send(m *flight.FlightData) error {
	c.messages = append(c.messages, proto.Clone(m).(*flight.FlightData))
	return nil
}

// insertion is the messages of a valid insertion, as a stock client sends them.
func insertion(table string, number, count, longest int, compressed bool) ([]*flight.FlightData, error) {
	rec, err := wire.Rows(makeGroups(hostileProducer, number, count, longest, 0), nil)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	options := []ipc.Option{ipc.WithSchema(rec.Schema())}
	if compressed {
		options = append(options, ipc.WithLZ4())
	}
	var c collector
	w := flight.NewRecordWriter(&c, options...)
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{table}})
	if err := w.WriteWithAppMetadata(rec, fmt.Appendf(nil, `{"batch_id":"hostile-%d","timeout_ms":100}`,
		number)); err != nil {
		return nil, err
	}
	return c.messages, w.Close()
}

// hostileProducer is the producer of hostile clients' rollouts.
const hostileProducer = 999

// corruptInsertion encodes an insertion and corrupts it: a field of a message, a whole message, or the order of
// messages.
func corruptInsertion(random *rand.Rand, messages []*flight.FlightData) ([][]byte, error) {
	victim := messages[random.IntN(len(messages))]
	switch random.IntN(4) {
	case 0:
		victim.DataHeader = corrupt(random, victim.DataHeader)
	case 1:
		victim.DataBody = corrupt(random, victim.DataBody)
	case 2:
		victim.AppMetadata = corrupt(random, victim.AppMetadata)
	}
	encoded := make([][]byte, len(messages))
	for i, m := range messages {
		var err error
		if encoded[i], err = proto.Marshal(m); err != nil {
			return nil, err
		}
	}
	switch random.IntN(6) {
	case 0:
		i := random.IntN(len(encoded))
		encoded[i] = corrupt(random, encoded[i])
	case 1:
		random.Shuffle(len(encoded), func(i, j int) { encoded[i], encoded[j] = encoded[j], encoded[i] })
	case 2:
		encoded = append(encoded, encoded[random.IntN(len(encoded))])
	}
	return encoded, nil
}
