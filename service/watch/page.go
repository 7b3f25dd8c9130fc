package watch

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/internal/figures"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

//go:embed page.html
var pageText string

//go:embed style.css
var ownStyle string

//go:embed live.js
var liveText string

// styleText and scriptText are those of the page: its own, and those of its figures.
var (
	styleText  = figures.Palette + ownStyle + figures.Style
	scriptText = figures.Script + figures.Live + liveText
)

// maxInFull is the most tables that the page shows in full. With more tables it shows the one named by ?table=.
const maxInFull = 6

// page renders the dashboard.
type page struct {
	text   *template.Template
	policy string // content security policy
}

func newPage() (*page, error) {
	text, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	return &page{text: text, policy: "default-src 'none'; style-src " + hash(styleText) + "; script-src " +
		hash(scriptText) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}, nil
}

// hash returns the source expression that allows an inline style sheet or script in a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// document is the template's input for the whole page.
type document struct {
	Style  template.CSS
	Script template.JS
	Body   view
}

// write answers with the whole page, or with its body only.
func (p *page) write(w http.ResponseWriter, v view, bodyOnly bool) error {
	var b strings.Builder
	var err error
	if bodyOnly {
		err = p.text.ExecuteTemplate(&b, "body", v)
	} else {
		err = p.text.Execute(&b, document{template.CSS(styleText), template.JS(scriptText), v}) //nolint:gosec // our own
	}
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, err = w.Write([]byte(b.String()))
	return err
}

// viewOf returns what the page shows a caller who asks for a table and a span. Of many tables it shows one in full: the
// chosen one, or the first.
func (w *Watch) viewOf(ctx context.Context, o *service.Observation, asked url.Values) view {
	v := view{Health: "serving", Class: "good", At: o.At.Format(time.TimeOnly), Version: w.options.Version}
	if o.Stopping {
		v.Health, v.Class = "stopping", "warn"
	}
	if o.Err != nil {
		v.Health, v.Class, v.Reason = "not healthy", "bad", w.reason(ctx, o)
	}
	tables := w.readable(ctx, o)
	v.Facts = []fact{
		{"up for", words.Span(o.At.Sub(o.Started))},
		{"tables", words.Thousands(len(tables))},
		{"connections", words.Thousands(len(o.Connections))},
		{"memory held for clients", memoryHeld(o)},
		{"fullest part of it", fullest(o.Memory)},
		{"connections cut off", words.Thousands(o.SlowReaders + o.Cut)},
		{"calls that panicked", words.Thousands(o.Panics)},
	}
	few := len(tables) <= maxInFull
	back := windowOf(asked.Get("span"))
	chosen := asked.Get("table")
	for _, one := range windows() {
		link := url.Values{"span": {one.Key}}
		if named(tables, chosen) {
			link.Set("table", chosen)
		}
		v.Windows = append(v.Windows, choice{one.Name, "?" + link.Encode(), one == back})
	}
	for i, t := range tables {
		known := w.history.of(o.At, t)
		if len(tables) > 1 {
			v.Tables = append(v.Tables, overviewOf(t, known.points, few))
		}
		if few || t.Name == chosen || (i == 0 && !named(tables, chosen)) {
			shown := viewOfTable(o.At, t, known, back)
			shown.Windows = v.Windows
			if w.options.Rollouts != nil {
				shown.Rollouts = "rollouts?table=" + template.URLQueryEscaper(t.Name)
				if w.options.Policy.Authorize(ctx, t.Name, wire.ToLabel) == nil {
					shown.Label = "label?table=" + template.URLQueryEscaper(t.Name)
				}
			}
			v.Shown = append(v.Shown, shown)
			continue
		}
		for _, a := range alertsOf(t, known) {
			a.Table = t.Name
			v.Alerts = append(v.Alerts, a)
		}
	}
	v.Hidden = len(tables) - len(v.Shown)
	for i := range o.Connections {
		if c, ok := w.viewOfConnection(ctx, o.At, &o.Connections[i]); ok {
			v.Connections = append(v.Connections, c)
		}
	}
	v.Others = len(o.Connections) - len(v.Connections)
	if o.Cluster != nil {
		v.Cluster = w.viewOfCluster(ctx, o.Cluster)
	}
	return v
}

// viewOfCluster shows the nodes, with the tables that the caller may read.
func (w *Watch) viewOfCluster(ctx context.Context, c *wire.ClusterView) *clusterView {
	v := &clusterView{Risks: c.Risks}
	for _, n := range c.Nodes {
		v.Nodes = append(v.Nodes, node{Name: n.Name, Address: n.Address, Domain: n.Domain,
			Tables: words.Thousands(n.Tables), This: n.Name == c.Node})
	}
	for _, t := range c.Tables {
		if w.options.Policy.Authorize(ctx, t.Name, wire.ToRead) != nil {
			continue
		}
		v.Tables = append(v.Tables, placed{Name: t.Name, Owner: cmp.Or(t.Owner, "nobody"),
			Version: words.Thousands(t.Counts.Version), Present: words.Thousands(t.Counts.Present),
			Bytes: words.Bytes(float64(t.Counts.Bytes)), Log: words.Bytes(float64(t.Counts.LogBytes)),
			Inserted: words.Thousands(t.Counts.Inserted)})
	}
	return v
}

// readable returns the tables that the caller may read.
func (w *Watch) readable(ctx context.Context, o *service.Observation) []*service.TableView {
	var tables []*service.TableView
	for i := range o.Tables {
		if w.options.Policy.Authorize(ctx, o.Tables[i].Name, wire.ToRead) == nil {
			tables = append(tables, &o.Tables[i])
		}
	}
	return tables
}

func named(tables []*service.TableView, name string) bool {
	for _, t := range tables {
		if t.Name == name {
			return true
		}
	}
	return false
}

func overviewOf(t *service.TableView, points []point, few bool) overview {
	o := overview{
		Name: t.Name, Link: "?table=" + template.URLQueryEscaper(t.Name), Version: words.Thousands(int32(t.Stats.Version)),
		Size:    words.Thousands(t.Stats.Present),
		Inserts: words.Amount(current(points, rateSpan, func(p point) uint64 { return p.inserted })),
		Samples: words.Amount(current(points, rateSpan, func(p point) uint64 { return p.sampled })),
		State:   stateOf(t, points),
		Reuse:   words.Amount(reuse(t)), Stale: "–", ESS: "–",
	}
	if t.Stats.Staleness.Count() > 0 {
		o.Stale = words.Amount(t.Stats.Staleness.Mean())
	}
	if ess := meanESS(t); ess > 0 {
		o.ESS = percent(ess)
	}
	if few {
		o.Link = "#t-" + t.Name
	}
	if t.Definition.Capacity > 0 {
		share := float64(t.Stats.Present) / float64(t.Definition.Capacity)
		o.Fill = figures.Meter(share, "size", percent(share)+" full")
	}
	return o
}

// viewOfConnection shows a connection, with those of its tables that the caller may read. ok is false for one that is
// not the caller's and works on none of these.
func (w *Watch) viewOfConnection(
	ctx context.Context, now time.Time, c *service.Connection,
) (shown connection, ok bool) {
	var tables []string
	for _, t := range c.Tables {
		if w.options.Policy.Authorize(ctx, t, wire.ToRead) == nil {
			tables = append(tables, t)
		}
	}
	who, _ := access.From(ctx)
	own := who.Name != "" && who.Name == c.Caller
	if !own && len(tables) == 0 && !w.options.Policy.ReadsEverything(ctx) {
		return connection{}, false
	}
	shown = connection{
		Caller: c.Caller, Peer: c.Peer, Since: words.Span(now.Sub(c.Since)), In: words.Bytes(float64(c.ReceivedBytes)),
		Out:     words.Bytes(float64(c.SentBytes)),
		Streams: words.Thousands(c.Streams), Tables: strings.Join(tables, ", "),
	}
	if shown.Caller == "" {
		shown.Caller = "no name"
	}
	if shown.Tables == "" {
		shown.Tables = "–"
	}
	return shown, true
}

// The page shows these; package service's observation is turned into them, so that the template has nothing to reckon.

// view is the template's input for the body of the page: text and SVG, nothing left to compute.
type view struct {
	Health      string // serving, stopping or not healthy
	Class       string // good, warn or bad
	Reason      string // why the service is not healthy
	Facts       []fact
	Tables      []overview // of all tables, if there are several
	Alerts      []alert    // of tables that are not shown in full
	Windows     []choice
	Shown       []tableView
	Hidden      int // tables shown in the overview only
	Connections []connection
	Others      int // connections that the caller may not see
	Cluster     *clusterView
	At          string
	Version     string
}

// choice is a link to the page with another choice.
type choice struct {
	Name, Link string
	Chosen     bool
}

// fact is a name with a value.
type fact struct{ Name, Value string }

// overview is a table's row in the list of all tables.
type overview struct {
	Name, Link        string
	State             state
	Size, Version     string
	Inserts, Samples  string // rollouts per second
	Reuse, Stale, ESS string
	Fill              template.HTML
}

// clusterView is the nodes of a cluster and their tables.
type clusterView struct {
	Risks  []string
	Nodes  []node
	Tables []placed
}

type node struct {
	Name, Address, Domain, Tables string
	This                          bool
}

type placed struct{ Name, Owner, Version, Present, Bytes, Inserted, Log string }

// connection is a row of the list of connections.
type connection struct {
	Caller, Peer, Since, In, Out, Streams, Tables string
}

func memoryHeld(o *service.Observation) string {
	held := int64(0)
	for _, p := range o.Memory {
		held += p.Used
	}
	return words.Bytes(float64(held)) + " of " + words.Bytes(float64(o.MemoryBytes))
}

// fullest names the part of the memory that is nearest to its limit.
func fullest(parts []service.MemoryPart) string {
	name, most := "none", 0.0
	for _, p := range parts {
		if used := ratio(float64(p.Used), float64(p.Most)); used > most {
			name, most = p.Name, used
		}
	}
	return name + ", " + percent(most)
}
