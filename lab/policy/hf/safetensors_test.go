package hf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
)

// fileOf makes a safetensors file of a header and data.
func fileOf(header, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func parse(file []byte) ([]entry, error) { return readHeader(bytes.NewReader(file), int64(len(file))) }

func TestTheWriterFollowsTheFormatToTheByte(t *testing.T) {
	var b bytes.Buffer
	err := writeSafetensors(&b, []Tensor{{"a\"b", []int{1, 2}, []float32{1, -2}}, {"s", nil, []float32{0.5}},
		{"z", []int{0, 3}, nil}})
	if err != nil {
		t.Fatal(err)
	}
	head := `{"__metadata__":{"format":"pt"},"a\"b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"z":{"dtype":"F32","shape":[0,3],"data_offsets":[12,12]}}`
	head += strings.Repeat(" ", (8-len(head)%8)%8)
	want := fileOf(head, "\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f")
	if !bytes.Equal(b.Bytes(), want) {
		t.Fatalf("got\n%q, want\n%q", b.Bytes(), want)
	}
	entries, err := parse(want)
	if err != nil || len(entries) != 3 {
		t.Fatalf("entries %+v, error %v", entries, err)
	}
	s, err := entries[0].read(bytes.NewReader(want))
	if err != nil || s.Name != "a\"b" || fmt.Sprint(s.Shape, s.Data) != "[1 2] [1 -2]" {
		t.Errorf("tensor %+v, error %v", s, err)
	}
}

func TestDamagedHeadersAreRefused(t *testing.T) {
	entry := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"dtype":%q,"shape":%s,"data_offsets":%s}`, dtype, shape, offsets)
	}
	a := `"a":` + entry("F32", "[2]", "[0,8]")
	for _, tc := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "file has 0 bytes"},
		{"short prefix", []byte("1234567"), "file has 7 bytes"},
		{"header beyond the file", fileOf("{}", "")[:9], "header length is 2"},
		{"absurd header length", binary.LittleEndian.AppendUint64(nil, math.MaxUint64),
			"header length is 18446744073709551615"},
		{"no JSON", fileOf("hello", ""), "not a JSON object"},
		{"a list", fileOf("[]", ""), "not a JSON object"},
		{"broken off", fileOf(`{"a"`, ""), "unexpected EOF"},
		{"no closing brace", fileOf("{"+a, "12345678"), "parse header"},
		{"something behind", fileOf("{"+a+"}x", "12345678"), "1 bytes after its JSON object"},
		{"twice", fileOf("{"+a+","+a+"}", "12345678"), `names "a" twice`},
		{"metadata of numbers", fileOf(`{"__metadata__":{"a":1}}`, ""), `header entry "__metadata__"`},
		{"entry is no object", fileOf(`{"a":7}`, ""), `header entry "a"`},
		{"no such dtype", fileOf(`{"a":`+entry("F31", "[2]", "[0,8]")+"}", "12345678"), `dtype is "F31"`},
		{"negative dimension", fileOf(`{"a":`+entry("F32", "[-2]", "[0,8]")+"}", "12345678"), `header entry "a"`},
		{"fractional dimension", fileOf(`{"a":`+entry("F32", "[2.5]", "[0,8]")+"}", "12345678"), `header entry "a"`},
		{"shape too large", fileOf(`{"a":`+entry("F32", "[3]", "[0,8]")+"}", "12345678"), "takes 12 bytes"},
		{"shape overflows", fileOf(`{"a":`+entry("F32", "[4294967296,4294967296,4294967296]", "[0,8]")+"}", "12345678"),
			"larger than any file"},
		{"shape wraps to zero", fileOf(`{"a":`+entry("F32", "[9223372036854775807,0]", "[0,0]")+"}", ""),
			"larger than any file"},
		{"one offset", fileOf(`{"a":`+entry("F32", "[2]", "[0]")+"}", "12345678"), "data_offsets is [0]"},
		{"offsets swapped", fileOf(`{"a":`+entry("F32", "[2]", "[8,0]")+"}", "12345678"), "data_offsets is [8 0]"},
		{"beyond the data", fileOf(`{"a":`+entry("F32", "[2]", "[4,12]")+"}", "12345678"), "end <= 8"},
		{"overlap", fileOf("{"+a+`,"b":`+entry("F32", "[1]", "[4,8]")+"}", "12345678"),
			`"b": data begins at 4, the tensor before ends at 8`},
		{"hole", fileOf(`{"b":`+entry("F32", "[1]", "[4,8]")+"}", "12345678"), "neither hole nor overlap"},
		{"remainder", fileOf("{"+a+"}", "123456789"), "end at 8 of 9 bytes"},
		{"truncated data", fileOf("{"+a+"}", "1234567"), "end <= 7"},
	} {
		if _, err := parse(tc.file); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
	entries, err := parse(fileOf(`{"a":`+entry("F64", "[1]", "[0,8]")+"}", "12345678"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entries[0].read(bytes.NewReader(nil)); err == nil ||
		!strings.Contains(err.Error(), "want F32, F16 or BF16") {
		t.Errorf("a dtype that is not widened: %v", err)
	}
}

// Every half and every bfloat16 against the definition, in exact arithmetic.
func TestSixteenBitFloatsWidenExactly(t *testing.T) {
	var got [1]float32
	exact := func(bits, fracBits, bias int) *big.Float {
		frac, exp := bits&(1<<fracBits-1), bits&0x7fff>>fracBits
		if exp == 0 {
			exp = 1
		} else {
			frac |= 1 << fracBits
		}
		f := new(big.Float).SetMantExp(big.NewFloat(float64(frac)), exp-bias-fracBits)
		if bits&0x8000 != 0 {
			f.Neg(f)
		}
		return f
	}
	for _, kind := range []struct {
		dtype               string
		fracBits, bias, exp int
	}{{"F16", 10, 15, 0x1f}, {"BF16", 7, 127, 0xff}} {
		for bits := range 1 << 16 {
			widen(got[:], binary.LittleEndian.AppendUint16(nil, uint16(bits)), kind.dtype)
			v := float64(got[0])
			negative, frac := bits&0x8000 != 0, bits&(1<<kind.fracBits-1)
			switch {
			case bits&0x7fff>>kind.fracBits != kind.exp:
				if want, _ := exact(bits, kind.fracBits, kind.bias).Float64(); v != want ||
					math.Signbit(v) != negative {
					t.Fatalf("%s %#04x is %g, want %g", kind.dtype, bits, v, want)
				}
			case frac == 0 && (!math.IsInf(v, 0) || math.Signbit(v) != negative), frac != 0 && !math.IsNaN(v):
				t.Fatalf("%s %#04x is %g", kind.dtype, bits, v)
			}
		}
	}
}

func TestTensorsLargerThanAChunkAreReadWhole(t *testing.T) {
	const n = 1<<18 + 3
	data := make([]byte, 2*n)
	for i := range n {
		binary.LittleEndian.PutUint16(data[2*i:], uint16(i))
	}
	file := fileOf(fmt.Sprintf(`{"a":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}`, n, 2*n), string(data))
	entries, err := parse(file)
	if err != nil {
		t.Fatal(err)
	}
	a, err := entries[0].read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range a.Data {
		if math.Float32bits(v) != uint32(uint16(i))<<16 {
			t.Fatalf("element %d is %g", i, v)
		}
	}
}

func FuzzReadSafetensors(f *testing.F) {
	var b bytes.Buffer
	if err := writeSafetensors(&b,
		[]Tensor{{"a", []int{1, 2}, []float32{1, 2}}, {"b", []int{}, []float32{3}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(fileOf(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}}`, "123456"))
	f.Add(fileOf(`{}`, ""))
	f.Fuzz(func(t *testing.T, file []byte) {
		entries, err := parse(file)
		if err != nil {
			return
		}
		for _, s := range entries {
			if s.begin < 8 || s.end > int64(len(file)) {
				t.Fatalf("tensor %q lies at %d to %d of %d bytes", s.name, s.begin, s.end, len(file))
			}
			if a, err := s.read(bytes.NewReader(file)); err == nil && len(a.Data) != elements(a.Shape) {
				t.Fatalf("tensor %q has %d elements for shape %v", s.name, len(a.Data), a.Shape)
			}
		}
	})
}
