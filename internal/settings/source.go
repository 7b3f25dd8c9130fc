package settings

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// source is a text of YAML, in which the places of values are looked up once somebody asks.
type source struct {
	text []byte
	top  ast.Node
	read bool
}

// line returns the line of what stands at a path, that of its key if it has one; 0 if it is unknown.
func (s *source) line(path []any) int {
	key, value := s.find(path)
	if key == nil {
		key = value
	}
	if key == nil || key.GetToken() == nil {
		return 0
	}
	return key.GetToken().Position.Line
}

// scalar returns a value as it is written, nil if it is none: 007 is a number to YAML, and may be a name.
func (s *source) scalar(path []any) any {
	switch _, value := s.find(path); value.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return value.GetToken().Value
	}
	return nil
}

// find returns the nodes of the last key of a path and of its value, nil where there is none.
func (s *source) find(path []any) (key, value ast.Node) {
	if s == nil {
		return nil, nil
	}
	if !s.read {
		s.read = true
		if file, err := parser.ParseBytes(s.text, 0); err == nil && len(file.Docs) > 0 {
			s.top = file.Docs[0].Body
		}
	}
	value = s.top
	for _, step := range path {
		key, value = below(value, step)
		if value == nil {
			return key, nil
		}
	}
	return key, value
}

// below returns what a mapping has under a key, or a list at an index.
func below(of ast.Node, step any) (key, value ast.Node) {
	switch n := of.(type) {
	case *ast.AnchorNode:
		return below(n.Value, step)
	case *ast.TagNode:
		return below(n.Value, step)
	case *ast.MappingNode:
		for _, pair := range n.Values {
			if pair.Key.GetToken().Value == step {
				return pair.Key, pair.Value
			}
		}
	case *ast.MappingValueNode:
		if n.Key.GetToken().Value == step {
			return n.Key, n.Value
		}
	case *ast.SequenceNode:
		if i, ok := step.(int); ok && i < len(n.Values) {
			return nil, n.Values[i]
		}
	}
	return nil, nil
}
