// Package browse shows people the rollouts of a table: a list with filters, sorting and full-text search, and each
// rollout token by token, beside its group and the other rollouts of its prompt.
//
// A [Source] answers questions about a table with [Page]s of [Row]s and with a [Rollout] as a whole, all of which are
// JSON as they are. [Table] is the source of a table in this process; services and their clients have others.
// [Handler] serves the page, which asks the source by HTTP.
//
// Rows are bounded ([RowBytes]), and so is a rollout, by its own size ([Bytes]): a service charges them before it makes
// them. What rollouts say is never trusted: the page shows texts as texts only, with what cannot be seen made visible,
// and its content security policy allows the page's own script and style and no other host.
package browse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// Source answers questions about a table. Its methods may be called concurrently. Errors wrap rollout.ErrInvalid where
// the question is wrong.
type Source interface {
	// Rollouts returns a page of the rollouts that a query finds.
	Rollouts(ctx context.Context, q replay.Query) (Page, error)
	// Rollout returns all that is known of a rollout: of one that has left, what Options.History remembers. Its error
	// wraps [ErrGone] if that is nothing.
	Rollout(ctx context.Context, id rollout.ID) (Rollout, error)
}

// ErrGone says that the table does not hold a rollout, nor remembers its life.
var ErrGone = errors.New("the table does not hold it: it has left, or was never there; a table with history " +
	"remembers the latest that left")

// Page is rollouts of a table.
type Page struct {
	Version rollout.Version `json:"version"` // of the table
	Matched int             `json:"matched"` // rollouts that the query finds
	Rows    []Row           `json:"rollouts"`
	Down    []int           `json:"down,omitempty"` // parts of the table that did not answer: theirs are missing
}

// Row is what a list shows of a rollout.
type Row struct {
	ID          rollout.ID      `json:"id"`
	Group       uint64          `json:"group"`
	PromptID    string          `json:"prompt_id"`
	Reward      Number          `json:"reward"`
	Advantage   Number          `json:"advantage"`
	Version     rollout.Version `json:"version"` // of its oldest token
	Age         int             `json:"age"`
	Uses        int             `json:"uses"`
	OnLease     int             `json:"on_lease"`
	Length      int             `json:"length"` // tokens that the policy produced
	Tokens      int             `json:"tokens"` // all
	Turns       int             `json:"turns"`
	MeanLogprob Number          `json:"mean_logprob"`
	Truncated   bool            `json:"truncated"`
	Probability Number          `json:"probability"` // that its shard's next draw falls on it
	Text        string          `json:"text"`
	Cut         bool            `json:"cut,omitempty"`   // text or prompt_id has more
	Order       *float64        `json:"order,omitempty"` // by which the query orders; nil: by nothing, or not known
}

// Rollout is all that is known of a rollout.
type Rollout struct {
	Row
	TableVersion rollout.Version `json:"table_version"`
	Shard        int             `json:"shard"`
	GroupMean    Number          `json:"group_mean"`
	GroupStd     Number          `json:"group_std"`
	LastUse      rollout.Version `json:"last_use"` // version of the table; -1: never used
	Base         Number          `json:"base"`     // of its priority
	AtMax        bool            `json:"at_max"`   // still at the largest base, at which it entered
	Fresh        bool            `json:"fresh"`    // not handed out as fresh yet
	Pinned       bool            `json:"pinned"`   // max_staleness does not evict it
	Waiting      bool            `json:"waiting"`  // for the rewards of its group

	Temperature Number            `json:"temperature"`
	TopP        Number            `json:"top_p"`
	TokenIDs    []int32           `json:"token_ids"`
	Mask        []int8            `json:"mask"`
	Logprobs    []Number          `json:"logprobs"`
	Versions    []rollout.Version `json:"versions"`
	Advantages  []Number          `json:"advantages,omitempty"`
	Values      []Number          `json:"values,omitempty"`
	RefLogprobs []Number          `json:"ref_logprobs,omitempty"`
	TurnList    []Turn            `json:"turn_list,omitempty"`
	Images      int               `json:"images,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`

	PromptText string   `json:"prompt_text,omitempty"` // decoded
	Decoded    bool     `json:"decoded,omitempty"`     // the text is not the client's
	Pieces     []string `json:"pieces,omitempty"`      // each token decoded by itself

	Scorable     bool `json:"scorable,omitempty"`      // a policy can be asked by [Scorer]
	SamplingMask bool `json:"sampling_mask,omitempty"` // tokens were drawn from lists of ids, not from all

	Left bool         `json:"left,omitempty"` // of it only its id, group, version, reward, advantage and life are known
	Life *replay.Life `json:"life,omitempty"` // nil: the table does not remember it
	// rewards given late, the latest last, as far as the table remembers them
	Labels []replay.Labelling `json:"labels,omitempty"`

	Mates  []Row `json:"group_rollouts"`  // of its group, itself among them, the oldest first
	Others Page  `json:"prompt_rollouts"` // other groups' of its prompt, the newest version first
}

// Scorer is a source that has a policy to score rollouts with.
type Scorer interface {
	// Score returns the log-probs of a rollout's tokens by the policy. Errors are those of [Source].Rollout.
	Score(ctx context.Context, id rollout.ID) (Scored, error)
}

// Scored is what a policy would give a rollout's tokens.
type Scored struct {
	Policy   string   `json:"policy"`   // which it is, in words
	Logprobs []Number `json:"logprobs"` // at the rollout's temperature; null for tokens that no policy produced
}

// Turn is rollout.Turn.
type Turn struct {
	Start  int32  `json:"start"`
	End    int32  `json:"end"`
	Reward Number `json:"reward"`
	Done   bool   `json:"done"`
}

// Number is replay.Number.
type Number = replay.Number

// Bounds of what is shown beside a rollout, and of the texts in rows.
const (
	preview     = 300  // bytes of a row's text and prompt
	matePreview = 1000 // of one beside its group
	maxMates    = 64
	maxOthers   = 100
	maxLabels   = 16

	worstJSON   = 6 // bytes of JSON for a byte: \u0000
	rowNumbers  = 512
	mateBytes   = worstJSON*2*matePreview + rowNumbers
	eventBytes  = 1024 // a caller's name among them
	pieceBytes  = 32   // of a token's text beside its bytes, in memory and as JSON
	labelBytes  = worstJSON*2*rollout.MostRewardBytes + rowNumbers
	lifeBytes   = rowNumbers + replay.MostEvents*eventBytes + maxLabels*labelBytes
	besideBytes = maxMates*mateBytes + maxOthers*RowBytes + lifeBytes
)

// LeftBytes is the most that a rollout that has left takes as JSON.
const LeftBytes = RowBytes + rowNumbers + lifeBytes

// RowBytes is the most that a row takes as JSON.
const RowBytes = worstJSON*2*preview + rowNumbers

// Decoder makes texts of tokens. Its methods may be called concurrently.
type Decoder interface {
	Decode(ids []int32) string
	DecodedBytes(ids []int32) int64 // the most that Decode returns
}

// Table is the source of a table in this process.
type Table struct {
	*replay.Table
	Decoder Decoder // for the texts of rollouts that came without one, for prompts and for tokens; nil: none
	Policy  Policy  // nil: none
}

// Policy scores rollouts. Its method may be called concurrently.
type Policy interface {
	// Score returns the log-prob of each token of a rollout at its temperature, and in words which policy it is.
	Score(ctx context.Context, r *rollout.Rollout) (logprobs []float32, name string, err error)
}

// Bytes returns the most that a rollout takes as JSON, with what is shown beside it.
func (t Table) Bytes(r *rollout.Rollout) int64 {
	n := worstJSON*r.Bytes() + besideBytes
	if t.Decoder != nil {
		n += (1+2*worstJSON)*t.Decoder.DecodedBytes(r.Tokens) + pieceBytes*int64(len(r.Tokens))
	}
	return n
}

// Rollouts implements [Source].
func (t Table) Rollouts(ctx context.Context, q replay.Query) (Page, error) {
	matched, held, err := t.Inspect().Find(ctx, q)
	page := Page{Version: t.Version(), Matched: matched, Rows: t.rows(held, preview)}
	for i := range held {
		if order := held[i].Order; q.Order != "" && !math.IsNaN(order) { // JSON knows no infinity
			order = max(-math.MaxFloat64, min(order, math.MaxFloat64))
			page.Rows[i].Order = &order
		}
	}
	return page, err
}

// Rollout implements [Source].
func (t Table) Rollout(ctx context.Context, id rollout.ID) (Rollout, error) {
	h, ok := t.Inspect().Get(id)
	if !ok {
		return t.ShowLeft(id)
	}
	return t.Show(ctx, h)
}

// ShowLeft returns what is known of a rollout that the table does not hold. Its error wraps [ErrGone] if that is
// nothing.
func (t Table) ShowLeft(id rollout.ID) (Rollout, error) {
	life, ok := t.Inspect().Life(id)
	if !ok {
		return Rollout{}, fmt.Errorf("rollout %d: %w", id, ErrGone)
	}
	v, unknown := t.Version(), Number(math.NaN())
	row := Row{ID: id, Group: life.Group, Reward: life.Reward, Advantage: life.Advantage,
		Version: life.Made, Age: int(v - life.Made), MeanLogprob: unknown, Probability: unknown}
	return Rollout{Row: row, TableVersion: v, LastUse: rollout.NoVersion, GroupMean: unknown, GroupStd: unknown,
		Base: unknown, Left: true, Life: &life, Labels: t.labels(id)}, nil
}

// Show returns all that is known of a rollout that the table holds.
func (t Table) Show(ctx context.Context, h replay.Held) (Rollout, error) {
	x := h.Rollout
	shown := Rollout{
		Row: t.rowOf(h, math.MaxInt), TableVersion: t.Version(), Shard: h.Shard,
		GroupMean: Number(h.Mean), GroupStd: Number(h.Std), LastUse: h.LastUse, Base: Number(h.Base),
		AtMax: h.AtMax, Fresh: h.Fresh, Pinned: h.Pinned, Waiting: h.Waiting,
		Temperature: Number(x.Temperature), TopP: Number(x.TopP), TokenIDs: x.Tokens, Versions: x.Versions,
		Mask: make([]int8, len(x.Mask)), Logprobs: numbers(x.Logprobs), Advantages: numbers(x.Advantages),
		Values: numbers(x.Values), RefLogprobs: numbers(x.RefLogprobs), Images: len(x.Images), Meta: x.Meta,
		Scorable: t.Policy != nil, SamplingMask: x.SamplingMask.Len() > 0,
	}
	for i, m := range x.Mask {
		shown.Mask[i] = int8(m)
	}
	if t.Decoder != nil {
		shown.Decoded = x.Text == ""
		shown.PromptText = t.Decoder.Decode(x.Tokens[:promptTokens(x)])
		shown.Pieces = make([]string, len(x.Tokens))
		for i := range x.Tokens {
			shown.Pieces[i] = t.Decoder.Decode(x.Tokens[i : i+1])
		}
	}
	for _, turn := range x.Turns {
		shown.TurnList = append(shown.TurnList, Turn{turn.Start, turn.End, Number(turn.Reward), turn.Done})
	}
	if life, ok := t.Inspect().Life(h.ID); ok {
		shown.Life = &life
	}
	shown.Labels = t.labels(h.ID)
	_, mates, err := t.Inspect().Find(ctx, replay.Query{Group: h.Group, Limit: maxMates})
	if err != nil {
		return Rollout{}, err
	}
	if !slices.ContainsFunc(mates, func(m replay.Held) bool { return m.ID == h.ID }) { // of a large group the newest
		mates = append(mates[:min(len(mates), maxMates-1)], h)
	}
	slices.SortFunc(mates, func(a, b replay.Held) int { return cmp.Compare(a.ID, b.ID) })
	shown.Mates = t.rows(mates, matePreview)
	if x.PromptID != "" { // nobody knows which rollouts without one are of the same prompt
		shown.Others, err = t.Rollouts(ctx, OtherGroups(&shown))
	}
	return shown, err
}

// Score implements [Scorer].
func (t Table) Score(ctx context.Context, id rollout.ID) (Scored, error) {
	if t.Policy == nil {
		return Scored{}, fmt.Errorf("rollout %d cannot be scored, as there is no policy here: the board scores those of a "+
			"run with its checkpoint, and reprise rollouts with --policy: %w", id, rollout.ErrInvalid)
	}
	h, ok := t.Inspect().Get(id)
	if !ok {
		return Scored{}, fmt.Errorf("rollout %d: %w", id, ErrGone)
	}
	logprobs, name, err := t.Policy.Score(ctx, h.Rollout)
	if err != nil {
		return Scored{}, err
	}
	scored := Scored{Policy: name, Logprobs: numbers(logprobs)}
	for i, m := range h.Rollout.Mask {
		if m == 0 {
			scored.Logprobs[i] = Number(math.NaN())
		}
	}
	return scored, nil
}

// OtherGroups returns the query for [Rollout].Others.
func OtherGroups(r *Rollout) replay.Query {
	return replay.Query{Prompt: r.PromptID, Except: r.Group, Order: "version", Limit: maxOthers}
}

// labels returns the latest rewards that a rollout was given late.
func (t Table) labels(id rollout.ID) []replay.Labelling {
	list := t.Inspect().Labels(id)
	return list[max(0, len(list)-maxLabels):]
}

func (t Table) rows(held []replay.Held, most int) []Row {
	list := make([]Row, len(held))
	for i, h := range held {
		list[i] = t.rowOf(h, most)
	}
	return list
}

// rowOf returns a rollout's row. Most bounds the bytes of its texts.
func (t Table) rowOf(h replay.Held, most int) Row {
	r, length, sum := h.Rollout, 0, 0.0
	for i, m := range r.Mask {
		if m == 1 {
			length++
			sum += float64(r.Logprobs[i])
		}
	}
	text, cut := t.textOf(r, most)
	return Row{
		ID: h.ID, Group: h.Group, PromptID: clip(r.PromptID, most), Reward: Number(r.Reward),
		Advantage: Number(h.Advantage), Version: r.Version(), Age: h.Age, Uses: h.Uses, OnLease: h.Leased,
		Length: length, Tokens: len(r.Tokens), Turns: len(r.Turns), MeanLogprob: Number(sum / float64(length)),
		Truncated: r.Truncated, Probability: Number(h.Probability), Text: text,
		Cut: cut || len(r.PromptID) > most,
	}
}

// textOf returns a rollout's text up to most bytes, decoded if it came without one, and whether there is more.
func (t Table) textOf(r *rollout.Rollout, most int) (text string, cut bool) {
	if r.Text != "" || t.Decoder == nil {
		return clip(r.Text, most), len(r.Text) > most
	}
	ids := r.Tokens[promptTokens(r):]
	if enough := most / 2; len(ids) > enough { // a token has more than two bytes, as a rule
		ids, cut = ids[:enough], true
	}
	decoded := t.Decoder.Decode(ids)
	return strings.Clone(clip(decoded, most)), cut || len(decoded) > most
}

// promptTokens is how many tokens come before the policy's.
func promptTokens(r *rollout.Rollout) int {
	for i, m := range r.Mask {
		if m == 1 {
			return i
		}
	}
	return len(r.Mask)
}

// clip returns the beginning of a text, in whole runes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func numbers(list []float32) []Number {
	if len(list) == 0 {
		return nil
	}
	out := make([]Number, len(list))
	for i, x := range list {
		out[i] = Number(x)
	}
	return out
}
