package archive

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/rollout"
)

// This file is about rollouts as JSON lines: one object a rollout, without the columns that are null. JSON has no NaN:
// null is NaN in columns and lists of numbers that are never null, such as log-probs. Binary is base64; dates and times
// are integers.

// jsonWriter writes record batches as JSON lines.
type jsonWriter struct {
	to  io.Writer
	row []byte
}

func newJSONWriter(to io.Writer, _ *arrow.Schema) (rowWriter, error) { return &jsonWriter{to: to}, nil }

func (w *jsonWriter) write(rec arrow.RecordBatch) error {
	for row := range int(rec.NumRows()) {
		var err error
		if w.row, err = appendRow(w.row[:0], rec, row); err != nil {
			return err
		}
		if _, err = w.to.Write(append(w.row, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (w *jsonWriter) held() int64  { return 0 }
func (w *jsonWriter) flush() error { return nil }
func (w *jsonWriter) close() error { return nil }

// appendRow appends a row as a JSON object.
func appendRow(b []byte, rec arrow.RecordBatch, row int) ([]byte, error) {
	b = append(b, '{')
	for i, c := range rec.Columns() {
		f := rec.Schema().Field(i)
		if isNull(c, row) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, f.Name), ':')
		var err error
		if b, err = appendJSON(b, c, row, !f.Nullable); err != nil {
			return nil, fmt.Errorf("column %s%s: %w: leave the column out (--columns), or export as parquet or arrow",
				f.Name, ofRollout(rec, row), err)
		}
	}
	return append(b, '}'), nil
}

// isNull is IsNull, which is false for columns without a type.
func isNull(a arrow.Array, i int) bool { return a.IsNull(i) || a.DataType().ID() == arrow.NULL }

// ofRollout names the rollout of a row, if the record batch has its id.
func ofRollout(rec arrow.RecordBatch, row int) string {
	if at := rec.Schema().FieldIndices(IDColumn); len(at) > 0 {
		if ids, ok := rec.Column(at[0]).(*array.Uint64); ok {
			return fmt.Sprintf(" of rollout %d", ids.Value(row))
		}
	}
	return ""
}

// appendJSON appends an entry. required says that it is never null.
func appendJSON(b []byte, a arrow.Array, i int, required bool) ([]byte, error) {
	if isNull(a, i) {
		return append(b, "null"...), nil
	}
	switch a := a.(type) {
	case *array.Int8:
		return strconv.AppendInt(b, int64(a.Value(i)), 10), nil
	case *array.Int16:
		return strconv.AppendInt(b, int64(a.Value(i)), 10), nil
	case *array.Int32:
		return strconv.AppendInt(b, int64(a.Value(i)), 10), nil
	case *array.Int64:
		return strconv.AppendInt(b, a.Value(i), 10), nil
	case *array.Uint8:
		return strconv.AppendUint(b, uint64(a.Value(i)), 10), nil
	case *array.Uint16:
		return strconv.AppendUint(b, uint64(a.Value(i)), 10), nil
	case *array.Uint32:
		return strconv.AppendUint(b, uint64(a.Value(i)), 10), nil
	case *array.Uint64:
		return strconv.AppendUint(b, a.Value(i), 10), nil
	case *array.Date32:
		return strconv.AppendInt(b, int64(a.Value(i)), 10), nil
	case *array.Timestamp:
		return strconv.AppendInt(b, int64(a.Value(i)), 10), nil
	case *array.Float16:
		return appendReal(b, float64(a.Value(i).Float32()), 32, required)
	case *array.Float32:
		return appendReal(b, float64(a.Value(i)), 32, required)
	case *array.Float64:
		return appendReal(b, a.Value(i), 64, required)
	case *array.Boolean:
		return strconv.AppendBool(b, a.Value(i)), nil
	case *array.String:
		return appendText(b, a.Value(i))
	case *array.LargeString:
		return appendText(b, a.Value(i))
	case *array.Binary:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), a.Value(i)), '"'), nil
	case *array.Struct:
		return appendStruct(b, a, i)
	case array.ListLike:
		return appendList(b, a, i)
	}
	return nil, fmt.Errorf("type %s has no form in JSON", a.DataType())
}

func appendReal(b []byte, x float64, bits int, required bool) ([]byte, error) {
	switch {
	case required && math.IsNaN(x):
		return append(b, "null"...), nil
	case math.IsNaN(x) || math.IsInf(x, 0):
		return nil, fmt.Errorf("%v: JSON has no such number", x)
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits), nil
}

func appendText(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%.40q is not UTF-8", s)
	}
	text := bytes.NewBuffer(b)
	e := json.NewEncoder(text)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

func appendStruct(b []byte, a *array.Struct, i int) (_ []byte, err error) {
	b = append(b, '{')
	t := a.DataType().(*arrow.StructType)
	for k := range t.NumFields() {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, t.Field(k).Name), ':')
		if b, err = appendJSON(b, a.Field(k), i, false); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendList(b []byte, a array.ListLike, i int) (_ []byte, err error) {
	required := !a.DataType().(arrow.ListLikeType).ElemField().Nullable
	start, end := a.ValueOffsets(i)
	values := a.ListValues()
	b = append(b, '[')
	for k := start; k < end; k++ {
		if k > start {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, values, int(k), required); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// Bounds of what is read at a time: lines of a record batch, their bytes, and the bytes of one line.
const (
	batchLines = 256
	batchBytes = 64 << 20
	lineBytes  = 1 << 30
)

// line is a line of a file.
type line struct {
	number int // from 1
	text   []byte
}

// readLines passes on the lines of a file that are not blank, some at a time.
func readLines(from io.Reader, yield func([]line) bool) error {
	in := bufio.NewReaderSize(from, 1<<20)
	var lines []line
	bytesRead := 0
	for number := 1; ; number++ {
		text, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			lines = append(lines, line{number, text})
			bytesRead += len(text)
		}
		if len(lines) > 0 && (err != nil || len(lines) == batchLines || bytesRead >= batchBytes) {
			if !yield(lines) {
				return nil
			}
			lines, bytesRead = nil, 0
		}
		if err != nil {
			return nil
		}
	}
}

func readLine(in *bufio.Reader) (text []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
		if len(text) > lineBytes {
			return nil, fmt.Errorf("it has more than %d bytes: write one rollout a line", lineBytes)
		}
	}
}

// lineError is what is wrong with a line.
type lineError struct {
	line         int
	field, value string
	remedy       string
}

func (e *lineError) Error() string {
	return fmt.Sprintf("line %d: %s is %s: %s", e.line, e.field, e.value, e.remedy)
}

func (e *lineError) Unwrap() error { return rollout.ErrInvalid }

// decodeLines converts lines to a record batch with a column for each key that they have. Columns that are none of the
// fields have no type.
func decodeLines(lines []line, fields []arrow.Field) (arrow.RecordBatch, error) {
	d := lineDecoder{fields: fields, at: make(map[string]int)}
	defer d.release()
	for row, l := range lines {
		if err := d.add(row, l); err != nil {
			return nil, err
		}
	}
	var fieldsFound []arrow.Field
	var columns []arrow.Array
	for _, unknown := range []bool{true, false} { // unknown ones first: one is the reason why another misses
		for i, b := range d.builders {
			if (d.found[i].Type == arrow.Null) == unknown {
				c := b.NewArray()
				defer c.Release()
				fieldsFound, columns = append(fieldsFound, d.found[i]), append(columns, c)
			}
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fieldsFound, nil), columns, int64(len(lines))), nil
}

// lineDecoder builds columns from lines.
type lineDecoder struct {
	fields   []arrow.Field
	at       map[string]int // place of each column
	found    []arrow.Field  // the columns so far
	builders []array.Builder
	value    scanner
	number   int // of the line
}

func (d *lineDecoder) release() {
	for _, b := range d.builders {
		b.Release()
	}
}

// add adds a line as a row.
func (d *lineDecoder) add(row int, l line) error {
	d.number = l.number
	var syntax *json.SyntaxError
	if err := json.Unmarshal(l.text, new(ignored)); errors.As(err, &syntax) {
		return d.wrong("character "+strconv.FormatInt(syntax.Offset, 10), syntax.Error(), "write one JSON object a line")
	} else if err != nil {
		return d.wrong("the line", err.Error(), "write one JSON object a line")
	}
	d.value = scanner{text: l.text}
	if d.value.peek() != '{' {
		return d.wrong("the line", clipped(d.value.skip()), "write one JSON object a line")
	}
	err := d.value.object(func(name string) error {
		i, known := d.at[name]
		if !known {
			i = d.column(name, row)
		}
		if d.builders[i].Len() > row {
			return d.wrong(strconv.Quote(name), "given twice", "give it once")
		}
		return d.append(d.builders[i], d.found[i], name)
	})
	if err != nil {
		return err
	}
	for _, b := range d.builders {
		if b.Len() == row {
			b.AppendNull()
		}
	}
	return nil
}

// ignored is a JSON value of which nothing but the form matters.
type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

// column adds a column that the rows before do not have.
func (d *lineDecoder) column(name string, row int) int {
	f := arrow.Field{Name: name, Type: arrow.Null}
	if i := slices.IndexFunc(d.fields, func(f arrow.Field) bool { return f.Name == name }); i >= 0 {
		f = portableField(d.fields[i])
	}
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	b.AppendNulls(row)
	d.at[name] = len(d.found)
	d.found, d.builders = append(d.found, f), append(d.builders, b)
	return len(d.found) - 1
}

func (d *lineDecoder) wrong(field, value, remedy string) error {
	return &lineError{d.number, field, value, remedy}
}

// append appends the next value to a column, whose type it must have.
func (d *lineDecoder) append(to array.Builder, f arrow.Field, path string) error {
	if d.value.peek() == 'n' {
		d.value.skip()
		if appendNaN(to, f) {
			return nil
		}
		to.AppendNull()
		return nil
	}
	switch b := to.(type) {
	case *array.NullBuilder: // an unknown column, which is refused by name
		d.value.skip()
		b.AppendNull()
		return nil
	case *array.StructBuilder:
		return d.appendStruct(b, f, path)
	case array.ListLikeBuilder:
		return d.appendList(b, f, path)
	}
	text := d.value.skip()
	if err := appendScalar(to, text); err != nil {
		return d.wrong(path, clipped(text), "give "+f.Type.String())
	}
	return nil
}

// appendNaN appends NaN to a column of numbers that are never null, and reports whether it is one.
func appendNaN(to array.Builder, f arrow.Field) bool {
	if f.Nullable {
		return false
	}
	switch b := to.(type) {
	case *array.Float32Builder:
		b.Append(float32(math.NaN()))
	case *array.Float64Builder:
		b.Append(math.NaN())
	default:
		return false
	}
	return true
}

func (d *lineDecoder) appendList(b array.ListLikeBuilder, f arrow.Field, path string) error {
	item := f.Type.(arrow.ListLikeType).ElemField()
	pair, pairs := item.Type.(*arrow.StructType)
	pairs = pairs && pair.NumFields() == 2 && pair.Field(0).Name == "key" && pair.Field(1).Name == "value"
	switch c := d.value.peek(); {
	case c == '{' && pairs:
		b.Append(true)
		return d.appendPairs(b.ValueBuilder().(*array.StructBuilder), pair, path)
	case c != '[':
		return d.wrong(path, clipped(d.value.skip()), "give "+f.Type.String())
	}
	b.Append(true)
	n := 0
	return d.value.list(func() error {
		n++
		return d.append(b.ValueBuilder(), item, path+"["+strconv.Itoa(n-1)+"]")
	})
}

func (d *lineDecoder) appendStruct(b *array.StructBuilder, f arrow.Field, path string) error {
	if d.value.peek() != '{' {
		return d.wrong(path, clipped(d.value.skip()), "give "+f.Type.String())
	}
	b.Append(true)
	t := f.Type.(*arrow.StructType)
	err := d.value.object(func(name string) error {
		i, known := t.FieldIdx(name)
		switch {
		case !known:
			return d.wrong(path+"."+clipped([]byte(name)), "unknown", "leave it out")
		case b.FieldBuilder(i).Len() == b.Len():
			return d.wrong(path+"."+name, "given twice", "give it once")
		}
		return d.append(b.FieldBuilder(i), nullable(t.Field(i)), path+"."+name)
	})
	for i := range t.NumFields() {
		if b.FieldBuilder(i).Len() < b.Len() {
			b.FieldBuilder(i).AppendNull()
		}
	}
	return err
}

// appendPairs appends an object as a list of pairs: a map, as most write it.
func (d *lineDecoder) appendPairs(b *array.StructBuilder, t *arrow.StructType, path string) error {
	keys, ok := b.FieldBuilder(0).(*array.StringBuilder)
	if !ok {
		return d.wrong(path, "an object", "give a list of objects with key and value")
	}
	return d.value.object(func(name string) error {
		b.Append(true)
		keys.Append(name)
		return d.append(b.FieldBuilder(1), nullable(t.Field(1)), path+"."+name)
	})
}

func nullable(f arrow.Field) arrow.Field { f.Nullable = true; return f }

// appendScalar appends a number, a text, a bool or binary.
func appendScalar(to array.Builder, text []byte) (err error) {
	number := string(text)
	switch b := to.(type) {
	case *array.Int8Builder:
		return appendInt(number, 8, func(n int64) { b.Append(int8(n)) })
	case *array.Int16Builder:
		return appendInt(number, 16, func(n int64) { b.Append(int16(n)) })
	case *array.Int32Builder:
		return appendInt(number, 32, func(n int64) { b.Append(int32(n)) })
	case *array.Int64Builder:
		return appendInt(number, 64, b.Append)
	case *array.Date32Builder:
		return appendInt(number, 32, func(n int64) { b.Append(arrow.Date32(n)) })
	case *array.TimestampBuilder:
		return appendInt(number, 64, func(n int64) { b.Append(arrow.Timestamp(n)) })
	case *array.Uint8Builder:
		return appendUint(number, 8, func(n uint64) { b.Append(uint8(n)) })
	case *array.Uint16Builder:
		return appendUint(number, 16, func(n uint64) { b.Append(uint16(n)) })
	case *array.Uint32Builder:
		return appendUint(number, 32, func(n uint64) { b.Append(uint32(n)) })
	case *array.Uint64Builder:
		return appendUint(number, 64, b.Append)
	case *array.Float16Builder:
		return parseReal(number, 32, func(x float64) { b.Append(float16.New(float32(x))) })
	case *array.Float32Builder:
		return parseReal(number, 32, func(x float64) { b.Append(float32(x)) })
	case *array.Float64Builder:
		return parseReal(number, 64, b.Append)
	case *array.BooleanBuilder:
		if number != "true" && number != "false" {
			return errNoValue
		}
		b.Append(number == "true")
	case *array.StringBuilder:
		s, err := unquoted(text)
		b.Append(s)
		return err
	case *array.BinaryBuilder:
		s, err := unquoted(text)
		if err != nil {
			return err
		}
		binary, err := base64.StdEncoding.DecodeString(s)
		b.Append(binary)
		return err
	default:
		return errNoValue
	}
	return nil
}

var errNoValue = errors.New("no value of this type")

func appendInt(text string, bits int, add func(int64)) error {
	n, err := strconv.ParseInt(text, 10, bits)
	add(n)
	return err
}

func appendUint(text string, bits int, add func(uint64)) error {
	n, err := strconv.ParseUint(text, 10, bits)
	add(n)
	return err
}

func parseReal(text string, bits int, add func(float64)) error {
	x, err := strconv.ParseFloat(text, bits)
	add(x)
	return err
}

// unquoted returns the text that a JSON string stands for.
func unquoted(text []byte) (s string, err error) {
	switch {
	case text[0] != '"' || !utf8.Valid(text):
		return "", errNoValue
	case !bytes.Contains(text, []byte{'\\'}):
		return string(text[1 : len(text)-1]), nil
	}
	return s, json.Unmarshal(text, &s)
}

// clipped returns the beginning of a text for an error.
func clipped(text []byte) string {
	const most = 60
	if len(text) <= most {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:most]), "") + "…"
}

// scanner walks through a valid JSON text. A value begins where it stands.
type scanner struct {
	text []byte
	at   int
}

// peek returns the first character of the next value, or the bracket that ends the list or object.
func (s *scanner) peek() byte {
	for s.text[s.at] <= ' ' || s.text[s.at] == ',' || s.text[s.at] == ':' {
		s.at++
	}
	return s.text[s.at]
}

// skip passes over the next value and returns it.
func (s *scanner) skip() []byte {
	first := s.peek()
	start := s.at
	switch first {
	case '"':
		s.passString()
	case '[', '{':
		for depth := 1; depth > 0; {
			s.at++
			switch s.text[s.at] {
			case '"':
				s.passString()
				s.at--
			case '[', '{':
				depth++
			case ']', '}':
				depth--
			}
		}
		s.at++
	default: // a number, true, false or null
		for s.at < len(s.text) && !bytes.ContainsRune([]byte(" \t\r,:]}"), rune(s.text[s.at])) {
			s.at++
		}
	}
	return s.text[start:s.at]
}

// passString passes over a string.
func (s *scanner) passString() {
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
}

// list visits the items of a list. visit passes over each.
func (s *scanner) list(visit func() error) error {
	for s.at++; s.peek() != ']'; {
		if err := visit(); err != nil {
			return err
		}
	}
	s.at++
	return nil
}

// object visits the values of an object. visit passes over each.
func (s *scanner) object(visit func(name string) error) error {
	for s.at++; s.peek() != '}'; {
		name, err := unquoted(s.skip())
		if err != nil {
			return err
		}
		if err := visit(name); err != nil {
			return err
		}
	}
	s.at++
	return nil
}
