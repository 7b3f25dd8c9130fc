package rollout

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"reflect"
	"testing"
)

// naiveHistogram is a histogram by definition: counts by value.
type naiveHistogram map[int64]uint64

func TestAHistogramCountsExactly(t *testing.T) {
	random := Stream(7, "histogram", 0)
	var h Histogram
	naive := naiveHistogram{}
	var values []int64
	for range 5000 {
		if len(values) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(values))
			v := values[i]
			values[i] = values[len(values)-1]
			values = values[:len(values)-1]
			if naive[v]--; naive[v] == 0 {
				delete(naive, v)
			}
			h.Remove(v)
			continue
		}
		v := int64(random.IntN(50))
		switch random.IntN(8) {
		case 0, 1:
			v = int64(random.IntN(20 * pageSize)) // pages with gaps between
		case 2:
			v = pagedLimit - 2 + int64(random.IntN(5)) // about where the pages end
		}
		values = append(values, v)
		naive[v]++
		h.Add(v)
	}
	got := naiveHistogram{}
	var sum float64
	var greatest int64
	last := int64(-1)
	for _, b := range h.Bins() {
		if b.Value <= last {
			t.Fatalf("bins are not in ascending order: %d after %d", b.Value, last)
		}
		last = b.Value
		got[b.Value] = b.Count
		if h.Of(b.Value) != b.Count || naive[b.Value+1] != h.Of(b.Value+1) {
			t.Fatalf("value %d is counted %d times, the one after %d times", b.Value, h.Of(b.Value), h.Of(b.Value+1))
		}
		sum += float64(b.Value) * float64(b.Count)
		greatest = max(greatest, b.Value)
	}
	if !reflect.DeepEqual(got, naive) {
		t.Fatal("bins differ from the definition")
	}
	if h.Sum() != sum || h.Count() != uint64(len(values)) || h.Max() != greatest ||
		h.Mean() != sum/float64(len(values)) {
		t.Errorf("sum %v, count %d, max %d, mean %v", h.Sum(), h.Count(), h.Max(), h.Mean())
	}
}

func TestRemovingWhatIsNotCountedPanics(t *testing.T) {
	for _, v := range []int64{-1, 0, 3, pagedLimit + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("removing %d did not panic", v)
				}
			}()
			var h Histogram
			h.Add(1)
			h.Remove(v)
		}()
	}
}

func TestQuantilesAreTheSmallestValuesThatReachTheShare(t *testing.T) {
	var h Histogram
	for _, v := range []int64{1, 1, 2, 5} {
		h.Add(v)
	}
	for q, want := range map[float64]int64{0: 1, 0.5: 1, 0.51: 2, 0.75: 2, 0.76: 5, 1: 5} {
		if got := h.Quantile(q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if (&Histogram{}).Quantile(0.5) != 0 || (&Histogram{}).Max() != 0 {
		t.Error("an empty histogram has values")
	}
}

func TestAHistogramSurvivesJSONAndGob(t *testing.T) {
	var h Histogram
	for _, v := range []int64{0, 3, 3, pagedLimit + 7, 1 << 40} {
		h.Add(v)
	}
	text, err := json.Marshal(h)
	if err != nil || string(text) != "[[0,1],[3,2],[16777223,1],[1099511627776,1]]" {
		t.Fatalf("%s, %v", text, err)
	}
	var fromJSON, fromGob Histogram
	if err := json.Unmarshal(text, &fromJSON); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(&h); err != nil {
		t.Fatal(err)
	}
	if err := gob.NewDecoder(&b).Decode(&fromGob); err != nil {
		t.Fatal(err)
	}
	for _, got := range []*Histogram{&fromJSON, &fromGob} {
		if !reflect.DeepEqual(got.Bins(), h.Bins()) || got.Sum() != h.Sum() || got.Count() != h.Count() {
			t.Errorf("got %v", got.Bins())
		}
	}
	if err := json.Unmarshal([]byte("[[9223372036854775808,1]]"), &fromJSON); err == nil {
		t.Error("a value beyond int64 was accepted")
	}
}

func TestMergingAddsCounts(t *testing.T) {
	var a, b Histogram
	a.Add(1)
	b.Add(1)
	b.Add(pagedLimit)
	a.Merge(&b)
	if want := []Bin{{1, 2}, {pagedLimit, 1}}; !reflect.DeepEqual(a.Bins(), want) {
		t.Errorf("got %v, want %v", a.Bins(), want)
	}
}
