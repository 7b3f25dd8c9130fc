package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
)

// reader walks the pages of a file.
type reader struct {
	f    io.ReaderAt
	size int64
	meta meta
	sums sums

	mu     sync.Mutex
	used   []uint64 // a bit for each page that was met
	damage []Damage
	more   int // damages beyond mostDamages
	lost   []lostRange
}

// mostDamages is how many are named; all are counted.
const mostDamages = 1000

// lostRange is the keys of a bucket below a page that could not be read: from low, below high; nil: no bound.
type lostRange struct {
	bucket    string
	low, high []byte
}

func newReader(f io.ReaderAt, size int64) (*reader, error) {
	m, damage, err := readMetas(f, size)
	r := &reader{f: f, size: size, meta: m, sums: newSums(), damage: damage}
	if err != nil {
		return r, err
	}
	pages := uint64(size) / uint64(m.pageSize)
	r.used = make([]uint64, pages/64+1)
	if uint64(m.high) > pages {
		r.report(Damage{Page: pages, What: fmt.Sprintf("the file is cut short: it has %d pages of %d bytes, %d are in use", pages, m.pageSize, m.high)})
	}
	r.claim(0, 2)
	return r, nil
}

func (r *reader) report(d Damage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.damage) >= mostDamages {
		r.more++
		return
	}
	r.damage = append(r.damage, d)
}

// lose reports a page that leads to what can not be read.
func (r *reader) lose(bucket string, s span, format string, args ...any) {
	r.report(Damage{Page: uint64(s.page), Bucket: bucket, What: fmt.Sprintf(format, args...)})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, lostRange{bucket, s.low, s.high})
}

// claim marks n pages as met. It tells whether none was before and all are in the file.
func (r *reader) claim(first pageID, n uint64) bool {
	pages := uint64(r.size) / uint64(r.meta.pageSize)
	if uint64(first) >= pages || n > pages-uint64(first) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := uint64(first); p < uint64(first)+n; p++ {
		if r.used[p/64]&(1<<(p%64)) != 0 {
			return false
		}
	}
	for p := uint64(first); p < uint64(first)+n; p++ {
		r.used[p/64] |= 1 << (p % 64)
	}
	return true
}

// span is a page that a branch leads to, with the bounds of its keys; nil: no bound.
type span struct {
	page      pageID
	low, high []byte
	root      bool
}

// leadsTo tells whether a key lies within the bounds.
func (s *span) leadsTo(key []byte) bool {
	return (s.low == nil || bytes.Compare(key, s.low) >= 0) && (s.high == nil || bytes.Compare(key, s.high) < 0)
}

// Reads take neighbouring pages together, up to runBytes and over gaps of up to gapBytes.
const (
	runBytes = 4 << 20
	gapBytes = 256 << 10
)

// run is neighbouring pages, read at once.
type run struct {
	spans []span // in order of pages
	at    int64
	b     []byte
}

// walk visits the leaves of a bucket's tree, level by level, each level in the order of the pages in the file, by as many
// goroutines as can work. Leaf is given the number of the goroutine; entries stand in memory that is used again.
func (r *reader) walk(bucket string, root pageID, leaf func(worker int, id pageID, entries []element)) {
	level := []span{{page: root, root: true}}
	for len(level) > 0 {
		slices.SortFunc(level, func(a, b span) int { return cmp.Compare(a.page, b.page) })
		level = r.walkLevel(bucket, level, leaf)
	}
}

func readers() int { return min(max(runtime.GOMAXPROCS(0), 1), 8) }

func (r *reader) walkLevel(bucket string, level []span, leaf func(int, pageID, []element)) []span {
	var mu sync.Mutex
	var below []span
	var wg sync.WaitGroup
	runs, buffers := make(chan run), make(chan []byte, readers()+1)
	for range cap(buffers) {
		buffers <- nil
	}
	for worker := range readers() {
		wg.Go(func() {
			var list []element
			for rn := range runs {
				for _, s := range rn.spans {
					var children []span
					children, list = r.visit(bucket, s, rn, list, func(id pageID, es []element) { leaf(worker, id, es) })
					if len(children) > 0 {
						mu.Lock()
						below = append(below, children...)
						mu.Unlock()
					}
				}
				buffers <- rn.b
			}
		})
	}
	for len(level) > 0 {
		var rn run
		rn, level = r.nextRun(level, <-buffers)
		runs <- rn
	}
	close(runs)
	wg.Wait()
	return below
}

// nextRun reads the next neighbouring pages. Those that cannot be read are short in its memory.
func (r *reader) nextRun(level []span, buffer []byte) (run, []span) {
	size := int64(r.meta.pageSize)
	at := func(s span) int64 { return int64(min(uint64(s.page), uint64(r.size)/uint64(size))) * size }
	first := at(level[0])
	n := 1
	for n < len(level) && at(level[n])-at(level[n-1]) <= gapBytes && at(level[n])+size-first <= runBytes {
		n++
	}
	length := int(min(at(level[n-1])+size, r.size) - first)
	buffer = slices.Grow(buffer[:0], length)[:length]
	got, _ := r.f.ReadAt(buffer, first)
	return run{level[:n], first, buffer[:got]}, level[n:]
}

// visit checks a page, and either hands its leaf out or returns its children.
func (r *reader) visit(bucket string, s span, rn run, list []element, leaf func(pageID, []element)) ([]span, []element) {
	p, err := r.pageOf(s, rn)
	if err != nil {
		r.lose(bucket, s, "%v", err)
		return nil, list
	}
	list, err = p.elements(list)
	if err == nil {
		err = inOrder(list, s, p.flags() == branchPage)
	}
	if err != nil {
		r.lose(bucket, s, "%v", err)
	}
	if p.flags() == leafPage {
		if err != nil { // it may be another page than the one that should be there
			list = slices.DeleteFunc(list, func(e element) bool { return !s.leadsTo(e.key) })
		}
		leaf(s.page, list)
		return nil, list
	}
	if err != nil {
		return nil, list
	}
	return childrenOf(list, s), list
}

// pageOf returns a page that is what its header must be, with the pages that belong to it.
func (r *reader) pageOf(s span, rn run) (page, error) {
	size := r.meta.pageSize
	if s.page >= r.meta.high || s.page < 2 {
		return page{}, fmt.Errorf("it is none of the pages 2 to %d in use", r.meta.high)
	}
	offset := int64(s.page) * int64(size)
	if offset-rn.at+int64(size) > int64(len(rn.b)) {
		return page{}, fmt.Errorf("it is not in the file, or can not be read")
	}
	b := rn.b[offset-rn.at:]
	if id := pageID(binary.NativeEndian.Uint64(b)); id != s.page {
		return page{}, fmt.Errorf("its header says page %d", id)
	}
	if p := (page{s.page, b}); p.flags() != branchPage && p.flags() != leafPage {
		return page{}, fmt.Errorf("its flags are %#x, neither a branch nor a leaf", p.flags())
	}
	n := overflow(b) + 1
	if !r.claim(s.page, n) {
		return page{}, fmt.Errorf("its %d pages are in use elsewhere, or not all in the file", n)
	}
	length := int64(n) * int64(size)
	if length <= int64(len(b)) {
		return page{s.page, b[:length]}, nil
	}
	b = make([]byte, length)
	if got, err := r.f.ReadAt(b, offset); got < len(b) {
		return page{}, fmt.Errorf("reading its %d pages: %w", n, err)
	}
	return page{s.page, b}, nil
}

// inOrder checks that keys ascend within their bounds. What stands before the first key of a branch belongs to its first child.
func inOrder(list []element, s span, branch bool) error {
	if len(list) == 0 && (branch || !s.root) {
		return fmt.Errorf("it has no entries")
	}
	for i, e := range list {
		switch {
		case i > 0 && bytes.Compare(list[i-1].key, e.key) >= 0:
			return fmt.Errorf("key %x of entry %d does not follow %x", e.key, i, list[i-1].key)
		case !s.leadsTo(e.key):
			return fmt.Errorf("key %x of entry %d is not from %x to %x, which lead there", e.key, i, s.low, s.high)
		case branch && e.child < 2:
			return fmt.Errorf("entry %d leads to page %d", i, e.child)
		}
	}
	return nil
}

// childrenOf returns what a branch leads to. Keys are copied: the page's memory is used again.
func childrenOf(list []element, s span) []span {
	children := make([]span, len(list))
	for i, e := range list {
		children[i].page = e.child
		children[i].low, children[i].high = s.low, s.high
		if i > 0 {
			children[i].low = bytes.Clone(e.key)
			children[i-1].high = children[i].low
		}
	}
	return children
}
