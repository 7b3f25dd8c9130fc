package board

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/lab/results"
)

// query is what the address of the list asks for.
type query struct {
	Text     string   // words that a row must have
	Settings []string // shown as columns
	Sort     string   // the key of a column or a setting, with a minus before it for the other way round

	words []string
}

// queryOf reads the query of an address.
func queryOf(values url.Values) query {
	q := query{Text: strings.TrimSpace(values.Get("q")), Sort: cmp.Or(values.Get("sort"), "written")}
	q.words = strings.Fields(strings.ToLower(q.Text))
	for _, key := range values["col"] {
		if !slices.Contains(q.Settings, key) && len(q.Settings) < maxColumns {
			q.Settings = append(q.Settings, key)
		}
	}
	return q
}

// maxColumns is the most settings that are shown as columns.
const maxColumns = 20

// address is the address of the list with another order.
func (q query) address(sort string) string {
	values := url.Values{"sort": {sort}}
	if q.Text != "" {
		values.Set("q", q.Text)
	}
	if len(q.Settings) > 0 {
		values["col"] = q.Settings
	}
	return "?" + values.Encode()
}

// matches reports whether a row has all words: tag:NAME a tag, KEY=VALUE a setting, whose sections may be left out,
// another word a piece of the folder, the kind, the state, a tag or the note.
func (q query) matches(r *row) bool {
	has := func(text, piece string) bool { return strings.Contains(strings.ToLower(text), piece) }
	for _, word := range q.words {
		tag, byTag := strings.CutPrefix(word, "tag:")
		key, value, bySetting := strings.Cut(word, "=")
		var found bool
		switch {
		case byTag:
			found = slices.ContainsFunc(r.Said.Tags, func(t string) bool { return strings.ToLower(t) == tag })
		case bySetting:
			for k, v := range r.settings {
				found = found || (k == key || strings.HasSuffix(k, "."+key)) && results.SameSetting(strings.ToLower(v), value)
			}
		default:
			found = has(r.Folder, word) || has(r.Kind, word) || has(r.State, word) || has(r.Said.Note, word) ||
				has(strings.Join(r.Said.Tags, " "), word)
		}
		if !found {
			return false
		}
	}
	return true
}

// link is a name with an address.
type link struct{ Name, Address string }

// choice is a setting that may be a column.
type choice struct {
	Key    string
	Chosen bool
}

// choices lists the settings in which the rows differ, and those that are chosen.
func (q query) choices(rows []row) (list []choice) {
	first, differs := make(map[string]string), make(map[string]bool)
	for _, key := range q.Settings {
		differs[key] = true
	}
	seen := 0
	for _, r := range rows {
		if r.settings == nil {
			continue
		}
		for key, value := range r.settings {
			before, known := first[key]
			differs[key] = differs[key] || known && !results.SameSetting(before, value) || !known && seen > 0
			first[key] = value
		}
		for key := range first {
			if _, has := r.settings[key]; !has {
				differs[key] = true
			}
		}
		seen++
	}
	for key, yes := range differs {
		if yes {
			list = append(list, choice{key, slices.Contains(q.Settings, key)})
		}
	}
	slices.SortFunc(list, func(a, b choice) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// column is a column of the list that it can be sorted by.
type column struct {
	Key, Name, Class string
	Link             string // address of the list sorted by it, or the other way round if it is
	Sorted           string // ascending or descending, as the first and the last row are; empty: by another
	order            func(a, b row) int
}

func columns() []column {
	return []column{
		{Key: "folder", Name: "Folder", Class: "word", order: func(a, b row) int { return cmp.Compare(a.Folder, b.Folder) }},
		{Key: "kind", Name: "Kind", Class: "word more",
			order: func(a, b row) int { return cmp.Compare(a.Kind, b.Kind) }},
		{Key: "state", Name: "State", Class: "word", order: byState},
		{Key: "updates", Name: "Updates", order: func(a, b row) int { return b.Updates - a.Updates }},
		{Key: "pass", Name: "pass@1",
			order: func(a, b row) int { return cmp.Compare(b.Pass1.Float(), a.Pass1.Float()) }},
		{Key: "target", Name: "Target", Class: "more",
			order: func(a, b row) int { return cmp.Compare(b.Target.Float(), a.Target.Float()) }},
		{Key: "started", Name: "Started", Class: "more",
			order: func(a, b row) int { return b.Started.Compare(a.Started) }},
		{Key: "written", Name: "Last written", order: func(a, b row) int { return b.Written.Compare(a.Written) }},
	}
}

// bySetting orders rows by a setting: numbers before words, and rows without it at the end.
func bySetting(key string) func(a, b row) int {
	return func(a, b row) int {
		x, hasX := a.settings[key]
		y, hasY := b.settings[key]
		if hasX != hasY {
			return map[bool]int{true: -1, false: 1}[hasX]
		}
		m, badX := strconv.ParseFloat(x, 64)
		n, badY := strconv.ParseFloat(y, 64)
		switch {
		case badX == nil && badY == nil:
			return cmp.Compare(m, n)
		case (badX == nil) != (badY == nil):
			return map[bool]int{true: -1, false: 1}[badX == nil]
		}
		return cmp.Compare(x, y)
	}
}

// sort orders rows, fills in their cells, and returns the columns.
func (q query) sort(rows []row) ([]column, error) {
	var chosen []column
	for _, key := range q.Settings {
		chosen = append(chosen, column{Key: key, Name: key, Class: "setting", order: bySetting(key)})
	}
	list := columns()
	list = slices.Insert(list, len(list)-2, chosen...) // before the times
	key, back := strings.CutPrefix(q.Sort, "-")
	by := slices.IndexFunc(list, func(c column) bool { return c.Key == key })
	if by < 0 {
		return nil, fmt.Errorf("sort=%.100s: want the key of a column, such as written, or of a setting in col=, with - "+
			"before it for the other way round", q.Sort)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if back {
			a, b = b, a
		}
		return list[by].order(a, b)
	})
	for i := range list {
		list[i].Link = q.address(list[i].Key)
	}
	list[by].Sorted = "ascending"
	if back {
		list[by].Sorted = "descending"
	} else {
		list[by].Link = q.address("-" + key)
	}
	for i := range rows {
		rows[i].Cells = nil // a row is kept between lists
		for _, key := range q.Settings {
			rows[i].Cells = append(rows[i].Cells, cmp.Or(rows[i].settings[key], "–"))
		}
	}
	return list, nil
}
