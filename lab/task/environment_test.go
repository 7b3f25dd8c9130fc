package task

import (
	"encoding/json"
	"math"
	"testing"
)

func TestTransitionsAreWrittenByStateAndActionInNumericOrder(t *testing.T) {
	table := Transitions{{{{1, 0, 0, false}}}}
	for range 10 { // state 10 comes after 9, not after 1
		table = append(table, [][]Outcome{{{0.25, 3, -0.5, true}, {0.25, 3, -0.5, true}, {0.5, 0, 1, false}}, {}})
	}
	got, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"0":{"0":[[1,0,0,false]]}`
	for _, state := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
		want += `,"` + state + `":{"0":[[0.25,3,-0.5,true],[0.25,3,-0.5,true],[0.5,0,1,false]],"1":[]}`
	}
	if want += "}"; string(got) != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
}

func TestEmptyTablesAreObjects(t *testing.T) {
	for want, table := range map[string]Transitions{`{}`: {}, `{"0":{}}`: {{}}, `{"0":{"0":[]}}`: {{nil}}} {
		if got, err := json.Marshal(table); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if got, err := json.Marshal(Transitions(nil)); err != nil || string(got) != "{}" {
		t.Errorf("no table: %s, %v", got, err)
	}
}

func TestNumbersOutsideJSONAreAnError(t *testing.T) {
	if _, err := json.Marshal(Transitions{{{{1, 0, math.NaN(), false}}}}); err == nil {
		t.Error("a reward of NaN was written")
	}
}
