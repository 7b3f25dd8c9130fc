package reference

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Class is a Python class that stands for a struct of settings.
type Class struct {
	Name string
	Doc  string // its first line
	Of   any    // the struct
}

// Python writes the Python module of a table's keys: a class for each section, all keys as keyword arguments with their
// types and docs, and what takes them. special has the Python types of keys for which Go has others: mappings, which
// are lists in Go, and texts that may be numbers.
func (w *Writer) Python(table any, sections []Class, special map[string]string) {
	p := python{w, special, make(map[string]string)}
	for _, c := range sections {
		p.types[reflect.TypeOf(c.Of).String()] = c.Name
	}
	keys := p.keys(table, "name") // which create has as its first argument
	w.out.WriteString(pythonHead)
	all := keys
	for _, c := range sections {
		all = slices.Concat(all, p.keys(c.Of))
	}
	for _, k := range all {
		if k.literal != "" {
			fmt.Fprintf(&w.out, "%s = Literal[%s]\n", k.kind, k.literal)
		}
	}
	for _, c := range sections {
		fields := p.keys(c.Of)
		p.class(c.Name, wrapped("    ", "    ", `"""`+c.Doc)+"\n    Attributes:\n"+attributes("        ", fields), fields)
	}
	p.class("Definition", wrapped("    ", "    ", `"""The keys of a table; `+"`Client.create` says what they mean. None "+
		"means the service's default. `Table.info` returns them with defaults filled in."), keys)
	w.out.WriteString(pythonKeys)
	keys = append(keys, pythonKey{name: "max_size", kind: "int", doc: "another name for capacity"})
	for _, k := range keys {
		fmt.Fprintf(&w.out, "    %s: %s\n%s", k.name, k.kind, wrapped("    ", "    ", `"""`+sentence(k.doc)+`"""`))
	}
	w.out.WriteString(pythonCreate + attributes("            ", keys) + pythonTail)
}

// attributes writes the docs of keys.
func attributes(indent string, keys []pythonKey) (out string) {
	for _, k := range keys {
		out += wrapped(indent, indent+"    ", k.name+": "+k.doc)
	}
	return out
}

// python writes a module.
type python struct {
	*Writer
	special map[string]string // by key
	types   map[string]string // Python's by Go's
}

// pythonKey is a key as Python has it.
type pythonKey struct {
	name, kind, doc string
	literal         string // the values of kind
	required        bool
}

// keys returns the keys of a struct but those to skip.
func (p python) keys(of any, skip ...string) (keys []pythonKey) {
	for f := range option.Fields(reflect.ValueOf(of)) {
		if slices.Contains(skip, f.Key) {
			continue
		}
		meaning, standard := p.meaning(f)
		if meaning == "" {
			p.fail(fmt.Errorf("%s has no comment: say what it means", f.Key))
		}
		k := pythonKey{name: f.Key, doc: meaning}
		k.required = !strings.Contains(f.Tag.Get("json"), "omitempty") && standard == ""
		if standard != "" && standard != "none" {
			k.doc += " [" + standard + "]"
		}
		k.kind, k.literal = p.kind(f)
		keys = append(keys, k)
	}
	return keys
}

// kind returns the Python type of a field, and the values that it names.
func (p python) kind(f option.Field) (kind, literal string) {
	t := pointed(f.Type)
	if special := p.special[f.Key]; special != "" {
		return special, ""
	}
	if values := f.Values(); values != nil {
		name := t.Name()
		if name == "Kind" { // which its package tells of what
			name = string(unicode.ToUpper(rune(f.Key[0]))) + f.Key[1:]
		}
		return name, `"` + strings.Join(values, `", "`) + `"`
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool", ""
	case reflect.String:
		return "str", ""
	case reflect.Float32, reflect.Float64:
		return "float", ""
	case reflect.Struct:
		return p.types[t.String()], ""
	case reflect.Slice:
		if name := p.types[t.Elem().String()]; name != "" {
			return "Sequence[" + name + "]", ""
		}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "int", ""
	}
	p.fail(fmt.Errorf("%s: %s: want a type that Python has", f.Key, t))
	return "", ""
}

// class writes a dataclass of keys.
func (p python) class(name, doc string, keys []pythonKey) {
	fmt.Fprintf(&p.out, "\n\n@dataclass(frozen=True)\nclass %s(Options):\n%s    \"\"\"\n\n", name, doc)
	for _, k := range keys {
		standard := " | None = None"
		switch {
		case k.required:
			standard = ""
		case strings.HasPrefix(p.special[k.name], "Mapping"):
			standard = " = field(default_factory=dict)"
		}
		fmt.Fprintf(&p.out, "    %s: %s%s\n", k.name, k.kind, standard)
	}
}

// Method is a published method whose mechanism is a table's. Its keys are in the order of its file.
type Method struct {
	Name, Title, Source    string
	Keys, Prompts, Trainer Mapping // of the table, of its prompt replay, and what is for others as section.key
}

// Mapping is keys in order, with strings, numbers, booleans, lists of these as []any, and mappings.
type Mapping []Entry

// Entry is a key and its value.
type Entry struct {
	Key   string
	Value any
}

// PythonMethods writes the Python module of methods.
func (w *Writer) PythonMethods(list []Method) {
	w.out.WriteString(methodsHead)
	for _, m := range list {
		keys := m.Keys
		if len(m.Prompts) > 0 {
			keys = append(slices.Clone(keys), Entry{"prompts", m.Prompts})
		}
		fmt.Fprintf(&w.out, "    %q: Method(\n", m.Name)
		fmt.Fprintf(&w.out, "        title=%q,\n        source=%q,\n", m.Title, m.Source)
		w.out.WriteString("        keys={\n")
		for _, k := range keys {
			fmt.Fprintf(&w.out, "            %q: %s,\n", k.Key, w.literal(k.Value))
		}
		fmt.Fprintf(&w.out, "        },\n        trainer=%s,\n    ),\n", w.literal(m.Trainer))
	}
	w.out.WriteString("}\n")
}

// literal writes a value as Python has it.
func (w *Writer) literal(value any) string {
	switch v := value.(type) {
	case Mapping:
		entries := make([]string, len(v))
		for i, k := range v {
			entries[i] = fmt.Sprintf("%q: %s", k.Key, w.literal(k.Value))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case []any:
		entries := make([]string, len(v))
		for i, entry := range v {
			entries[i] = w.literal(entry)
		}
		return "[" + strings.Join(entries, ", ") + "]"
	case bool:
		return map[bool]string{false: "False", true: "True"}[v]
	case string:
		return fmt.Sprintf("%q", v)
	case int64, uint64, float64:
		return fmt.Sprint(v)
	}
	w.fail(fmt.Errorf("%v: %T: want what Python has", value, value))
	return ""
}

// pythonColumns is the width of the module's lines.
const pythonColumns = 120

// wrapped breaks a text into lines, the first after one indent and the others after another.
func wrapped(first, further, text string) string {
	lines := words.WrapAt(pythonColumns-len(further), "", text)
	return first + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n"+further) + "\n"
}

// sentence writes a comment as one: with a capital and a full stop.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}

const pythonHead = `"""The keys of a table.

Written from the Go structs that define them, of replay/options.go, replay/sources.go, wire/table.go and
replay/prompts/options.go, by
` + "`go test ./cmd/reprise -run Reference -write-reference`" + `: change those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from ._options import Options, given
from .methods import method_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Made = TypeVar("Made", covariant=True)

`

const methodsHead = `"""Published methods whose mechanism is a table's, as its keys.

Written from configs/methods by ` + "`go test ./cmd/reprise -run Reference -write-reference`" + `: change those. The files
there say what was read of each source, and what differs here: ` + "`reprise methods NAME`" + ` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import Invalid

METHOD_BATCH = 480


@dataclass(frozen=True)
class Method:
    """A published method of replay.

    Attributes:
        title: what it does, in a line.
        source: where it was published.
        keys: of a table, as ` + "`Client.create`" + ` has them, with a capacity for batches of METHOD_BATCH rollouts.
        trainer: what the method has beside a table, as section.key of a run of the laboratory: the loss, how much of a
            batch is fresh.
    """

    title: str
    source: str
    keys: Mapping[str, Any]
    trainer: Mapping[str, Any]


def method_of(name: str) -> Method:
    """Return a method by its name. Raises Invalid, naming all."""
    if name not in METHODS:
        raise Invalid(f"method: {name!r}: want one of {', '.join(METHODS)}; the others that ` + "`reprise methods`" + ` lists "
                      "are losses or choose what is generated, with any table")  # fmt: skip
    return METHODS[name]


# fmt: off
METHODS: Mapping[str, Method] = {
`

const pythonKeys = `

class Keys(TypedDict, total=False):
    """The keys of a table as keyword arguments."""

`

const pythonCreate = `

class Creator(Generic[Made]):
    """What creates tables."""

    def create(
        self,
        name: str,
        definition: Definition | None = None,
        *,
        method: str | None = None,
        parts: int | None = None,
        **keys: Unpack[Keys],
    ) -> Made:
        """Create a table, or return the existing one if its definition is the same.

        On several addresses it is a table in parts, one on each service, of which the keys are those of the table: each
        part gets its share of capacity, capacity_bytes, min_size, the gate's rollouts_per_update and the limiter's
        error_buffer, rounded up to what a part must have. Parts on services that are away are created when these come
        back.

        Args:
            name: letters, digits, ` + "``-``, ``_`` and ``.``" + `, at most 128.
            definition: the keys as one; otherwise they are keyword arguments.
            method: a published one, of ` + "`reprise.METHODS`" + `, whose keys are those that are not given.
            parts: of a table in parts on a cluster, by default one for each address given.
`

const pythonTail = `
        Raises:
            Invalid: naming each key that is wrong or unknown, with what is wanted.
            Exists: a table of that name has another definition.
        """
        published = method_of(method).keys if method is not None else {}
        return self._create(name, parts, {**published, **given(definition, keys)})

    def _create(self, name: str, parts: int | None, keys: dict[str, Any]) -> Made:
        raise NotImplementedError
`
