package run

import (
	"bytes"
	"encoding/gob"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/rollout"
)

// stateOf returns a state with four tensors of n values for each list of tensors.
func stateOf(n int) *saved {
	list := func(first float32) [][]float32 {
		tensors := make([][]float32, 4)
		for i := range tensors {
			tensors[i] = make([]float32, n)
			for j := range tensors[i] {
				tensors[i][j] = first + float32(i*n+j)/7
			}
		}
		return tensors
	}
	return &saved{Learner: policy.LearnerState{Version: 5, Step: 9, First: list(-1), Second: list(0), Reference: list(3)},
		Past: []past{{2, list(2)}, {4, list(4)}}}
}

// largestWrite notes the size of the largest write.
type largestWrite struct {
	bytes.Buffer
	size int
}

func (w *largestWrite) Write(p []byte) (int, error) {
	w.size = max(w.size, len(p))
	return w.Buffer.Write(p)
}

func TestAStateIsWrittenTensorByTensorAndReadsBack(t *testing.T) {
	const values = 1000
	var file largestWrite
	if err := stateOf(values).encode(gob.NewEncoder(&file)); err != nil {
		t.Fatal(err)
	}
	if file.size > 6*values {
		t.Errorf("%d bytes are written at once, of tensors of %d", file.size, 4*values)
	}
	whole := file.Bytes()
	var got saved
	if err := got.decode(gob.NewDecoder(bytes.NewReader(whole))); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, stateOf(values)) {
		t.Error("the state reads back otherwise")
	}
	place := t.TempDir()
	for _, n := range []int{len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(filepath.Join(place, stateFile), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readState(place)
		if err == nil || !strings.Contains(err.Error(), "tensor") || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%d bytes of %d: %v", n, len(whole), err)
		}
	}
}

func TestAStateOfAnEarlierBuildIsRead(t *testing.T) {
	var file bytes.Buffer
	before := stateOf(3)
	before.Older = make(map[rollout.Version][][]float32)
	for _, p := range before.Past {
		before.Older[p.Version] = p.Tensors
	}
	before.Past = nil
	if err := gob.NewEncoder(&file).Encode(before); err != nil {
		t.Fatal(err)
	}
	var got saved
	if err := got.decode(gob.NewDecoder(&file)); err != nil || !reflect.DeepEqual(&got, stateOf(3)) {
		t.Errorf("read %+v, error %v", got, err)
	}
}
