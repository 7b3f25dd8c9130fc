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
	"github.com/blevesearch/bleve/v2/mapping"
	index "github.com/blevesearch/bleve_index_api"
)

// Analyzers: how passages and queries become terms.
const (
	Plain   = simple.Name     // runs of letters, in lower case
	English = en.AnalyzerName // words in lower case, without stop words and possessive 's, stemmed after Porter
)

// The constants of BM25, as most search engines set them.
const (
	saturation = 1.2  // k1
	lengthNorm = 0.75 // b
)

// field is the only field of the documents.
const field = "text"

// Index ranks passages by BM25. It is safe for concurrent use.
//
// The inverted index is bleve's, in memory. The scores are computed here from its postings: bleve's own BM25 takes the
// square root of term frequencies, counts a term's rarity twice and favours passages with more of the terms, and the order
// in which it adds scores up depends on where its goroutines put the passages. Here the sum is the textbook's, in the order
// of the query's terms, so that it is the same however the index is laid out.
type Index struct {
	analyzer analysis.Analyzer
	reader   index.IndexReader
	numbers  map[string]int // of the passages, by the ids inside the index
	lengths  []float64      // of the passages, in terms
	mean     float64        // of lengths
}

// Hit is a passage that has a term of the query.
type Hit struct {
	Passage int // its number
	Score   float64
}

// NewIndex makes the index of passages, which are numbered from 0, with one of the analyzers.
func NewIndex(passages []string, analyzer string) (*Index, error) {
	const batch = 4096 // passages: they are analysed at once and held twice meanwhile
	return newIndex(passages, analyzer, batch)
}

func newIndex(passages []string, analyzer string, batch int) (*Index, error) {
	fields, err := textMapping(analyzer)
	if err != nil {
		return nil, err
	}
	// Given no path it stays in memory, and without a merger: one goroutine waits for further passages.
	built, err := bleve.NewUsing("", fields, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, err
	}
	x := &Index{analyzer: fields.AnalyzerNamed(analyzer)}
	if err := x.fill(built, passages, batch); err != nil {
		return nil, fmt.Errorf("index %d passages: %w", len(passages), errors.Join(err, built.Close()))
	}
	// A task has no end at which it could close what it searches.
	runtime.AddCleanup(x, func(of opened) { of.reader.Close(); of.built.Close() }, opened{x.reader, built})
	return x, nil
}

// opened is what an Index leaves behind.
type opened struct {
	reader index.IndexReader
	built  bleve.Index
}

// textMapping is documents of one field, of which nothing but the terms and their frequencies are kept.
func textMapping(analyzer string) (*mapping.IndexMappingImpl, error) {
	m := bleve.NewIndexMapping()
	if m.AnalyzerNamed(analyzer) == nil {
		return nil, fmt.Errorf("analyzer %q: want %s or %s", analyzer, Plain, English)
	}
	text := bleve.NewTextFieldMapping()
	text.Analyzer = analyzer
	text.Store, text.IncludeTermVectors, text.IncludeInAll, text.DocValues = false, false, false, false
	m.DefaultMapping = bleve.NewDocumentStaticMapping()
	m.DefaultMapping.AddFieldMappingsAt(field, text)
	return m, nil
}

// fill puts the passages into the index and opens it for reading.
func (x *Index) fill(built bleve.Index, passages []string, batch int) error {
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

// number finds which passage each id inside the index stands for.
func (x *Index) number() error {
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

// Terms returns the terms of a text, each once, in the order of their first occurrence.
func (x *Index) Terms(text string) []string {
	var terms []string
	for _, token := range x.analyzer.Analyze([]byte(text)) {
		if term := string(token.Term); !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return terms
}

// Search returns the at most k passages that match the query best, the best first, and of equals the first. The score of a
// passage of length L is the sum over the query's different terms of
//
//	ln(1 + (N-n+1/2) / (n+1/2)) * f (k1+1) / (f + k1 (1-b + b L/mean L))
//
// with N passages, n of them with the term, f times in this one, k1 = 1.2 and b = 0.75 (Robertson and Zaragoza 2009, with
// the one in the logarithm that keeps it positive).
func (x *Index) Search(query string, k int) ([]Hit, error) {
	defer runtime.KeepAlive(x) // its cleanup closes the reader
	scores := map[int]float64{}
	for _, term := range x.Terms(query) {
		if err := x.add(scores, term); err != nil {
			return nil, fmt.Errorf("look %q up: %w", term, err)
		}
	}
	hits := make([]Hit, 0, len(scores))
	for passage, score := range scores {
		hits = append(hits, Hit{passage, score})
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Passage, b.Passage))
	})
	return hits[:min(k, len(hits))], nil
}

// add adds what a term contributes to the score of each passage that has it.
func (x *Index) add(scores map[int]float64, term string) error {
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
		scores[passage] += rarity * f * (saturation + 1) / (f + saturation*(1-lengthNorm+lengthNorm*x.lengths[passage]/x.mean))
	}
}
