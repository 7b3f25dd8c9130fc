package results

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Scalar is a number of a line under the name that other programs' charts give it.
type Scalar struct {
	Name  string // group/key: train/loss
	Value float64
}

// Scalars returns all numbers of the line that were measured, each as group/key with the key of metrics.jsonl, in the
// order of the fields. The update's number is not among them.
func (u Update) Scalars() []Scalar { return scalars("train", u) }

// Scalars returns all numbers of the line that were measured, each as eval/key with the key of eval.jsonl, pass@k as
// eval/pass_at_k. The update's number is not among them.
func (e Eval) Scalars() []Scalar { return scalars("eval", e) }

// scalars lists the numbers of a struct by the json tags of its fields, in their group or the standard one.
func scalars(standard string, line any) (list []Scalar) {
	v := reflect.ValueOf(line)
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key, _, _ := strings.Cut(tag.Get("json"), ",")
		group := cmp.Or(tag.Get("group"), standard) + "/"
		add := func(key string, n Number) {
			if n.Known() {
				list = append(list, Scalar{group + key, n.Float()})
			}
		}
		if key == "update" {
			continue
		}
		switch x := v.Field(i).Interface().(type) {
		case int:
			add(key, Num(float64(x)))
		case uint64:
			add(key, Num(float64(x)))
		case float64:
			add(key, Num(x))
		case Number:
			add(key, x)
		case map[string]Number:
			for _, name := range slices.Sorted(maps.Keys(x)) {
				add(name, x[name])
			}
		case *Mismatch:
			if x != nil {
				list = append(list, scalars(cmp.Or(tag.Get("group"), standard), *x)...)
			}
		case []PassRate:
			for _, p := range x {
				add(fmt.Sprintf("%s_%d", key, p.K), Num(p.Rate))
			}
		case Solved: // which problems, not how many
		default:
			panic(fmt.Sprintf("results: no scalar is made of %s", v.Type().Field(i).Name))
		}
	}
	return list
}
