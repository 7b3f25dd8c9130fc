package answer

// bracketed reads what stands between brackets of any kind.
func (p *parser) bracketed() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	t := p.peek()
	switch t.text {
	case "{":
		return p.group()
	case "|":
		p.at++
		return p.absolute("|")
	case "(", "[", "lbrace", "langle", "lfloor", "lceil":
	default:
		return nil, p.unexpected()
	}
	p.at++
	bars := p.bars
	p.bars = 0
	defer func() { p.bars = bars }()
	if t.text == "lbrace" && p.command("rbrace") {
		p.at++
		return &node{op: opSet}, nil
	}
	inner, err := p.list()
	if err != nil {
		return nil, err
	}
	closing := p.peek().text
	p.at++
	return enclosed(t.text, closing, inner)
}

// enclosed returns the node of what stands between two brackets.
func enclosed(opening, closing string, inner *node) (*node, error) {
	items := []*node{inner}
	if inner.op == opList {
		items = inner.args
	}
	switch opening + closing {
	case "lbracerbrace":
		return &node{op: opSet, args: items}, nil
	case "lfloorrfloor":
		return call("floor", items...), nil
	case "lceilrceil":
		return call("ceil", items...), nil
	case "langlerangle", "()":
		if inner.op != opList && opening == "(" {
			return inner, nil
		}
		return &node{op: opTuple, name: "()", args: items}, nil
	case "[]":
		if inner.op != opList {
			return inner, nil
		}
		return &node{op: opTuple, name: "[]", args: items}, nil
	case "(]", "[)":
		if len(items) == 2 {
			return &node{op: opTuple, name: opening + closing, args: items}, nil
		}
	}
	return nil, errAmbiguous
}

// absolute reads up to the bar that closes an absolute value.
func (p *parser) absolute(bar string) (*node, error) {
	p.bars++
	inner, err := p.sum()
	p.bars--
	if err != nil {
		return nil, err
	}
	if p.peek().text != bar {
		return nil, p.unexpected()
	}
	p.at++
	return call("abs", inner), nil
}

// matrix reads the rows of \begin{pmatrix}.
func (p *parser) matrix() (*node, error) {
	name := p.ahead(1).text
	if p.peek().text != "{" || p.ahead(2).text != "}" || name != "pmatrix" && name != "bmatrix" && name != "matrix" {
		return nil, p.unexpected()
	}
	p.at += 3
	m, row := &node{op: opMatrix}, &node{op: opList}
	for {
		if p.command("newline") { // after the last row too
			p.at++
			if len(row.args) > 0 {
				m.args, row = append(m.args, row), &node{op: opList}
			}
			continue
		}
		if p.command("end") && p.ahead(2).text == name {
			p.at += 4
			if len(row.args) > 0 {
				m.args = append(m.args, row)
			}
			return m, nil
		}
		if len(row.args) > 0 {
			if err := p.expect("&"); err != nil {
				return nil, err
			}
		}
		entry, err := p.sum()
		if err != nil {
			return nil, err
		}
		row.args = append(row.args, entry)
	}
}
