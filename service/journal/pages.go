package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"runtime"
	"slices"
	"sync"
)

// This file reads bbolt's file format, version 2, and trusts nothing: whatever the bytes are, it ends, and uses no more
// memory than the file's size justifies. All numbers are in the machine's byte order.
//
//	page     id u64, flags u16, count u16, overflow u32 (pages that follow and belong to it); then its elements
//	meta     magic u32, version u32, page size u32, flags u32, root bucket (root u64, sequence u64), freelist u64,
//	         high-water mark u64, transaction u64, FNV-1a of all that u64; on pages 0 and 1, the later intact one counts
//	branch   elements: position u32 from the element, key size u32, page u64
//	leaf     elements: flags u32 (1: a bucket), position u32 from the element, key size u32, value size u32
//	bucket   root u64, sequence u64; if root is 0, a leaf page follows in the value
const (
	pageHeader    = 16
	elementLength = 16
	bucketHeader  = 16
	metaLength    = 64
	boltMagic     = 0xED0CDAED
	boltVersion   = 2

	branchPage = 1
	leafPage   = 2
	metaPage   = 4

	minPageSize = 1 << 10
	maxPageSize = 1 << 24
)

// pageID numbers pages from 0.
type pageID uint64

// meta is the content of a meta page.
type meta struct {
	pageSize    int
	root        pageID
	high        pageID // first page that was never used
	transaction uint64
}

func decodeMeta(b []byte) (m meta, err error) {
	if len(b) < pageHeader+metaLength {
		return m, errors.New("it is cut short")
	}
	flags := binary.NativeEndian.Uint16(b[8:])
	b = b[pageHeader : pageHeader+metaLength]
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	hash := fnv.New64a()
	hash.Write(b[:metaLength-8])
	size := u32(b[8:])
	switch {
	case u32(b) != boltMagic:
		return m, fmt.Errorf("it begins with %08x, not %08x", u32(b), boltMagic)
	case hash.Sum64() != u64(b[56:]):
		return m, fmt.Errorf("its checksum is %016x, it says %016x", hash.Sum64(), u64(b[56:]))
	case u32(b[4:]) != boltVersion:
		return m, fmt.Errorf("it is of version %d, known is %d", u32(b[4:]), boltVersion)
	case flags != metaPage:
		return m, fmt.Errorf("its flags are %#x, those of a meta page %#x", flags, metaPage)
	case size < minPageSize || size > maxPageSize || size&(size-1) != 0:
		return m, fmt.Errorf("it says pages of %d bytes", size)
	}
	return meta{pageSize: int(size), root: pageID(u64(b[16:])), high: pageID(u64(b[40:])), transaction: u64(b[48:])},
		nil
}

// readMetas returns the later intact meta page, and the damage of the other.
func readMetas(f io.ReaderAt, size int64) (m meta, damage []Damage, err error) {
	read := func(at int64) (meta, error) {
		b := make([]byte, pageHeader+metaLength)
		if _, err := f.ReadAt(b, at); err != nil {
			return meta{}, fmt.Errorf("reading it: %w", err)
		}
		return decodeMeta(b)
	}
	first, errFirst := read(0)
	second, errSecond := meta{}, errors.New("there is none")
	if errFirst == nil {
		second, errSecond = read(int64(first.pageSize))
	} else {
		for at := int64(minPageSize); at <= maxPageSize && at+pageHeader+metaLength <= size; at *= 2 {
			if second, errSecond = read(at); errSecond == nil && second.pageSize == int(at) {
				break
			}
		}
	}
	if errFirst != nil {
		damage = append(damage, Damage{Page: 0, What: fmt.Sprintf("meta page: %v", errFirst)})
	}
	if errSecond != nil {
		damage = append(damage, Damage{Page: 1, What: fmt.Sprintf("meta page: %v", errSecond)})
	}
	switch {
	case errFirst != nil && errSecond != nil:
		return m, damage, errors.New("neither of its two meta pages is intact: this is no journal, or its beginning " +
			"is lost")
	case errFirst != nil || errSecond == nil && second.transaction > first.transaction:
		m = second
	default:
		m = first
	}
	return m, damage, nil
}

// page is the bytes of a page with its overflow pages, or of a page within a bucket's value.
type page struct {
	id pageID // of the page in the file
	b  []byte
}

func (p page) flags() uint16 { return binary.NativeEndian.Uint16(p.b[8:]) }
func (p page) count() int    { return int(binary.NativeEndian.Uint16(p.b[10:])) }

// overflow returns the number of pages that follow a page and belong to it.
func overflow(header []byte) uint64 { return uint64(binary.NativeEndian.Uint32(header[12:])) }

// element is one entry of a page.
type element struct {
	key    []byte
	value  []byte // of a leaf
	child  pageID // of a branch
	bucket bool   // of a leaf
}

// elements returns the entries of a branch or leaf page. They share the page's memory. An error comes with the entries
// before it.
func (p page) elements(list []element) ([]element, error) {
	n, leaf := p.count(), p.flags() == leafPage
	data := uint64(pageHeader + elementLength*n)
	if data > uint64(len(p.b)) {
		return nil, fmt.Errorf("it says %d entries, which do not fit its %d bytes", n, len(p.b))
	}
	list = list[:0]
	for i := range n {
		at := uint64(pageHeader + elementLength*i)
		head := p.b[at : at+elementLength]
		u32 := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(head[i:])) }
		var e element
		var position, keySize, valueSize uint64
		if leaf {
			position, keySize, valueSize = u32(4), u32(8), u32(12)
			if u32(0) > 1 {
				return list, fmt.Errorf("entry %d has flags %#x", i, u32(0))
			}
			e.bucket = u32(0) == 1
		} else {
			position, keySize = u32(0), u32(4)
			e.child = pageID(binary.NativeEndian.Uint64(head[8:]))
		}
		from := at + position
		if from < data || keySize == 0 || from+keySize+valueSize > uint64(len(p.b)) {
			return list, fmt.Errorf("entry %d has a key of %d bytes and a value of %d at %d, the page has %d", i,
				keySize, valueSize, from, len(p.b))
		}
		e.key = p.b[from : from+keySize]
		e.value = p.b[from+keySize : from+keySize+valueSize]
		list = append(list, e)
	}
	return list, nil
}

// span is a page that a branch leads to, with the bounds of its keys; nil: no bound.
type span struct {
	page      pageID
	low, high []byte
	root      bool
}

// contains reports whether a key lies within the bounds.
func (s *span) contains(key []byte) bool {
	return (s.low == nil || bytes.Compare(key, s.low) >= 0) && (s.high == nil || bytes.Compare(key, s.high) < 0)
}

// lostSpan is the keys of a bucket below a page that could not be read.
type lostSpan struct {
	bucket string
	span   span
}

// reader walks the pages of a file.
type reader struct {
	f    io.ReaderAt
	size int64
	meta meta

	mu     sync.Mutex
	used   []uint64 // a bit for each page that was visited
	damage []Damage
	more   int // damages beyond maxDamages
	lost   []lostSpan
}

// maxDamages is how many damages are reported. All are counted.
const maxDamages = 1000

func newReader(f io.ReaderAt, size int64) (*reader, error) {
	m, damage, err := readMetas(f, size)
	r := &reader{f: f, size: size, meta: m, damage: damage}
	if err != nil {
		return r, err
	}
	r.used = make([]uint64, r.pages()/64+1)
	if uint64(m.high) > r.pages() {
		r.report(Damage{Page: r.pages(), What: fmt.Sprintf("the file is cut short: it has %d pages of %d bytes, %d "+
			"are in use",
			r.pages(), m.pageSize, m.high)})
	}
	r.claim(0, 2)
	return r, nil
}

// pages returns the number of pages in the file.
func (r *reader) pages() uint64 { return uint64(r.size) / uint64(r.meta.pageSize) }

func (r *reader) report(d Damage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.damage) >= maxDamages {
		r.more++
		return
	}
	r.damage = append(r.damage, d)
}

// lose reports a page whose content, or what it leads to, cannot be read.
func (r *reader) lose(bucket string, s span, format string, args ...any) {
	r.report(Damage{Page: uint64(s.page), Bucket: bucket, What: fmt.Sprintf(format, args...)})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, lostSpan{bucket, s})
}

func (r *reader) visited(p uint64) bool { return r.used[p/64]&(1<<(p%64)) != 0 }

// claim marks n pages as visited. It reports false if one was visited before or is not in the file.
func (r *reader) claim(first pageID, n uint64) bool {
	if uint64(first) >= r.pages() || n > r.pages()-uint64(first) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := uint64(first); p < uint64(first)+n; p++ {
		if r.visited(p) {
			return false
		}
	}
	for p := uint64(first); p < uint64(first)+n; p++ {
		r.used[p/64] |= 1 << (p % 64)
	}
	return true
}

// One read covers neighbouring pages up to runBytes, with gaps of up to gapBytes.
const (
	runBytes = 4 << 20
	gapBytes = 256 << 10
)

// run is neighbouring pages that are read at once.
type run struct {
	spans []span // in order of pages
	at    int64
	b     []byte
}

func readers() int { return min(max(runtime.GOMAXPROCS(0), 1), 8) }

// walk visits the leaves of a bucket's tree, level by level, each level in the order of its pages in the file, in
// several goroutines. leaf gets the number of its goroutine; entries share memory that is reused.
func (r *reader) walk(bucket string, root pageID, leaf func(worker int, id pageID, entries []element)) {
	level := []span{{page: root, root: true}}
	for len(level) > 0 {
		slices.SortFunc(level, func(a, b span) int { return cmp.Compare(a.page, b.page) })
		level = r.walkLevel(bucket, level, leaf)
	}
}

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
					children, list = r.visit(bucket, s, rn, list, func(id pageID, es []element) {
						leaf(worker, id, es)
					})
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

// nextRun reads the next neighbouring pages. Pages that cannot be read are missing at the end of its memory.
func (r *reader) nextRun(level []span, buffer []byte) (run, []span) {
	size := int64(r.meta.pageSize)
	at := func(s span) int64 { return int64(min(uint64(s.page), r.pages())) * size }
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

// visit checks a page. It passes a leaf on, and returns the children of a branch.
func (r *reader) visit(bucket string, s span, rn run, list []element, leaf func(pageID, []element)) ([]span,
	[]element) {
	p, err := r.readPage(s, rn)
	if err != nil {
		r.lose(bucket, s, "%v", err)
		return nil, list
	}
	list, err = p.elements(list)
	if err == nil {
		err = checkOrder(list, s, p.flags() == branchPage)
	}
	if err == nil {
		err = checkLength(list, len(p.b), r.meta.pageSize)
	}
	if err != nil {
		r.lose(bucket, s, "%v", err)
	}
	if p.flags() == leafPage {
		if err != nil { // it may be another page than the right one
			list = slices.DeleteFunc(list, func(e element) bool { return !s.contains(e.key) })
		}
		leaf(s.page, list)
		return nil, list
	}
	if err != nil {
		return nil, list
	}
	return childrenOf(list, s), list
}

// readPage returns a branch or leaf page with its overflow pages, after it has checked the header.
func (r *reader) readPage(s span, rn run) (page, error) {
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

// checkLength checks that a page and its overflow pages are as many as its entries need. Another number would make the
// pages after it, which may be in use, a part of it.
func checkLength(list []element, length, pageSize int) error {
	used := pageHeader + elementLength*len(list)
	for _, e := range list {
		used += len(e.key) + len(e.value)
	}
	if want := (used + pageSize - 1) / pageSize; want*pageSize != length {
		return fmt.Errorf("it has %d pages, its %d bytes need %d", length/pageSize, used, want)
	}
	return nil
}

// checkOrder checks that keys ascend within their bounds, and that a branch leads to pages.
func checkOrder(list []element, s span, branch bool) error {
	if len(list) == 0 && (branch || !s.root) {
		return fmt.Errorf("it has no entries")
	}
	for i, e := range list {
		switch {
		case i > 0 && bytes.Compare(list[i-1].key, e.key) >= 0:
			return fmt.Errorf("key %x of entry %d does not follow %x", e.key, i, list[i-1].key)
		case !s.contains(e.key):
			return fmt.Errorf("key %x of entry %d is not from %x to %x, which lead there", e.key, i, s.low, s.high)
		case branch && e.child < 2:
			return fmt.Errorf("entry %d leads to page %d", i, e.child)
		}
	}
	return nil
}

// childrenOf returns the children of a branch. Keys before its first one belong to the first child. Keys are copied,
// because the page's memory is reused.
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
