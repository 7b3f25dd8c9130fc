package sealed

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

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
		"reading the header":            nil,
		"it begins with":                bytes.Repeat([]byte("x"), 100),
		"its format is 2, only 3":       append(append([]byte("testing"), 2), whole[8:]...),
		"it is cut off after 0 of":      whole[:headerLength],
		"it is damaged":                 append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1),
		"it is cut off after 3 of 9223": append(append(bytes.Clone(whole[:8]), 1, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0), 1, 2, 3),
		"decoding: gob":                 seal(t, "a text"),
	} {
		var got int
		err := format.Open(bytes.NewReader(b), &got)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := format.Open(strings.NewReader("something else altogether"), new(int)); !errors.Is(err, rollout.ErrInvalid) {
		t.Errorf("a foreign file gave %v", err)
	}
}
