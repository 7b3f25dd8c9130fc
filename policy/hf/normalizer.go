package hf

import (
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites a text before it is divided.
type normalizer func(string) string

func (j *stageJSON) normalizer() (normalizer, error) {
	if j == nil {
		return func(s string) string { return s }, nil
	}
	switch j.Type {
	case "Sequence":
		var steps []normalizer
		for i := range j.Normalizers {
			n, err := j.Normalizers[i].normalizer()
			if err != nil {
				return nil, err
			}
			steps = append(steps, n)
		}
		return func(s string) string {
			for _, n := range steps {
				s = n(s)
			}
			return s
		}, nil
	case "Prepend":
		return func(s string) string {
			if s == "" {
				return s
			}
			return j.Prepend + s
		}, nil
	case "Replace":
		if j.Pattern.String == "" {
			return nil, fmt.Errorf("normalizer Replace has pattern %+v: want a String", j.Pattern)
		}
		return func(s string) string { return strings.ReplaceAll(s, j.Pattern.String, j.Content) }, nil
	case "NFC":
		return norm.NFC.String, nil
	case "NFD":
		return norm.NFD.String, nil
	case "NFKC":
		return norm.NFKC.String, nil
	case "NFKD":
		return norm.NFKD.String, nil
	case "Lowercase":
		// The one letter whose full lower case, which the library uses, is longer than Go's.
		dotted := strings.NewReplacer("\u0130", "i\u0307")
		return func(s string) string { return strings.ToLower(dotted.Replace(s)) }, nil
	}
	return nil, fmt.Errorf("normalizer type is %q: want Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD or Lowercase", j.Type)
}
