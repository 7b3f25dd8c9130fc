package watch

import (
	"html/template"
	"time"
)

// The page shows these; package service's observation is turned into them, so that the template has nothing to reckon.

// view is the page's body.
type view struct {
	Health  string // serving, stopping or not healthy
	Class   string // good, warn or bad
	Reason  string // why it is not healthy
	Facts   []fact
	Tables  []overview // of all tables, where there are several
	Shown   []tableView
	Hidden  int // tables whose names alone are in the list
	Who     []connection
	At      string
	Version string
}

// fact is a name with a value.
type fact struct{ Name, Value string }

// overview is a table in the list of all.
type overview struct {
	Name, Link        string
	State             state
	Size, Version     string
	Inserts, Samples  string // rollouts per second
	Reuse, Stale, ESS string
	Fill              template.HTML
}

// tableView is a table in full.
type tableView struct {
	Name, Anchor string
	State        state
	Chips        []string
	Warning      string // its journal failed, …
	Tiles        []tile
	Charts       []card
	Facts        []card
	Recent       []recent
}

// tile is a number that matters, with a small chart.
type tile struct {
	Name, Value, Unit string
	Span              string // that the line below covers
	Notes             []string
	Charts            []template.HTML
}

// card is a chart or a few facts with a title.
type card struct {
	Title string
	Unit  string // along the chart
	Note  string // what the chart says in a few numbers
	Chart template.HTML
	Rows  []row
	Empty string // said in place of a chart
}

// row is a line of a card.
type row struct {
	Name, Value string
	Class       string // good, warn, bad or nothing
	Bar         template.HTML
}

// recent is a rollout as text.
type recent struct {
	Key, Prompt, Reward, Class, About, Text string
	Cut                                     bool
}

// connection is somebody who is connected.
type connection struct {
	Who, Peer, Since, In, Out, Streams, Tables string
}

// ago writes how long ago something was.
func ago(now, then time.Time) string {
	switch d := now.Sub(then); {
	case d < time.Second:
		return "now"
	case d < time.Minute || d >= time.Hour:
		return span(d) + " ago"
	default:
		return count(int64(d.Minutes())) + " min ago"
	}
}
