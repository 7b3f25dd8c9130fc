package client

import (
	"reflect"
	"slices"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// joinStatistics sums statistics; those of parts that are down are nil. What is a setting or an age is that of a part.
// The ages of parts are averaged by their units, ESS by their tokens.
func joinStatistics(name string, parts []*wire.TableStatistics) *wire.TableStatistics {
	s := new(wire.TableStatistics)
	infos := make([]wire.TableInfo, len(parts))
	for i, p := range parts {
		if p == nil {
			s.Down = append(s.Down, i)
			continue
		}
		infos[i] = p.TableInfo
		never := s.NeverUsedShare + p.NeverUsedShare*float64(p.Present)
		ages, ess := joinAges(s.Ages, p.Ages), joinESS(s.ESSByAge, p.ESSByAge)
		sum(reflect.ValueOf(s).Elem(), reflect.ValueOf(p).Elem())
		s.NeverUsedShare, s.AgeDecay, s.Ages, s.ESSByAge = never, p.AgeDecay, ages, ess
		if p.Limiter != nil {
			s.Limiter.SamplesPerInsert = p.Limiter.SamplesPerInsert
		}
		if p.Gate != nil {
			s.Gate.MaxStaleness = p.Gate.MaxStaleness
		}
		if p.Journal != nil {
			s.Journal.VerifiedAge = p.Journal.VerifiedAge
		}
	}
	s.TableInfo = joinInfo(name, infos)
	s.NeverUsedShare /= float64(max(s.Present, 1))
	units := 0
	for _, a := range s.Ages {
		units += a.Units
	}
	for i := range s.Ages {
		s.Ages[i].Probability /= float64(max(units, 1)) // joinAges summed them times units
	}
	return s
}

// sum adds the numbers of a struct to those of another, whatever is in it: histograms are merged, of bools one that is
// true counts, of texts the first. Lists stay as they are.
func sum(into, from reflect.Value) {
	switch into.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		into.SetInt(into.Int() + from.Int())
	case reflect.Uint64:
		into.SetUint(into.Uint() + from.Uint())
	case reflect.Float64:
		into.SetFloat(into.Float() + from.Float())
	case reflect.Bool:
		into.SetBool(into.Bool() || from.Bool())
	case reflect.String:
		if into.Len() == 0 {
			into.SetString(from.String())
		}
	case reflect.Map: // counts
		if into.IsNil() {
			into.Set(reflect.MakeMap(into.Type()))
		}
		for key, n := range from.Seq2() {
			total := reflect.New(n.Type()).Elem()
			if before := into.MapIndex(key); before.IsValid() {
				total.Set(before)
			}
			sum(total, n)
			into.SetMapIndex(key, total)
		}
	case reflect.Pointer:
		if from.IsNil() {
			return
		}
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		sum(into.Elem(), from.Elem())
	case reflect.Struct:
		if h, ok := into.Addr().Interface().(*rollout.Histogram); ok {
			other := from.Interface().(rollout.Histogram)
			h.Merge(&other)
			return
		}
		for i := range into.NumField() {
			sum(into.Field(i), from.Field(i))
		}
	}
}

func joinAges(sum, of []wire.AgeShare) []wire.AgeShare {
	units := 0
	for _, a := range of {
		units += a.Units
	}
	for _, a := range of {
		i, known := slices.BinarySearchFunc(sum, a.Age, func(x wire.AgeShare, age int) int { return x.Age - age })
		if !known {
			sum = slices.Insert(sum, i, wire.AgeShare{Age: a.Age})
		}
		w := &sum[i]
		w.Units += a.Units
		w.Base += (a.Base - w.Base) * float64(a.Units) / float64(max(w.Units, 1))
		w.Probability += a.Probability * float64(units)
	}
	return sum
}

func joinESS(sum, of []wire.AgeESS) []wire.AgeESS {
	for _, e := range of {
		i, known := slices.BinarySearchFunc(sum, e.First, func(x wire.AgeESS, age int) int { return x.First - age })
		if !known {
			sum = slices.Insert(sum, i, e)
			continue
		}
		w := &sum[i]
		w.ESS = (w.ESS*w.Tokens + e.ESS*e.Tokens) / max(w.Tokens+e.Tokens, 1)
		w.Tokens += e.Tokens
	}
	return sum
}
