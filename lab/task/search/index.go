package search

import (
	"cmp"
	"math"
	"slices"
)

// The constants of BM25, as in most search engines.
const (
	saturation = 1.2  // k1
	lengthNorm = 0.75 // b
)

// passageIndex ranks passages by BM25. It is safe for concurrent use.
type passageIndex struct {
	analyze  analyzer
	postings map[string][]posting // of each term, by ascending passage
	lengths  []float64            // of the passages, in terms
	mean     float64              // of lengths
}

// posting is how often a passage has a term.
type posting struct{ passage, count int32 }

// hit is a passage that has a term of the query.
type hit struct {
	passage int // its number
	score   float64
}

// newIndex indexes passages, which are numbered from 0.
func newIndex(passages []string, analyze analyzer) *passageIndex {
	x := &passageIndex{analyze: analyze, postings: make(map[string][]posting)}
	for i, p := range passages {
		terms := analyze(p)
		for _, term := range terms {
			list := x.postings[term]
			if n := len(list); n > 0 && list[n-1].passage == int32(i) {
				list[n-1].count++
				continue
			}
			x.postings[term] = append(list, posting{int32(i), 1})
		}
		n := float64(len(terms))
		x.lengths = append(x.lengths, n)
		x.mean += n / float64(len(passages))
	}
	return x
}

// terms returns the terms of a text, each once, in the order of their first occurrence.
func (x *passageIndex) terms(text string) []string {
	var terms []string
	for _, term := range x.analyze(text) {
		if !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return terms
}

// search returns at most k passages that match the query best, best first; among equals the first passage comes first.
// The score of a passage of length L is the sum over the query's distinct terms of
//
//	ln(1 + (N-n+1/2) / (n+1/2)) * f (k1+1) / (f + k1 (1-b + b L/mean L))
//
// with N passages, n of them with the term, f times in this one, k1 = 1.2 and b = 0.75 (Robertson and Zaragoza 2009,
// with the one in the logarithm that keeps it positive).
func (x *passageIndex) search(query string, k int) []hit {
	scores := map[int]float64{}
	for _, term := range x.terms(query) {
		found := x.postings[term]
		n, all := float64(len(found)), float64(len(x.lengths))
		rarity := math.Log(1 + (all-n+0.5)/(n+0.5))
		for _, p := range found {
			f := float64(p.count)
			scores[int(p.passage)] += rarity * f * (saturation + 1) / (f +
				saturation*(1-lengthNorm+lengthNorm*x.lengths[p.passage]/x.mean))
		}
	}
	hits := make([]hit, 0, len(scores))
	for passage, score := range scores {
		hits = append(hits, hit{passage, score})
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.passage, b.passage))
	})
	return hits[:min(k, len(hits))]
}
