package search

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-rl/reprise/rollout"
)

// Worked by hand: four passages of 3, 1, 2 and 2 terms, mean 2. "red" is in two of them, ln(1 + 2.5/2.5) = ln 2, and
// "fox" in two. Twice in three terms it weighs 2 (2.2) / (2 + 1.2 (0.25 + 0.75 3/2)) = 4.4/3.65; once in one term 2.2 /
// (1 + 1.2 (0.25 + 0.375)) = 2.2/1.75; once in two 2.2/2.2 = 1; once in three 2.2 / (1 + 1.65) = 2.2/2.65.
func TestRankingIsBM25WorkedByHand(t *testing.T) {
	x := newIndex([]string{"Red fox, red!", "red", "blue fox", "grey owl"}, plain)
	for _, c := range []struct {
		query string
		want  []hit
	}{
		{"red", []hit{{1, math.Ln2 * 2.2 / 1.75}, {0, math.Ln2 * 4.4 / 3.65}}},
		{"fox", []hit{{2, math.Ln2}, {0, math.Ln2 * 2.2 / 2.65}}},
		{"red fox red", []hit{{0, math.Ln2 * (4.4/3.65 + 2.2/2.65)}, {1, math.Ln2 * 2.2 / 1.75}, {2, math.Ln2}}},
		{"OWL", []hit{{3, math.Log(1 + 3.5/1.5)}}},
		{"cat", nil},
		{"", nil},
		{"!?", nil},
	} {
		got := x.search(c.query, 10)
		if len(got) != len(c.want) {
			t.Errorf("%q: %v, want %v", c.query, got, c.want)
			continue
		}
		for i, h := range got {
			if h.passage != c.want[i].passage || math.Abs(h.score-c.want[i].score) > 1e-12 {
				t.Errorf("%q: %v, want %v", c.query, got, c.want)
			}
		}
		if some := x.search(c.query, 1); len(c.want) > 0 && !reflect.DeepEqual(some, got[:1]) {
			t.Errorf("%q: the best is %v, but of ten %v", c.query, some, got)
		}
	}
}

func TestEqualPassagesAreRankedByNumber(t *testing.T) {
	passages := make([]string, 300)
	for i := range passages {
		passages[i] = fmt.Sprintf("one two three four five six seven eight nine ten eleven twelve %c", 'a'+i%7)
	}
	x := newIndex(passages, plain)
	hits := x.search("twelve eleven ten nine eight seven six five four three two one zero", 300)
	for i, h := range hits {
		if h.passage != i {
			t.Fatalf("passage %d at rank %d", h.passage, i)
		}
	}
	if len(hits) != 300 {
		t.Fatalf("%d hits", len(hits))
	}
}

func TestEnglishIsStemmedWithoutStopWords(t *testing.T) {
	x := newIndex([]string{"The foxes were running", "a dog's life"}, english)
	for query, want := range map[string]int{"fox": 0, "runs": 0, "DOGS": 1, "lives of dogs": 1} {
		if hits := x.search(query, 2); len(hits) != 1 || hits[0].passage != want {
			t.Errorf("%q: %v", query, hits)
		}
	}
	if hits := x.search("the were a", 2); len(hits) != 0 {
		t.Errorf("stop words find %v", hits)
	}
}

// naive is BM25 over lists of words.
func naive(passages []string, query string, k int) []hit {
	var docs [][]string
	total := 0
	for _, p := range passages {
		docs = append(docs, strings.Fields(p))
		total += len(strings.Fields(p))
	}
	mean := float64(total) / float64(len(docs))
	scores := make([]float64, len(docs))
	var asked []string
	for _, term := range strings.Fields(query) {
		if slices.Contains(asked, term) {
			continue
		}
		asked = append(asked, term)
		n := 0.0
		for _, d := range docs {
			if slices.Contains(d, term) {
				n++
			}
		}
		idf := math.Log(1 + (float64(len(docs))-n+0.5)/(n+0.5))
		for i, d := range docs {
			f := 0.0
			for _, w := range d {
				if w == term {
					f++
				}
			}
			scores[i] += idf * f * 2.2 / (f + 1.2*(0.25+0.75*float64(len(d))/mean))
		}
	}
	var hits []hit
	for i, s := range scores {
		if s > 0 {
			hits = append(hits, hit{i, s})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		if math.Abs(a.score-b.score) < 1e-9 {
			return a.passage - b.passage
		}
		if a.score > b.score {
			return -1
		}
		return 1
	})
	return hits[:min(k, len(hits))]
}

func randomText(seed, i uint64, vocabulary, most int) string {
	r := rollout.Stream(seed, "search test text", i)
	var list []string
	for range 1 + r.IntN(most) {
		n := r.IntN(vocabulary)
		list = append(list, strings.Repeat(string(rune('a'+n%26)), 1+r.IntN(1+n/26)))
	}
	return strings.Join(list, " ")
}

func TestRankingsAgreeWithANaiveModel(t *testing.T) {
	for seed := range uint64(4) {
		n := 20 + int(seed)*60
		passages := make([]string, n)
		for i := range passages {
			passages[i] = randomText(seed, uint64(i), 60, 30)
		}
		x := newIndex(passages, plain)
		for i := range uint64(40) {
			query := randomText(seed, 1000+i, 70, 15)
			want := naive(passages, query, 7)
			first := x.search(query, 7)
			if len(first) != len(want) {
				t.Fatalf("seed %d, %q: %v, want %v", seed, query, first, want)
			}
			for k := range want {
				if first[k].passage != want[k].passage || math.Abs(first[k].score-want[k].score) > 1e-9 {
					t.Fatalf("seed %d, %q: %v, want %v", seed, query, first, want)
				}
			}
		}
	}
}

func TestConcurrentQueriesOfTwoBuildsAgree(t *testing.T) {
	facts := facts()
	one, two := newIndex(facts.passages, plain), newIndex(facts.passages, plain)
	queries := make([]string, 200)
	want := make([][]hit, len(queries))
	for i := range queries {
		queries[i] = facts.questions[i*7].Text + " " + facts.passages[i*5]
		want[i] = one.search(queries[i], 5)
	}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range queries {
				at := (i*13 + worker*31) % len(queries)
				got := []*passageIndex{one, two}[worker%2].search(queries[at], 5)
				if !reflect.DeepEqual(got, want[at]) {
					t.Errorf("%q: %v, alone %v", queries[at], got, want[at])
					return
				}
			}
		})
	}
	group.Wait()
}

func FuzzSearchTakesAnyQuery(f *testing.F) {
	x := newIndex([]string{"The quick fox", "jumps ÿ", "日本 語"}, english)
	f.Add("quick \x00\xff fox")
	f.Add("+text:fox* AND (\"jumps\"~2")
	f.Fuzz(func(t *testing.T, query string) {
		for _, h := range x.search(query, 2) {
			if !(h.score > 0) || h.passage < 0 || h.passage > 2 {
				t.Fatalf("%q: %v", query, h)
			}
		}
	})
}

func BenchmarkSearch(b *testing.B) {
	facts := facts()
	x := newIndex(facts.passages, plain)
	i := 0
	for b.Loop() {
		x.search(facts.questions[i%len(facts.questions)].Text, 3)
		i++
	}
}

func BenchmarkBuild(b *testing.B) {
	facts := facts()
	for b.Loop() {
		newIndex(facts.passages, plain)
	}
	b.ReportMetric(float64(len(facts.passages))*float64(b.N)/b.Elapsed().Seconds(), "passages/s")
}
