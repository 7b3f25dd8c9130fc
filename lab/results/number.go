package results

import (
	"encoding/json"
	"math"
	"strconv"
)

// Number is a finite float64, or none: the zero value means "not measured". None is null in JSON, which has no NaN and
// no infinity.
type Number struct {
	value float64
	known bool
}

// Num returns v as a Number, none if v is NaN or infinite.
func Num(v float64) Number {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Number{}
	}
	return Number{v, true}
}

// Named returns the entry of a map of measurements, none if the name is not in it.
func Named(measured map[string]float64, name string) Number {
	v, ok := measured[name]
	if !ok {
		return Number{}
	}
	return Num(v)
}

// Known reports whether there is a value.
func (n Number) Known() bool { return n.known }

// Float returns the value, NaN if there is none.
func (n Number) Float() float64 {
	if !n.known {
		return math.NaN()
	}
	return n.value
}

// String writes four significant digits, or none.
func (n Number) String() string {
	if !n.known {
		return "none"
	}
	return strconv.FormatFloat(n.value, 'g', 4, 64)
}

// MarshalJSON writes the shortest decimal that reads back as the same float64, or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.known {
		return []byte("null"), nil
	}
	return json.Marshal(n.value)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Number) UnmarshalJSON(text []byte) error {
	var v *float64
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	*n = Number{}
	if v != nil {
		*n = Num(*v)
	}
	return nil
}
