package sealed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/reprise-rl/reprise/rollout"
)

var format = Format{Magic: "testing", Version: 3}

func seal(t testing.TB, value any) []byte {
	t.Helper()
	b, err := format.Seal(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// No byte can be changed, and none left out, without notice.
func TestEveryDamageIsFound(t *testing.T) {
	whole := seal(t, "a value of some length")
	for at := range whole {
		b := bytes.Clone(whole)
		b[at] ^= 0x40
		var got string
		if err := format.Open(bytes.NewReader(b), &got); err == nil || got != "" {
			t.Errorf("byte %d changed: got %q, %v", at, got, err)
		}
		if err := format.Open(bytes.NewReader(whole[:at]), &got); err == nil || got != "" {
			t.Errorf("cut off after %d bytes: got %q, %v", at, got, err)
		}
	}
}

func TestNothingIsReadBeyondASnapshot(t *testing.T) {
	r := strings.NewReader(string(seal(t, 7)) + "rest")
	var got int
	if err := format.Open(r, &got); err != nil || got != 7 {
		t.Fatalf("got %d, %v", got, err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "rest" {
		t.Errorf("%q is left", rest)
	}
}

func TestWhatIsNoSnapshotIsToldByKind(t *testing.T) {
	whole := seal(t, 7)
	for want, b := range map[string][]byte{
		"reading the header":       nil,
		"it begins with":           bytes.Repeat([]byte("x"), 100),
		"its format is 2, only 3":  append(append([]byte("testing"), 2), whole[8:]...),
		"it is cut off after 0 of": whole[:headerLength],
		"it is damaged":            append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1),
		"it is cut off after 3 of 9223": append(append(bytes.Clone(whole[:8]), 1, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0),
			1, 2, 3),
		"decoding: gob": seal(t, "a text"),
	} {
		var got int
		err := format.Open(bytes.NewReader(b), &got)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := format.Open(strings.NewReader("something else altogether"), new(int)); !errors.Is(err,
		rollout.ErrInvalid) {
		t.Errorf("a foreign file gave %v", err)
	}
}

// streamed is a snapshot of bytes that come in pieces.
func streamed(t testing.TB, pieces ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := format.NewWriter(&b)
	for _, p := range pieces {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatalf("took %d of %d bytes, %v", n, len(p), err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read returns what a stream holds as far as it is handed out.
func read(r io.Reader) ([]byte, error) {
	in, err := format.NewReader(r)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(in)
	return got, errors.Join(err, in.End())
}

// noise is bytes of which no two chunks are equal.
func noise(n int) []byte {
	b, r := make([]byte, n), rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestAStreamComesBackHoweverItIsCut(t *testing.T) {
	for _, n := range []int{0, 1, 100, chunkLength - 1, chunkLength, chunkLength + 1, 3*chunkLength + 7} {
		whole := noise(n)
		var pieces [][]byte
		for left := whole; len(left) > 0; {
			take := min(len(left), 1+len(left)/3)
			pieces, left = append(pieces, left[:take]), left[take:]
		}
		b := streamed(t, pieces...)
		if !bytes.Equal(b, streamed(t, whole)) {
			t.Errorf("%d bytes: pieces and the whole are written differently", n)
		}
		rest := io.MultiReader(bytes.NewReader(b), strings.NewReader("rest"))
		if got, err := read(iotest.HalfReader(rest)); err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%d bytes: got %d and %v", n, len(got), err)
		}
		if after, _ := io.ReadAll(rest); string(after) != "rest" {
			t.Errorf("%d bytes: %q is left", n, after)
		}
	}
}

func TestEveryDamageOfAStreamIsFoundBeforeItIsHandedOut(t *testing.T) {
	content := noise(chunkLength + 300)
	whole := streamed(t, content)
	for at := 0; at < len(whole); at++ {
		if at == 300 {
			at = chunkLength - 300 // what is between is alike
		}
		b := bytes.Clone(whole)
		b[at] ^= 0x20
		if got, err := read(bytes.NewReader(b)); err == nil || !bytes.HasPrefix(content, got) {
			t.Fatalf("byte %d changed: got %d bytes, %v", at, len(got), err)
		}
		if got, err := read(bytes.NewReader(whole[:at])); err == nil || !bytes.HasPrefix(content, got) {
			t.Fatalf("cut off after %d bytes: got %d bytes, %v", at, len(got), err)
		}
	}
}

func TestChunksOutOfPlaceAreDamage(t *testing.T) {
	whole := streamed(t, noise(3*chunkLength))
	const begin, each = magicLength + 1, chunkHead + chunkLength
	chunk := func(i int) []byte { return whole[begin+i*each:][:each] }
	end := whole[begin+3*each:]
	for name, b := range map[string][]byte{
		"missing":  bytes.Join([][]byte{whole[:begin], chunk(0), chunk(2), end}, nil),
		"doubled":  bytes.Join([][]byte{whole[:begin], chunk(0), chunk(0), chunk(1), chunk(2), end}, nil),
		"swapped":  bytes.Join([][]byte{whole[:begin], chunk(1), chunk(0), chunk(2), end}, nil),
		"end only": bytes.Join([][]byte{whole[:begin], end}, nil),
	} {
		if _, err := read(bytes.NewReader(b)); !errors.Is(err, rollout.ErrInvalid) ||
			!strings.Contains(err.Error(), "it is damaged") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAStreamThatClaimsMuchIsRefusedWithoutRoomForIt(t *testing.T) {
	b := binary.LittleEndian.AppendUint32(append([]byte(format.Magic), format.Version), 1<<32-1)
	b = append(b, 0, 0, 0, 0, 1, 2, 3)
	if _, err := read(bytes.NewReader(b)); !errors.Is(err, rollout.ErrInvalid) ||
		!strings.Contains(err.Error(), "a chunk of 4294967295") {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNoStreamIsToldByKind(t *testing.T) {
	whole := streamed(t, []byte("content"))
	for want, b := range map[string][]byte{
		"reading the header":            nil,
		"it begins with":                []byte("something else altogether"),
		"its format is 2, only 3":       append(append([]byte("testing"), 2), whole[8:]...),
		"it is cut off after 0 bytes":   whole[:12],
		"it is cut off after 7 bytes":   whole[:len(whole)-1],
		"after 0 bytes a checksum is":   append(append(bytes.Clone(whole[:16]), 'C'), whole[17:]...),
		"after 7 bytes a checksum is 0": append(bytes.Clone(whole[:len(whole)-4]), 0, 0, 0, 0),
	} {
		if _, err := read(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	failing := errors.New("the disk is gone")
	if _, err := read(io.MultiReader(bytes.NewReader(whole[:12]), iotest.ErrReader(failing))); !errors.Is(err,
		failing) {
		t.Errorf("a reader's error became %v", err)
	}
}

func TestAStreamThatGoesOnIsToldAtItsEnd(t *testing.T) {
	in, err := format.NewReader(bytes.NewReader(streamed(t, []byte("ab"))))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := in.ReadByte(); c != 'a' || err != nil {
		t.Errorf("read %q, %v", c, err)
	}
	if err := in.End(); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("with a byte left got %v", err)
	}
	if c, err := in.ReadByte(); c != 'b' || err != nil {
		t.Errorf("read %q, %v", c, err)
	}
	if err := in.End(); err != nil {
		t.Error(err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("beyond the end got %v", err)
	}
}

func TestTheVersionIsToldAndNothingIsLost(t *testing.T) {
	whole := streamed(t, []byte("content"))
	version, again, err := Version(bytes.NewReader(whole), format.Magic)
	if version != format.Version || err != nil {
		t.Fatalf("version is %d, %v", version, err)
	}
	if got, err := read(again); string(got) != "content" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, _, err := Version(bytes.NewReader(whole), "another"); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a foreign snapshot gave %v", err)
	}
}

// fullDisk takes a number of Writes, then none.
type fullDisk int

func (d *fullDisk) Write(b []byte) (int, error) {
	if *d--; *d < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestAStreamThatCannotBeWrittenSaysSo(t *testing.T) {
	for room := range fullDisk(4) {
		disk := room
		w := format.NewWriter(&disk)
		_, err := w.Write(noise(chunkLength + 1))
		if err := errors.Join(err, w.Close()); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("after %d writes the disk was full, and closing gave %v", room, err)
		}
		if disk != -1 {
			t.Errorf("after %d writes the disk was full, and it was written to again", room)
		}
	}
}

// FuzzStream looks for input that makes reading panic, or that is taken for what no Writer wrote.
func FuzzStream(f *testing.F) {
	f.Add(streamed(f, []byte("content")))
	f.Add(streamed(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := read(bytes.NewReader(b))
		if err != nil {
			return
		}
		if back, err := read(bytes.NewReader(streamed(t, got))); err != nil || !bytes.Equal(back, got) {
			t.Fatalf("%d bytes came back as %d, %v", len(got), len(back), err)
		}
	})
}
