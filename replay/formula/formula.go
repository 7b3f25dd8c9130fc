package formula

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"

	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Bounds of a formula.
const (
	MaxBytes = 1000
	MaxNodes = 100 // numbers, columns, operators and calls
)

// Column is a number, or true or false, that is known of each rollout or prompt.
type Column int

// The columns of rollouts, in the order of [Columns].
const (
	Reward Column = iota
	Advantage
	GroupMean
	GroupStd
	MeanLogprob
	Length
	Tokens
	Turns
	Truncated
	Uses
	Age
	Version
	SinceUse
	Pending
	columns
)

// The columns of prompts, in the order of [PromptColumns].
const (
	PassRate Column = columns + iota
	MeanPassRate
	PassRateStep
	PassRateVersion
	Tries
	Streak
	Reuses
	Difficulty
)

// Columns returns the name of each column and what it holds, indexed by Column.
func Columns() [][2]string {
	return [][2]string{
		Reward:      {"reward", "of the rollout; of the step, with unit step"},
		Advantage:   {"advantage", "at insertion"},
		GroupMean:   {"group_mean", "mean reward of its group at insertion"},
		GroupStd:    {"group_std", "population standard deviation of those rewards"},
		MeanLogprob: {"mean_logprob", "mean behaviour log-prob of the policy's tokens"},
		Length:      {"length", "tokens that the policy produced"},
		Tokens:      {"tokens", "all tokens, the prompt's included"},
		Turns:       {"turns", "0 for a single turn"},
		Truncated:   {"truncated", "true if it was stopped by length"},
		Uses:        {"uses", "acknowledged so far"},
		Age:         {"age", "versions since its oldest token, which is its staleness"},
		Version:     {"version", "of its oldest token"},
		SinceUse:    {"since_use", "versions since its last use, infinite if it was never used"},
		Pending:     {"pending", "true while nobody knows its reward, with pending_rewards"},
	}
}

// PromptColumns returns the name of each column of a prompt and what it holds, that of PassRate first.
func PromptColumns() [][2]string {
	return [][2]string{
		0:                          {"pass_rate", "of the latest result: right responses over all"},
		MeanPassRate - PassRate:    {"mean_pass_rate", "of all responses so far"},
		PassRateStep - PassRate:    {"pass_rate_step", "latest pass rate less the one before"},
		PassRateVersion - PassRate: {"version", "of the trainers at the latest result"},
		Tries - PassRate:           {"tries", "results so far"},
		Streak - PassRate:          {"streak", "latest results in a row whose responses were all right or all wrong"},
		Reuses - PassRate:          {"reuses", "times it was handed out again"},
		Difficulty - PassRate:      {"difficulty", "what was reported with it, by any measure"},
	}
}

// Row is a rollout or a prompt whose columns a formula reads.
type Row interface {
	// Value returns a column: NaN if it is not known, and 1 or 0 for true or false.
	Value(c Column) float64
	// Meta returns the number that the rollout's meta has under a name, NaN if it has none.
	Meta(name string) float64
}

// vocabulary is what expressions may read, and examples of a number and of a condition.
type vocabulary struct {
	first             Column
	names             [][2]string // of the columns from first on
	meta              bool        // whether there is meta.NAME as well
	number, condition string
}

func ofRollouts() vocabulary {
	return vocabulary{Reward, Columns(), true, "reward - 0.1 * age", "reward >= 1 && age < 8"}
}

func ofPrompts() vocabulary {
	return vocabulary{PassRate, PromptColumns(), false, "pass_rate * (1 - pass_rate)", "pass_rate < 1 && tries < 20"}
}

func ofVersions() vocabulary {
	return vocabulary{Version, Columns()[Version : Version+1], false, "max(0.1, 0.5 - version / 1000)", "version < 100"}
}

// Formula is a parsed expression.
type Formula struct{ root *node }

// Condition parses an expression that is true or false.
func Condition(text string) (*Formula, error) { return parse(text, condition, ofRollouts()) }

// Score parses an expression that is a number.
func Score(text string) (*Formula, error) { return parse(text, number, ofRollouts()) }

// PromptCondition parses an expression that is true or false of a prompt.
func PromptCondition(text string) (*Formula, error) { return parse(text, condition, ofPrompts()) }

// PromptScore parses an expression that is a number for each prompt.
func PromptScore(text string) (*Formula, error) { return parse(text, number, ofPrompts()) }

// Schedule parses an expression that is a number at each version of a table: version is its only column.
func Schedule(text string) (*Formula, error) {
	return parse(text, number, ofVersions())
}

// At returns a schedule's number at a version.
func (f *Formula) At(version float64) float64 { return f.root.value(atVersion(version)) }

// atVersion is the row of a schedule.
type atVersion float64

func (v atVersion) Value(Column) float64 { return float64(v) }
func (atVersion) Meta(string) float64    { return math.NaN() }

// Reads reports whether the formula has one of the columns.
func (f *Formula) Reads(columns ...Column) bool { return f.root.reads(columns) }

func (n *node) reads(columns []Column) bool {
	if n == nil {
		return false
	}
	return n.op == readColumn && slices.Contains(columns, n.column) ||
		slices.ContainsFunc(n.args[:], func(arg *node) bool { return arg.reads(columns) })
}

// Holds reports whether a condition is true of a rollout.
func (f *Formula) Holds(row Row) bool { return f.root.value(row) != 0 }

// Number returns the score of a rollout.
func (f *Formula) Number(row Row) float64 { return f.root.value(row) }

// kind is what an expression evaluates to.
type kind bool

const (
	number    kind = false
	condition kind = true
)

func (k kind) String() string {
	if k == condition {
		return "true or false"
	}
	return "a number"
}

func parse(text string, want kind, of vocabulary) (*Formula, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("an expression of %d bytes: write one of at most %d", len(text), MaxBytes)
	}
	tree, err := parser.Parse(text)
	var syntax *file.Error
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("%.100q: %s at character %d: write an expression such as %s", text, syntax.Message,
			syntax.Column+1, of.example(want))
	case err != nil:
		return nil, fmt.Errorf("%.100q: %w", text, err)
	}
	c := compiler{of: of}
	root, err := c.typed(tree.Node, want, "the expression")
	if err != nil {
		return nil, fmt.Errorf("%.100q: %w", text, err)
	}
	return &Formula{root}, nil
}

func (v vocabulary) example(k kind) string {
	if k == condition {
		return v.condition
	}
	return v.number
}

// op is what a node does with the values of its arguments.
type op int

const (
	constant op = iota
	readColumn
	readMeta
	negate
	not
	add
	subtract
	multiply
	divide
	modulo
	power
	equal
	unequal
	less
	atMost
	and
	or
	choose // the second argument if the first is true, else the third
	known
	absolute
	floor
	ceiling
	squareRoot
	exponential
	logarithm
	least
	greatest
)

// node is a part of a compiled formula. True is 1, false 0.
type node struct {
	op     op
	number float64 // of a constant
	column Column
	name   string // of meta
	args   [3]*node
}

// value evaluates the node. It reads no argument that cannot change the result.
func (n *node) value(row Row) float64 {
	switch n.op {
	case constant:
		return n.number
	case readColumn:
		return row.Value(n.column)
	case readMeta:
		return row.Meta(n.name)
	case and:
		return truth(n.args[0].value(row) != 0 && n.args[1].value(row) != 0)
	case or:
		return truth(n.args[0].value(row) != 0 || n.args[1].value(row) != 0)
	case choose:
		if n.args[0].value(row) != 0 {
			return n.args[1].value(row)
		}
		return n.args[2].value(row)
	}
	a := n.args[0].value(row)
	if n.args[1] == nil {
		return n.op.ofOne(a)
	}
	return n.op.ofTwo(a, n.args[1].value(row))
}

func (o op) ofOne(a float64) float64 {
	switch o {
	case negate:
		return -a
	case not:
		return truth(a == 0)
	case known:
		return truth(a == a)
	case absolute:
		return math.Abs(a)
	case floor:
		return math.Floor(a)
	case ceiling:
		return math.Ceil(a)
	case squareRoot:
		return math.Sqrt(a)
	case exponential:
		return math.Exp(a)
	}
	return math.Log(a)
}

func (o op) ofTwo(a, b float64) float64 {
	switch o {
	case add:
		return a + b
	case subtract:
		return a - b
	case multiply:
		return a * b
	case divide:
		return a / b
	case modulo:
		return math.Mod(a, b)
	case power:
		return math.Pow(a, b)
	case equal:
		return truth(a == b)
	case unequal:
		return truth(a != b)
	case less:
		return truth(a < b)
	case atMost:
		return truth(a <= b)
	case least:
		return min(a, b)
	}
	return max(a, b)
}

func truth(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// operator is a binary operator of numbers or conditions.
type operator struct {
	op            op
	takes, gives  kind
	swapped, both bool // whether the arguments change places; whether it takes two conditions too
}

func operatorOf(sign string) (o operator, ok bool) {
	comparison := func(o op, swapped bool) operator { return operator{op: o, gives: condition, swapped: swapped} }
	equality := func(o op) operator { return operator{op: o, gives: condition, both: true} }
	logical := func(o op) operator { return operator{op: o, takes: condition, gives: condition} }
	switch sign {
	case "+":
		o.op = add
	case "-":
		o.op = subtract
	case "*":
		o.op = multiply
	case "/":
		o.op = divide
	case "%":
		o.op = modulo
	case "**", "^":
		o.op = power
	case "<":
		o = comparison(less, false)
	case "<=":
		o = comparison(atMost, false)
	case ">":
		o = comparison(less, true)
	case ">=":
		o = comparison(atMost, true)
	case "==":
		o = equality(equal)
	case "!=":
		o = equality(unequal)
	case "&&", "and":
		o = logical(and)
	case "||", "or":
		o = logical(or)
	default:
		return o, false
	}
	return o, true
}

// function takes and, but for known, gives numbers; of least and greatest, two or more.
type function struct {
	op   op
	most int // arguments; 0: two or more
}

func functions() map[string]function {
	return map[string]function{
		"abs": {absolute, 1}, "ceil": {ceiling, 1}, "exp": {exponential, 1}, "floor": {floor, 1}, "known": {known, 1},
		"log": {logarithm, 1}, "max": {greatest, 0}, "min": {least, 0}, "sqrt": {squareRoot, 1},
	}
}

// Functions returns the names of the functions, in order.
func Functions() []string {
	return slices.Sorted(maps.Keys(functions()))
}

// compiler turns the parser's tree into nodes and checks their kinds.
type compiler struct {
	of    vocabulary
	nodes int
}

// typed compiles a part that must be of a kind. By is what needs it, for the error.
func (c *compiler) typed(part ast.Node, want kind, by string) (*node, error) {
	n, got, err := c.compile(part)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %s, and %s must be %s: write an expression such as %s", part, got, by, want,
			c.of.example(want))
	}
	return n, err
}

func (c *compiler) compile(part ast.Node) (*node, kind, error) {
	if c.nodes++; c.nodes > MaxNodes {
		return nil, number, fmt.Errorf("more than %d numbers, columns, operators and calls: write a shorter expression",
			MaxNodes)
	}
	switch p := part.(type) {
	case *ast.IntegerNode:
		return &node{number: float64(p.Value)}, number, nil
	case *ast.FloatNode:
		return &node{number: p.Value}, number, nil
	case *ast.BoolNode:
		return &node{number: truth(p.Value)}, condition, nil
	case *ast.IdentifierNode:
		return c.column(p.Value)
	case *ast.MemberNode:
		return c.meta(p)
	case *ast.UnaryNode:
		return c.unary(p)
	case *ast.BinaryNode:
		return c.binary(p)
	case *ast.ConditionalNode:
		return c.conditional(p)
	case *ast.CallNode:
		if callee, ok := p.Callee.(*ast.IdentifierNode); ok {
			return c.call(callee.Value, p.Arguments)
		}
	case *ast.BuiltinNode:
		return c.call(p.Name, p.Arguments)
	}
	return nil, number, fmt.Errorf("%s is neither a number nor true or false: use numbers, columns, operators and "+
		"the functions %s", nameOf(part), option.List(Functions()))
}

// nameOf names what formulas do not have. It does not write the part out: the text of a ?: b repeats a, and so grows
// exponentially with its depth.
func nameOf(part ast.Node) string {
	switch part.(type) {
	case *ast.StringNode, *ast.BytesNode:
		return "a text"
	case *ast.ArrayNode, *ast.SliceNode:
		return "a list"
	case *ast.MapNode:
		return "a map"
	case *ast.NilNode:
		return "nil"
	case *ast.PredicateNode, *ast.PointerNode:
		return "a loop"
	case *ast.VariableDeclaratorNode, *ast.SequenceNode:
		return "a sequence of expressions"
	}
	return "a part of it"
}

func (c *compiler) column(name string) (*node, kind, error) {
	var names []string
	for i, column := range c.of.names {
		if column[0] == name {
			at := c.of.first + Column(i)
			return &node{op: readColumn, column: at}, kind(at == Truncated || at == Pending), nil
		}
		names = append(names, column[0])
	}
	if c.of.meta {
		names = append(names, "meta.NAME")
	}
	return nil, number, unknown("column", name, names)
}

// unknown says what there is in place of a name that there is not.
func unknown(what, name string, names []string) error {
	if i := slices.IndexFunc(names, func(n string) bool { return words.OneTypoApart(n, name) }); i >= 0 {
		return fmt.Errorf("there is no %s %s: use %s", what, name, names[i])
	}
	return fmt.Errorf("there is no %s %s: use %s", what, name, option.List(names))
}

func (c *compiler) meta(p *ast.MemberNode) (*node, kind, error) {
	of, ok := p.Node.(*ast.IdentifierNode)
	name, named := p.Property.(*ast.StringNode)
	if !c.of.meta {
		_, _, err := c.column("meta")
		return nil, number, err
	}
	if !ok || of.Value != "meta" || !named || p.Optional {
		return nil, number, errors.New("a member of what is not meta: use meta.NAME or meta[\"NAME\"]")
	}
	return &node{op: readMeta, name: name.Value}, number, nil
}

func (c *compiler) unary(p *ast.UnaryNode) (*node, kind, error) {
	takes, o := number, negate
	if p.Operator == "not" || p.Operator == "!" {
		takes, o = condition, not
	}
	by := "what " + p.Operator + " takes"
	if takes == condition {
		by += ", which binds before comparisons,"
	}
	n, err := c.typed(p.Node, takes, by)
	if err != nil || p.Operator == "+" {
		return n, takes, err
	}
	return &node{op: o, args: [3]*node{n}}, takes, nil
}

func (c *compiler) binary(p *ast.BinaryNode) (*node, kind, error) {
	o, ok := operatorOf(p.Operator)
	if !ok {
		return nil, number, fmt.Errorf("%s is no operator here: use + - * / %% **, comparisons, and, or, not, or a ? b : c",
			p.Operator)
	}
	a, takes, err := c.compile(p.Left)
	if err != nil {
		return nil, number, err
	}
	if takes != o.takes && !o.both {
		_, err = c.typed(p.Left, o.takes, "what "+p.Operator+" takes")
		return nil, number, err
	}
	b, err := c.typed(p.Right, takes, "what "+p.Operator+" takes here")
	if o.swapped {
		a, b = b, a
	}
	return &node{op: o.op, args: [3]*node{a, b}}, o.gives, err
}

func (c *compiler) conditional(p *ast.ConditionalNode) (*node, kind, error) {
	if p.Cond == p.Exp1 {
		return nil, number, errors.New("a ?: b lacks what stands between ? and :, write a ? a : b")
	}
	test, err := c.typed(p.Cond, condition, "what stands before ?")
	if err != nil {
		return nil, number, err
	}
	yes, gives, err := c.compile(p.Exp1)
	if err != nil {
		return nil, number, err
	}
	no, err := c.typed(p.Exp2, gives, "what stands after :")
	return &node{op: choose, args: [3]*node{test, yes, no}}, gives, err
}

func (c *compiler) call(name string, args []ast.Node) (*node, kind, error) {
	f, ok := functions()[name]
	if !ok {
		return nil, number, unknown("function", name, Functions())
	}
	if f.most == 1 && len(args) != 1 || f.most == 0 && len(args) < 2 {
		want := "one number"
		if f.most == 0 {
			want = "two numbers or more"
		}
		return nil, number, fmt.Errorf("%s takes %s, and not %d: correct its arguments", name, want, len(args))
	}
	var folded *node
	for _, arg := range args {
		n, err := c.typed(arg, number, "what "+name+" takes")
		switch {
		case err != nil:
			return nil, number, err
		case f.most == 1 || folded != nil:
			folded = &node{op: f.op, args: [3]*node{folded, n}}
			if f.most == 1 {
				folded.args = [3]*node{n}
			}
		default:
			folded = n
		}
	}
	return folded, kind(f.op == known), nil
}
