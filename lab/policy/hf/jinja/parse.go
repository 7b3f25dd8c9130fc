package jinja

import (
	"slices"
	"strconv"
)

// expression evaluates a part of a template.
type expression func(r *rendering) any

// statement writes a part of a template.
type statement func(r *rendering) signal

// signal is what a statement asks of the loop around it.
type signal int

const (
	proceed signal = iota
	continueLoop
	breakLoop
)

// parser makes a template of tokens by recursive descent, with the precedence of Jinja's operators.
type parser struct {
	tokens []token
	at     int
	depth  int
}

// maxDepth bounds how deep expressions, blocks, calls of macros and values are nested.
const maxDepth = 200

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != endOfText {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, args ...any) {
	fail("line %d: "+format, append([]any{p.peek().line}, args...)...)
}

// is reports whether the next token is an operator or a name.
func (p *parser) is(k kind, text string) bool { return p.peek().kind == k && p.peek().text == text }

// accept takes the next token if it is this operator or name.
func (p *parser) accept(k kind, text string) bool {
	if !p.is(k, text) {
		return false
	}
	p.at++
	return true
}

func (p *parser) op(text string) bool   { return p.accept(operator, text) }
func (p *parser) word(text string) bool { return p.accept(name, text) }

// want takes a token of a kind.
func (p *parser) want(k kind, what string) string {
	if p.peek().kind != k {
		p.fail("%q: want %s", p.peek().text, what)
	}
	return p.take().text
}

// wantOp takes an operator.
func (p *parser) wantOp(text string) {
	if !p.op(text) {
		p.fail("%q: want %q", p.peek().text, text)
	}
}

// nest counts a level of nesting until the function returned is called.
func (p *parser) nest() func() {
	if p.depth++; p.depth > maxDepth {
		p.fail("nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }
}

// body parses statements up to a block that begins with one of these tags, and returns the tag. Without tags it parses
// up to the end.
func (p *parser) body(until ...string) ([]statement, string) {
	defer p.nest()()
	var list []statement
	for {
		switch t := p.take(); t.kind {
		case data:
			list = append(list, func(r *rendering) signal { return r.write(t.text) })
		case beginPrint:
			value := p.tuple(true)
			p.want(endPrint, "}}")
			list = append(list, func(r *rendering) signal {
				r.line = t.line
				return r.write(r.str(value(r)))
			})
		case beginBlock:
			tag := p.want(name, "the name of a tag")
			if slices.Contains(until, tag) {
				return list, tag
			}
			s := p.block(tag)
			list = append(list, func(r *rendering) signal {
				r.line = t.line
				r.charge(1)
				return s(r)
			})
		case endOfText:
			if len(until) > 0 {
				p.fail("the template ends before %s", until[len(until)-1])
			}
			return list, ""
		}
	}
}

// end takes the end of a block.
func (p *parser) end() { p.want(endBlock, "%}") }

// block parses the rest of a statement, after its tag.
func (p *parser) block(tag string) statement {
	switch tag {
	case "if":
		return p.conditional()
	case "for":
		return p.loop()
	case "set":
		return p.assignment()
	case "macro":
		return p.macro()
	case "generation": // marks what trainers learn
		p.end()
		body, _ := p.body("endgeneration")
		p.end()
		return func(r *rendering) signal { return r.run(body) }
	case "break", "continue":
		p.end()
		if tag == "break" {
			return func(*rendering) signal { return breakLoop }
		}
		return func(*rendering) signal { return continueLoop }
	}
	p.fail("tag %s: want one of if, for, set, macro, generation, break, continue", tag)
	return nil
}

func (p *parser) conditional() statement {
	condition := p.expression()
	p.end()
	then, tag := p.body("elif", "else", "endif")
	var otherwise []statement
	switch tag {
	case "elif":
		defer p.nest()()
		otherwise = []statement{p.conditional()} // takes the endif
	case "else":
		p.end()
		otherwise, _ = p.body("endif")
		p.end()
	default:
		p.end()
	}
	return func(r *rendering) signal {
		if truth(condition(r)) {
			return r.run(then)
		}
		return r.run(otherwise)
	}
}

// targets parses the names that are assigned to.
func (p *parser) targets() []string {
	list := []string{p.want(name, "a name")}
	for p.op(",") {
		list = append(list, p.want(name, "a name"))
	}
	return list
}

func (p *parser) loop() statement {
	bracket := p.op("(")
	names := p.targets()
	if bracket {
		p.wantOp(")")
	}
	if !p.word("in") {
		p.fail("%q: want in", p.peek().text)
	}
	items := p.tuple(false)
	var filter expression
	if p.word("if") {
		filter = p.expression()
	}
	p.end()
	body, tag := p.body("else", "endfor")
	var otherwise []statement
	if tag == "else" {
		p.end()
		otherwise, _ = p.body("endfor")
	}
	p.end()
	return func(r *rendering) signal {
		list := r.list(items(r))
		defer r.enter()()
		if filter != nil {
			r.charge(len(list) * bytesOfValue)
			list = slices.DeleteFunc(slices.Clone(list), func(item any) bool {
				r.assign(names, item)
				return !truth(filter(r))
			})
		}
		for i, item := range list {
			r.charge(bytesOfValue)
			leave := r.enter()
			r.scope.vars["loop"] = loop{list, i}
			r.assign(names, item)
			s := r.run(body)
			if leave(); s == breakLoop {
				break
			}
		}
		if len(list) == 0 {
			return r.run(otherwise)
		}
		return proceed
	}
}

func (p *parser) assignment() statement {
	names := p.targets()
	if len(names) == 1 && p.op(".") {
		attribute := p.want(name, "an attribute")
		p.wantOp("=")
		value := p.tuple(true)
		p.end()
		return func(r *rendering) signal {
			space, ok := r.lookup(names[0]).(namespace)
			if !ok {
				r.fail("%s is no namespace: its attributes cannot be set", names[0])
			}
			space[attribute] = value(r)
			return proceed
		}
	}
	if p.op("=") {
		value := p.tuple(true)
		p.end()
		return func(r *rendering) signal {
			r.assign(names, value(r))
			return proceed
		}
	}
	p.end()
	body, _ := p.body("endset")
	p.end()
	return func(r *rendering) signal {
		r.assign(names, r.capture(body))
		return proceed
	}
}

func (p *parser) macro() statement {
	called := p.want(name, "the name of the macro")
	p.wantOp("(")
	var parameters []string
	var defaults []expression
	for !p.op(")") {
		parameter := p.want(name, "a parameter")
		value := constant(undefined(parameter))
		if p.op("=") {
			value = p.expression()
		}
		parameters, defaults = append(parameters, parameter), append(defaults, value)
		if !p.op(",") {
			p.wantOp(")")
			break
		}
	}
	p.end()
	body, _ := p.body("endmacro")
	p.end()
	return func(r *rendering) signal {
		defined := r.scope
		r.scope.vars[called] = function(func(r *rendering, a arguments) any {
			caller := r.scope
			r.scope = defined
			defer func() { r.scope = caller }()
			defer r.enter()()
			given := r.bind("macro "+called, a, parameters...)
			for i, parameter := range parameters {
				value, ok := given[parameter]
				if !ok {
					value = defaults[i](r)
				}
				r.scope.vars[parameter] = value
			}
			return r.capture(body)
		})
		return proceed
	}
}

// tuple parses expressions separated by commas, which are a list, or one expression. In a for statement an if begins
// the filter.
func (p *parser) tuple(conditional bool) expression {
	next := p.expression
	if !conditional {
		next = p.disjunction
	}
	first := next()
	if !p.is(operator, ",") {
		return first
	}
	list := []expression{first}
	for p.op(",") {
		if k := p.peek(); k.kind == endBlock || k.kind == endPrint || p.is(operator, ")") {
			break
		}
		list = append(list, next())
	}
	return func(r *rendering) any { return r.all(list) }
}

// expression parses one expression.
func (p *parser) expression() expression {
	defer p.nest()()
	then := p.disjunction()
	if !p.word("if") {
		return then
	}
	condition, otherwise := p.disjunction(), constant(undefined(""))
	if p.word("else") {
		otherwise = p.expression()
	}
	return func(r *rendering) any {
		if truth(condition(r)) {
			return then(r)
		}
		return otherwise(r)
	}
}

// step is a link of a chain: an operator, an attribute or a filter, given the value before it.
type step func(r *rendering, v any) any

// chain applies steps in order. Evaluating a long chain takes no more stack than its deepest step.
func chain(first expression, steps []step) expression {
	if len(steps) == 0 {
		return first
	}
	return func(r *rendering) any {
		r.charge(len(steps))
		v := first(r)
		for _, s := range steps {
			v = s(r, v)
		}
		return v
	}
}

func (p *parser) disjunction() expression { return p.logical("or", p.conjunction, true) }
func (p *parser) conjunction() expression { return p.logical("and", p.negation, false) }

// logical parses operands joined by or, or by and. The value is the first whose truth is decides, else the last.
func (p *parser) logical(op string, operand func() expression, decides bool) expression {
	first := operand()
	var steps []step
	for p.word(op) {
		next := operand()
		steps = append(steps, func(r *rendering, v any) any {
			if truth(v) == decides {
				return v
			}
			return next(r)
		})
	}
	return chain(first, steps)
}

func (p *parser) negation() expression {
	if !p.word("not") {
		return p.comparison()
	}
	defer p.nest()()
	value := p.negation()
	return func(r *rendering) any { return !truth(value(r)) }
}

// relation takes the operator of a comparison, empty if there is none.
func (p *parser) relation() string {
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if p.op(op) {
			return op
		}
	}
	if p.word("in") {
		return "in"
	}
	if next := p.tokens[min(p.at+1, len(p.tokens)-1)]; p.is(name, "not") && next.kind == name && next.text == "in" {
		p.at += 2
		return "not in"
	}
	return ""
}

// comparison parses a chain of comparisons: a < b < c is a < b and b < c.
func (p *parser) comparison() expression {
	first := p.binary(0)
	var relations []string
	var rest []expression
	for op := p.relation(); op != ""; op = p.relation() {
		relations, rest = append(relations, op), append(rest, p.binary(0))
	}
	if len(rest) == 0 {
		return first
	}
	return func(r *rendering) any {
		left := first(r)
		for i, op := range relations {
			right := rest[i](r)
			if !r.compare(op, left, right) {
				return false
			}
			left = right
		}
		return true
	}
}

// binary parses operators from a level of precedence on.
func (p *parser) binary(level int) expression {
	levels := [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}
	if level == len(levels) {
		return p.unary(true)
	}
	first := p.binary(level + 1)
	var steps []step
	for p.peek().kind == operator && slices.Contains(levels[level], p.peek().text) {
		op, right := p.take().text, p.binary(level+1)
		steps = append(steps, func(r *rendering, left any) any { return r.operate(op, left, right(r)) })
	}
	return chain(first, steps)
}

// unary parses signs, a value and what follows it.
func (p *parser) unary(filters bool) expression {
	defer p.nest()()
	var value expression
	switch {
	case p.op("-"):
		of := p.unary(false)
		value = func(r *rendering) any { return r.operate("-", 0, of(r)) }
	case p.op("+"):
		value = p.unary(false)
	default:
		value = p.primary()
	}
	value = p.postfix(value)
	if filters {
		value = p.filters(value)
	}
	return func(r *rendering) any {
		r.charge(1)
		return value(r)
	}
}

func (p *parser) primary() expression {
	t := p.take()
	switch t.kind {
	case text:
		whole := t.text
		for p.peek().kind == text {
			whole += p.take().text
		}
		return constant(whole)
	case integer:
		n, err := strconv.Atoi(t.text)
		if err != nil || n >= tooLarge {
			p.fail("the integer %s is too large: want less than 2^53", t.text)
		}
		return constant(n)
	case float:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.fail("%s is too large", t.text)
		}
		return constant(f)
	case name:
		switch t.text {
		case "true", "True":
			return constant(true)
		case "false", "False":
			return constant(false)
		case "none", "None":
			return constant(nil)
		}
		return func(r *rendering) any { return r.lookup(t.text) }
	case operator:
		switch t.text {
		case "(":
			if p.op(")") {
				return constant([]any(nil))
			}
			value := p.tuple(true)
			p.wantOp(")")
			return value
		case "[":
			list := p.expressions("]")
			return func(r *rendering) any { return r.all(list) }
		case "{":
			return p.dictionary()
		}
	}
	p.fail("%q: want a value", t.text)
	return nil
}

func constant(v any) expression { return func(*rendering) any { return v } }

// expressions parses expressions up to a closing bracket.
func (p *parser) expressions(closing string) (list []expression) {
	for !p.op(closing) {
		list = append(list, p.expression())
		if !p.op(",") {
			p.wantOp(closing)
			break
		}
	}
	return list
}

func (p *parser) dictionary() expression {
	var keys, values []expression
	for !p.op("}") {
		keys = append(keys, p.expression())
		p.wantOp(":")
		values = append(values, p.expression())
		if !p.op(",") {
			p.wantOp("}")
			break
		}
	}
	return func(r *rendering) any {
		var d Dict
		r.charge(len(keys) * bytesOfValue)
		for i, k := range keys {
			key, ok := k(r).(string)
			if !ok {
				r.fail("a dictionary has a key that is no string")
			}
			d = r.with(d, key, values[i](r))
		}
		return d
	}
}

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(value expression) expression {
	var steps []step
	for {
		switch {
		case p.op("."):
			attribute := p.want(name, "an attribute")
			steps = append(steps, func(r *rendering, v any) any { return r.attribute(v, attribute) })
		case p.op("["):
			steps = append(steps, p.subscript())
		case p.op("("):
			steps = append(steps, p.call())
		default:
			return chain(value, steps)
		}
	}
}

func (p *parser) call() step {
	a := p.arguments()
	return func(r *rendering, v any) any { return r.call(v, a(r)) }
}

func (p *parser) subscript() step {
	var parts [3]expression // of a slice
	n := 0                  // colons
	for !p.op("]") {
		switch {
		case p.op(":"):
			n++
		case n < len(parts) && parts[n] == nil:
			parts[n] = p.expression()
		default:
			p.fail("%q: want ]", p.peek().text)
		}
		if n == len(parts) {
			p.fail("a slice has more than three parts")
		}
	}
	if n == 0 {
		if parts[0] == nil {
			p.fail("an index is missing")
		}
		return func(r *rendering, v any) any { return r.item(v, parts[0](r)) }
	}
	return func(r *rendering, v any) any {
		var bounds [3]any
		for i, part := range parts {
			if part != nil {
				bounds[i] = part(r)
			}
		}
		return r.slice(v, bounds)
	}
}

// arguments are those of a call.
type arguments struct {
	list  []any
	named Dict
}

// arguments parses those of a call, after its opening bracket.
func (p *parser) arguments() func(r *rendering) arguments {
	var list []expression
	var names []string
	var named []expression
	for !p.op(")") {
		if next := p.tokens[min(p.at+1, len(p.tokens)-1)]; p.peek().kind == name && next.kind == operator &&
			next.text == "=" {
			names = append(names, p.take().text)
			p.take()
			named = append(named, p.expression())
		} else {
			list = append(list, p.expression())
		}
		if !p.op(",") {
			p.wantOp(")")
			break
		}
	}
	return func(r *rendering) arguments {
		a := arguments{list: r.all(list)}
		for i, v := range r.all(named) {
			a.named = append(a.named, Pair{names[i], v})
		}
		return a
	}
}

func noArguments(*rendering) arguments { return arguments{} }

// filters parses filters, tests and calls of their results.
func (p *parser) filters(value expression) expression {
	var steps []step
	for {
		switch {
		case p.op("|"):
			filter := p.want(name, "a filter")
			a := noArguments
			if p.op("(") {
				a = p.arguments()
			}
			steps = append(steps, func(r *rendering, v any) any { return r.filter(filter, v, a(r)) })
		case p.word("is"):
			steps = append(steps, p.test())
		case p.op("("):
			steps = append(steps, p.call())
		default:
			return chain(value, steps)
		}
	}
}

// test parses a test, whose argument may stand without brackets.
func (p *parser) test() step {
	negated := p.word("not")
	test := p.want(name, "a test")
	a := noArguments
	next := p.peek()
	begins := next.kind == text || next.kind == integer || next.kind == float || p.is(operator, "[") ||
		next.kind == name && !slices.Contains([]string{"else", "or", "and", "is", "if", "in", "not"}, next.text)
	switch {
	case p.op("("):
		a = p.arguments()
	case begins:
		argument := p.postfix(p.primary())
		a = func(r *rendering) arguments { return arguments{list: []any{argument(r)}} }
	}
	return func(r *rendering, v any) any { return r.test(test, v, a(r)) != negated }
}
