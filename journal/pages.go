package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// What follows reads bbolt's file format, version 2, with reads at places that were checked before, and believes nothing:
// whatever the bytes are, it ends, and within the memory that the file's size justifies. All numbers are in the machine's
// byte order.
//
//	page     id u64, flags u16, count u16, overflow u32 (pages that follow and belong to it); then its elements
//	meta     magic u32, version u32, page size u32, flags u32, root bucket (root u64, sequence u64), freelist u64,
//	         high-water mark u64, transaction u64, FNV-1a of all that u64; on pages 0 and 1, the latest whole one counts
//	branch   elements: position u32 from the element, key size u32, page u64
//	leaf     elements: flags u32 (1: a bucket), position u32 from the element, key size u32, value size u32
//	bucket   root u64, sequence u64; where root is 0 a leaf page follows in the value
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

	leastPage    = 1 << 10
	greatestPage = 1 << 24
)

// pageID numbers a page; the first is 0.
type pageID uint64

// meta is what a file's meta page says.
type meta struct {
	pageSize    int
	root        pageID
	high        pageID // of the first page never used
	transaction uint64
}

// readMeta reads a meta page.
func readMeta(b []byte) (m meta, err error) {
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
	case size < leastPage || size > greatestPage || size&(size-1) != 0:
		return m, fmt.Errorf("it says pages of %d bytes", size)
	}
	return meta{pageSize: int(size), root: pageID(u64(b[16:])), high: pageID(u64(b[40:])), transaction: u64(b[48:])}, nil
}

// readMetas returns the latest whole meta page, and what is wrong with the other.
func readMetas(f io.ReaderAt, size int64) (m meta, damage []Damage, err error) {
	read := func(at int64) (meta, error) {
		b := make([]byte, pageHeader+metaLength)
		if _, err := f.ReadAt(b, at); err != nil {
			return meta{}, fmt.Errorf("reading it: %w", err)
		}
		return readMeta(b)
	}
	first, errFirst := read(0)
	second, errSecond := meta{}, errors.New("there is none")
	if errFirst == nil {
		second, errSecond = read(int64(first.pageSize))
	} else {
		for at := int64(leastPage); at <= greatestPage && at+pageHeader+metaLength <= size; at *= 2 {
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
		return m, damage, errors.New("neither of its two meta pages is whole: this is no journal, or its beginning is lost")
	case errFirst != nil || errSecond == nil && second.transaction > first.transaction:
		m = second
	default:
		m = first
	}
	return m, damage, nil
}

// page is the bytes of one page with those that belong to it, or of a page within a bucket's value.
type page struct {
	id pageID // of the page in the file
	b  []byte
}

func (p page) flags() uint16 { return binary.NativeEndian.Uint16(p.b[8:]) }
func (p page) count() int    { return int(binary.NativeEndian.Uint16(p.b[10:])) }

// overflow is how many pages follow and belong to it, as its header says.
func overflow(header []byte) uint64 { return uint64(binary.NativeEndian.Uint32(header[12:])) }

// element is one entry of a page.
type element struct {
	key    []byte
	value  []byte // of a leaf
	child  pageID // of a branch
	bucket bool   // of a leaf
}

// elements checks a branch or leaf page, whose flags are known, and returns its entries, which stand in the page's memory. Those before what is wrong
// are returned with the error.
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
			return list, fmt.Errorf("entry %d has a key of %d bytes and a value of %d at %d, the page has %d", i, keySize, valueSize, from, len(p.b))
		}
		e.key = p.b[from : from+keySize]
		e.value = p.b[from+keySize : from+keySize+valueSize]
		list = append(list, e)
	}
	return list, nil
}
