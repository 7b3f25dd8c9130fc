package answer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxDepth limits the nesting of brackets.
const maxDepth = 40

// parseError is what the parser panics with; parse returns it.
type parseError struct{ error }

var (
	errAmbiguous = parseError{errors.New("can be read in several ways")}
	errDeep      = parseError{errors.New("nested too deep")}
	errEmpty     = errors.New("nothing is written")
)

// parser turns the tokens of an answer into a node, by recursive descent: list, item, side, sum, product, factor,
// primary. A method panics with a parseError where the tokens cannot be read.
type parser struct {
	tokens []token
	at     int
	depth  int
	bars   int // absolute values that are open
	terms  int // of the sums that were added up
}

// parse reads a whole answer.
func parse(list []token) (n *node, err error) {
	if len(list) == 0 {
		return nil, errEmpty
	}
	if text, ok := words(list); ok {
		return text, nil
	}
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case parseError:
			n, err = nil, failure
		default:
			panic(failure)
		}
	}()
	p := &parser{tokens: list}
	n = p.list()
	if p.at < len(p.tokens) {
		panic(p.unexpected())
	}
	return n, nil
}

// peek returns the next token; after the last its kind is end.
func (p *parser) peek() token { return p.ahead(0) }

func (p *parser) ahead(n int) token {
	if p.at+n < len(p.tokens) {
		return p.tokens[p.at+n]
	}
	return token{}
}

// symbol reports whether the next token is one of the characters.
func (p *parser) symbol(characters string) bool {
	t := p.peek()
	return t.kind == symbol && strings.Contains(characters, t.text)
}

// command reports whether the next token is one of the commands.
func (p *parser) command(names ...string) bool {
	t := p.peek()
	return t.kind == command && slices.Contains(names, t.text)
}

func (p *parser) unexpected() parseError {
	if t := p.peek(); t.kind != end {
		return parseError{fmt.Errorf("%q is not expected here", t.text)}
	}
	return parseError{errors.New("ends too early")}
}

// expect consumes a character.
func (p *parser) expect(character string) {
	if !p.symbol(character) {
		panic(p.unexpected())
	}
	p.at++
}

// deeper enters brackets; leave them with p.depth--.
func (p *parser) deeper() {
	if p.depth++; p.depth > maxDepth {
		panic(errDeep)
	}
}

// list reads items between commas and semicolons, "and" and "or".
func (p *parser) list() *node {
	first := p.item()
	items, kind := []*node{first}, opList
	for {
		comma := p.symbol(",;")
		if comma {
			p.at++
		}
		joint := p.joint()
		if joint != "" {
			p.at++
		}
		if joint == "or" {
			kind = opEither
		}
		if !comma && joint == "" {
			break
		}
		items = append(items, p.item())
	}
	if len(items) == 1 {
		return first
	}
	return &node{op: kind, args: items}
}

// joint returns "and" or "or" if it is next.
func (p *parser) joint() string {
	switch t := p.peek(); t.kind {
	case prose, word:
		text := strings.ToLower(strings.Trim(t.text, ", "))
		if text == "and" || text == "or" {
			return text
		}
	case command:
		switch t.text {
		case "vee", "lor":
			return "or"
		case "land", "wedge":
			return "and"
		}
	}
	return ""
}

// item reads an expression, or several in a chain of relations.
func (p *parser) item() *node {
	var sides []*node
	var relations []string
	if p.command("approx") || p.symbol("=") { // "≈ 8.24"
		p.at++
	}
	for {
		side := p.side()
		if len(sides) > 0 && (relates(side) || relates(sides[0])) {
			panic(errAmbiguous)
		}
		sides = append(sides, side)
		relation := p.relation()
		if relation == "" {
			break
		}
		relations = append(relations, relation)
	}
	// x = \sqrt{8} ≈ 2.83: the exact value counts
	if last := len(sides) - 1; last > 1 && relations[last-1] == "~" && rounds(sides[last-1], sides[last]) {
		sides, relations = sides[:last], relations[:last-1]
	}
	if len(sides) == 1 {
		return sides[0]
	}
	return &node{op: opRelation, name: strings.Join(relations, " "), args: sides}
}

// relation consumes a relation, if one is next.
func (p *parser) relation() string {
	t := p.peek()
	found := ""
	switch {
	case t.kind == symbol && strings.Contains("=<>≈", t.text):
		found = t.text
		if next := p.ahead(1); next.kind == symbol && next.text == "=" && found != "=" {
			p.at++
			found += "="
		}
	case t.kind == symbol && t.text == "!" && p.ahead(1).text == "=":
		p.at++
		found = "!="
	case t.kind == command:
		found = map[string]string{"leq": "<=", "geq": ">=", "neq": "!=", "less": "<", "greater": ">", "approx": "~",
			"in": "in"}[t.text]
	}
	if found == "≈" {
		found = "~"
	}
	if found != "" {
		p.at++
	}
	return found
}

// side reads a set, a ratio or an expression, with its unit.
func (p *parser) side() *node {
	if text := p.prefix(); text != nil {
		return text
	}
	n := p.sum()
	for {
		switch {
		case p.command("cup", "cap", "setminus", "backslash"):
			name := p.peek().text
			if name == "backslash" {
				name = "setminus"
			}
			p.at++
			other := p.sum()
			n = newNode(opRegion, name, n, other)
		case p.symbol(":") || p.command("colon"):
			p.at++
			other := p.sum()
			n = ratio(n, other)
		default:
			return n
		}
	}
}

// ratio appends a term to a ratio, or begins one.
func ratio(n, next *node) *node {
	if n.op == opRatio {
		return &node{op: opRatio, args: append(slices.Clone(n.args), next)}
	}
	return &node{op: opRatio, args: []*node{n, next}}
}

// prefix consumes words before a relation or between commas, such as the "Area" of "Area = 5" or the A of "(A, B)".
func (p *parser) prefix() *node {
	t := p.peek()
	if t.kind != prose && t.kind != word {
		return nil
	}
	next := p.ahead(1)
	over := next.kind == end || next.kind == symbol && strings.Contains("=,;)", next.text) || next.kind == command &&
		next.text == "rbrace"
	if !over {
		return nil
	}
	p.at++
	return &node{op: opText, name: caption(t.text)}
}
