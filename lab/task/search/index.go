package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/simple"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	index "github.com/blevesearch/bleve_index_api"
)

// Analyzers turn passages and queries into terms.
const (
	plain   = simple.Name     // runs of letters, in lower case
	english = en.AnalyzerName // words in lower case, without stop words and possessive 's, with Porter stemming
)

// The constants of BM25, as in most search engines.
const (
	saturation = 1.2  // k1
	lengthNorm = 0.75 // b
)

// field is the only field of the documents.
const field = "text"

// indexBatch is how many passages are analysed at once; meanwhile they are in memory twice.
const indexBatch = 4096

// passageIndex ranks passages by BM25. It is safe for concurrent use.
//
// The inverted index is bleve's, in memory. The scores are computed here from its postings, because bleve's own BM25
// takes the square root of term frequencies, counts a term's rarity twice, and adds scores in an order that depends on
// its goroutines. Here the sum is the textbook's, in the order of the query's terms.
type passageIndex struct {
	analyzer analysis.Analyzer
	reader   index.IndexReader
	numbers  map[string]int // of the passages, by their ids inside the index
	lengths  []float64      // of the passages, in terms
	mean     float64        // of lengths
}

// hit is a passage that has a term of the query.
type hit struct {
	passage int // its number
	score   float64
}

// newIndex indexes passages, which are numbered from 0, with one of the analyzers.
func newIndex(passages []string, analyzer string, batch int) (*passageIndex, error) {
	m := bleve.NewIndexMapping()
	if m.AnalyzerNamed(analyzer) == nil {
		return nil, fmt.Errorf("analyzer %q: want %s or %s", analyzer, plain, english)
	}
	text := bleve.NewTextFieldMapping() // keeps nothing but terms and their frequencies
	text.Analyzer = analyzer
	text.Store, text.IncludeTermVectors, text.IncludeInAll, text.DocValues = false, false, false, false
	m.DefaultMapping = bleve.NewDocumentStaticMapping()
	m.DefaultMapping.AddFieldMappingsAt(field, text)
	// Without a path it stays in memory, and has no merger: one goroutine waits for further passages.
	built, err := bleve.NewUsing("", m, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, err
	}
	x := &passageIndex{analyzer: m.AnalyzerNamed(analyzer)}
	if err := x.fill(built, passages, batch); err != nil {
		return nil, fmt.Errorf("index %d passages: %w", len(passages), errors.Join(err, built.Close()))
	}
	// A task is never closed, so the index is closed when nobody uses it any more.
	type opened struct {
		reader index.IndexReader
		built  bleve.Index
	}
	runtime.AddCleanup(x, func(o opened) { o.reader.Close(); o.built.Close() }, opened{x.reader, built})
	return x, nil
}

// fill adds the passages to the index and opens it for reading.
func (x *passageIndex) fill(built bleve.Index, passages []string, batch int) error {
	first := 0
	for some := range slices.Chunk(passages, batch) {
		b := built.NewBatch()
		for i, p := range some {
			if err := b.Index(strconv.Itoa(first+i), map[string]any{field: p}); err != nil {
				return err
			}
			n := float64(len(x.analyzer.Analyze([]byte(p))))
			x.lengths = append(x.lengths, n)
			x.mean += n / float64(len(passages))
		}
		if err := built.Batch(b); err != nil {
			return err
		}
		first += len(some)
	}
	advanced, err := built.Advanced()
	if err != nil {
		return err
	}
	if x.reader, err = advanced.Reader(); err != nil {
		return err
	}
	return x.number()
}

// number finds the passage of each id inside the index.
func (x *passageIndex) number() error {
	x.numbers = make(map[string]int, len(x.lengths))
	ids, err := x.reader.DocIDReaderAll()
	if err != nil {
		return err
	}
	defer ids.Close()
	for {
		id, err := ids.Next()
		if err != nil || id == nil {
			return err
		}
		name, err := x.reader.ExternalID(id)
		if err != nil {
			return err
		}
		if x.numbers[string(id)], err = strconv.Atoi(name); err != nil {
			return err
		}
	}
}

// terms returns the terms of a text, each once, in the order of their first occurrence.
func (x *passageIndex) terms(text string) []string {
	var terms []string
	for _, token := range x.analyzer.Analyze([]byte(text)) {
		if term := string(token.Term); !slices.Contains(terms, term) {
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
func (x *passageIndex) search(query string, k int) ([]hit, error) {
	defer runtime.KeepAlive(x) // its cleanup closes the reader
	scores := map[int]float64{}
	for _, term := range x.terms(query) {
		if err := x.add(scores, term); err != nil {
			return nil, fmt.Errorf("look %q up: %w", term, err)
		}
	}
	hits := make([]hit, 0, len(scores))
	for passage, score := range scores {
		hits = append(hits, hit{passage, score})
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.passage, b.passage))
	})
	return hits[:min(k, len(hits))], nil
}

// add adds a term's contribution to the score of each passage that has it.
func (x *passageIndex) add(scores map[int]float64, term string) error {
	postings, err := x.reader.TermFieldReader(context.Background(), []byte(term), field, true, false, false)
	if err != nil {
		return err
	}
	defer postings.Close()
	n, all := float64(postings.Count()), float64(len(x.lengths))
	rarity := math.Log(1 + (all-n+0.5)/(n+0.5))
	var into index.TermFieldDoc
	for {
		at, err := postings.Next(into.Reset())
		if err != nil || at == nil {
			return err
		}
		passage := x.numbers[string(at.ID)]
		f := float64(at.Freq)
		scores[passage] += rarity * f * (saturation + 1) / (f +
			saturation*(1-lengthNorm+lengthNorm*x.lengths[passage]/x.mean))
	}
}
