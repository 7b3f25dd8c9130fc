package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/words"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/browse"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/service/transfer"
	"github.com/reprise-rl/reprise/wire"
)

// rolloutsCommand lists the rollouts of a table.
type rolloutsCommand struct {
	Source text       `arg:"" help:"grpc://host:port/table, several with commas for a table in parts, the folder of a run (its last checkpoint), or a journal that no service has open."`
	Where  text       `help:"Condition, such as \"reward < 0.5 && age > 10 && uses == 0\"."`
	Sort   text       `help:"Number by which to sort, the greatest first, such as --sort=-mean_logprob. Default: the newest first."`
	Text   text       `help:"List those whose text or prompt has this, in upper or lower case."`
	Limit  int        `default:"20" help:"Rollouts to list, at most 1,000."`
	Skip   int        `help:"Rollouts to leave out before the first."`
	Show   rollout.ID `help:"Show the rollout with this id, with its tokens and log-probs."`
	HTML   file       `name:"html" help:"Write the list and its rollouts as a page in one file, of 1 MB at most, which needs no table."`
	Policy dir        `help:"With --show or --html: Hugging Face folder, or a run, whose last checkpoint it is, to score tokens with, for the ratio to that policy."`
	JSON   bool       `name:"json" help:"Print as JSON."`

	Connection connection `embed:""`
}

// Run prints the list, or the rollout.
func (c *rolloutsCommand) Run(ctx context.Context) error {
	if c.HTML != "" && (c.Show != 0 || c.JSON) {
		return errors.New("--html writes a list with all its rollouts: want it without --show and --json")
	}
	policy, err := c.policy()
	if err != nil {
		return err
	}
	show := func(from browse.Source) error {
		if c.Show != 0 {
			return c.showOne(ctx, from, policy)
		}
		page, err := from.Rollouts(ctx, replay.Query{Where: string(c.Where), Order: string(c.Sort), Text: string(c.Text),
			Skip: c.Skip, Limit: c.Limit})
		switch {
		case err != nil:
			return err
		case c.HTML != "":
			return c.writePage(ctx, from, policy, &page)
		case c.JSON:
			return printJSON(page)
		}
		c.printPage(&page)
		return nil
	}
	return c.Connection.open(ctx, string(c.Source), byPlace{
		served:  func(t *client.Table) error { return show(t) },
		inParts: func(t *client.PartedTable) error { return show(t) },
		kept:    func(t browse.Table) error { return show(t) },
	})
}

// policy reads the model of --policy, before a journal is copied; nil: there is none.
func (c *rolloutsCommand) policy() (*run.Scorer, error) {
	if c.Policy == "" {
		return nil, nil
	}
	if c.Show == 0 && c.HTML == "" {
		return nil, errors.New("--policy scores tokens, which a list does not show: add --show ID, or --html FILE")
	}
	folder, err := c.Policy.model()
	if err != nil {
		return nil, fmt.Errorf("--policy: %w", err)
	}
	policy, err := run.LoadScorer(folder)
	if err != nil {
		return nil, fmt.Errorf("--policy: %w", err)
	}
	return policy, nil
}

// scoredRollout is a rollout with the log-probs of its tokens by another policy, null where no policy produced them.
type scoredRollout struct {
	browse.Rollout
	PolicyLogprobs []browse.Number `json:"policy_logprobs,omitempty"`
}

// showOne prints a rollout.
func (c *rolloutsCommand) showOne(ctx context.Context, from browse.Source, policy *run.Scorer) error {
	shown, err := from.Rollout(ctx, c.Show)
	if err != nil {
		return err
	}
	all := scoredRollout{Rollout: shown}
	if policy != nil {
		if all.PolicyLogprobs, err = scoreWith(ctx, policy, &shown); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	if c.JSON {
		return printJSON(all)
	}
	printRollout(&all)
	return nil
}

// mostHTML bounds the rollouts of a page in a file, as JSON.
const mostHTML = 900 << 10

// writePage writes the rollouts of a list as a page in a file.
func (c *rolloutsCommand) writePage(ctx context.Context, from browse.Source, policy *run.Scorer,
	page *browse.Page) error {
	f := browse.File{Of: string(c.Source), Version: page.Version, Matched: page.Matched}
	left := 0
	for _, row := range page.Rows {
		shown, err := from.Rollout(ctx, row.ID)
		if errors.Is(err, browse.ErrGone) || errors.Is(err, wire.ErrNotFound) || shown.Left { // since it was listed
			left++
			continue
		}
		if err != nil {
			return err
		}
		sampled := browse.Sampled{Rollout: shown}
		if policy != nil {
			logprobs, err := scoreWith(ctx, policy, &shown)
			if err != nil {
				return fmt.Errorf("--policy: %w", err)
			}
			sampled.Scores = &browse.Scored{Policy: string(c.Policy), Logprobs: logprobs}
		}
		if fits, err := f.Add(sampled, mostHTML); err != nil {
			return err
		} else if !fits {
			break
		}
	}
	var text bytes.Buffer
	if err := f.Write(&text); err != nil {
		return err
	}
	if err := disk.WriteFile(string(c.HTML), text.Bytes()); err != nil {
		return err
	}
	fmt.Printf("%s: %s of %s, in %s\n", c.HTML, words.Plural(len(f.Rollouts), "rollout"), c.Source,
		size(int64(text.Len())))
	if n := len(page.Rows) - len(f.Rollouts) - left; n > 0 {
		fmt.Printf("  %s more did not fit into %s\n", words.Thousands(n), size(mostHTML))
	}
	return nil
}

// scoreWith scores a rollout, of which only what pages show is known.
func scoreWith(ctx context.Context, policy *run.Scorer, shown *browse.Rollout) ([]browse.Number, error) {
	switch {
	case shown.Left:
		return nil, fmt.Errorf("rollout %d has left the table: nobody knows its tokens", shown.ID)
	case shown.Images > 0 || shown.SamplingMask:
		return nil, fmt.Errorf("rollout %d has images or a sampling mask, which pages do not show: look at a run on its "+
			"board, which scores it whole", shown.ID)
	}
	r := rollout.Rollout{PromptID: shown.PromptID, Tokens: shown.TokenIDs, Temperature: float32(shown.Temperature)}
	logprobs, err := policy.Score(ctx, &r)
	if err != nil {
		return nil, err
	}
	numbers := make([]browse.Number, len(logprobs))
	for i, x := range logprobs {
		if numbers[i] = browse.Number(x); shown.Mask[i] == 0 {
			numbers[i] = browse.Number(math.NaN())
		}
	}
	return numbers, nil
}

// byPlace says what to do with a table, by where it is found.
type byPlace struct {
	served  func(*client.Table) error       // in a service, as a journal's is for the time being
	inParts func(*client.PartedTable) error // in several
	kept    func(browse.Table) error        // in a run's last checkpoint
}

// open finds a table, wherever it is.
func (c connection) open(ctx context.Context, source string, o byPlace) error {
	if !strings.Contains(source, "://") {
		_, err := os.Stat(source)
		switch {
		case err != nil:
			return fmt.Errorf("%w: want grpc://host:port/table, the folder of a run, or a journal", err)
		case journal.Is(source):
			return transfer.WithJournal(ctx, source, o.served)
		}
		table, address, err := lastTable(source)
		switch {
		case err != nil:
			return err
		case table.Table != nil:
			return o.kept(table)
		}
		source = address
	}
	services, name, err := client.SplitTables(source)
	if err != nil {
		return err
	}
	if len(services) > 1 {
		return c.openParts(ctx, services, name, o)
	}
	connected, table, err := c.table(ctx, source)
	if err != nil {
		return err
	}
	defer connected.Close()
	if _, err := table.Info(ctx); errors.Is(err, wire.ErrNotFound) { // a cluster may have it in parts
		if e := c.openParts(ctx, services, name, o); !errors.Is(e, wire.ErrNotFound) {
			return e
		}
		return err
	}
	return o.served(table)
}

// lastTable returns the table in a run's last checkpoint, with its tokenizer, or the address of a table in a service.
func lastTable(dir string) (table browse.Table, address string, err error) {
	if table.Table, address, err = run.LastTable(dir); err != nil || table.Table == nil {
		return table, address, err
	}
	tokenizer, err := run.LastTokenizer(dir)
	if tokenizer != nil {
		table.Decoder = tokenizer
	}
	return table, "", err
}

// openParts finds a table in parts.
func (c connection) openParts(ctx context.Context, services []string, name string, o byPlace) error {
	connected, err := client.DialAll(ctx, services, client.AllOptions{Options: c.options(),
		Logger: slog.New(slog.DiscardHandler)}) // the list says which parts did not answer
	if err != nil {
		return err
	}
	defer connected.Close()
	table := connected.Table(name)
	if _, err := table.Info(ctx); err != nil {
		return err
	}
	return o.inParts(table)
}

// printPage prints rollouts as a table of at most 80 columns.
func (c *rolloutsCommand) printPage(page *browse.Page) {
	wide := 8 // of ids, which are long in a table in parts
	for _, r := range page.Rows {
		wide = max(wide, len(fmt.Sprint(r.ID)))
	}
	fmt.Printf("%*s  %-16s %7s %9s %5s %4s %6s  %s\n", wide, "id", "prompt", "reward", "advantage", "age", "uses", "length",
		"text")
	for _, r := range page.Rows {
		length := strconv.Itoa(r.Length)
		if r.Truncated {
			length += "+"
		}
		row := fmt.Sprintf("%*d  %s %7s %9s %5d %4d %6s  %s", wide, r.ID, cell(r.PromptID, 16, true), short(r.Reward),
			short(r.Advantage), r.Age, r.Uses, length, cell(r.Text, max(24-wide, 1), false))
		fmt.Println(strings.TrimRight(row, " "))
	}
	from := ""
	if n := len(page.Rows); n < page.Matched && n > 0 {
		from = fmt.Sprintf("%d to %d of ", c.Skip+1, c.Skip+n)
	}
	fmt.Printf("%s%s, version %d\n", from, words.Plural(page.Matched, "rollout"), page.Version)
	if n := len(page.Down); n > 0 {
		fmt.Printf("without those of %s that did not answer: %s\n", words.Plural(n, "part"),
			strings.Trim(fmt.Sprint(page.Down), "[]"))
	}
}

// short formats a number in at most seven columns, "-" if it is not known.
func short(n browse.Number) string {
	if n != n {
		return "-"
	}
	return strconv.FormatFloat(float64(n), 'g', 4, 32)
}

// quoted returns a text with what cannot be printed, such as an escape code or a mark of direction, as in a Go string.
func quoted(text string) string {
	q := strconv.Quote(text)
	return strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), `\\`, `\`)
}

// cell returns a text in the given columns, filled up with spaces if pad.
func cell(text string, columns int, pad bool) string {
	letters := []rune(quoted(strings.Join(strings.Fields(text), " ")))
	if len(letters) > columns {
		letters = append(letters[:columns-1], '…')
	}
	if pad {
		return string(letters) + strings.Repeat(" ", columns-len(letters))
	}
	return string(letters)
}

// printRollout prints all that is known of a rollout.
func printRollout(r *scoredRollout) {
	if r.Left {
		fmt.Printf("rollout %d of group %d has left; it was of version %d, with reward %s and advantage %s\n", r.ID, r.Group,
			r.Version, short(r.Reward), short(r.Advantage))
		printLife(r.Life)
		return
	}
	fmt.Printf("rollout %d of group %d, prompt \"%s\"\n", r.ID, r.Group, quoted(r.PromptID))
	line := func(name, format string, values ...any) {
		fmt.Println(strings.TrimRight(fmt.Sprintf("  %-12s %s", name, fmt.Sprintf(format, values...)), " "))
	}
	line("reward", "%s, advantage %s; its group's %s with deviation %s", short(r.Reward), short(r.Advantage),
		short(r.GroupMean), short(r.GroupStd))
	line("version", "%d, age %d", r.Version, r.Age)
	last := "never"
	if r.LastUse >= 0 {
		last = fmt.Sprint("at version ", r.LastUse)
	}
	line("uses", "%d, the last %s; %d draws on lease", r.Uses, last, r.OnLease)
	line("next draw", "probability %s, base %s", short(r.Probability), short(r.Base))
	var facts []string
	for _, f := range []struct {
		name  string
		holds bool
	}{{"never handed out as fresh", r.Fresh}, {"pinned", r.Pinned}, {"at the largest base", r.AtMax},
		{"stopped by length", r.Truncated}} {
		if f.holds {
			facts = append(facts, f.name)
		}
	}
	if len(facts) > 0 {
		line("and", "%s", strings.Join(facts, ", "))
	}
	line("length", "%d of %d tokens, mean log-prob %s; temperature %s, top-p %s", r.Length, r.Tokens, short(r.MeanLogprob),
		short(r.Temperature), short(r.TopP))
	for _, key := range slices.Sorted(maps.Keys(r.Meta)) {
		line("meta", "%s: %s", quoted(key), quoted(r.Meta[key]))
	}
	for i, mate := range r.Mates {
		name := ""
		if i == 0 {
			name = "group"
		}
		line(name, "%d: reward %s, advantage %s  %s", mate.ID, short(mate.Reward), short(mate.Advantage),
			cell(mate.Text, 24, false))
	}
	if r.Life != nil {
		printLife(r.Life)
	}
	printText("prompt, decoded", r.PromptText)
	if r.Decoded {
		printText("text, decoded", r.Text)
	} else {
		printText("text", r.Text)
	}
	printTokens(r)
}

// printText prints a text, if there is one, under its name.
func printText(name, text string) {
	if text == "" {
		return
	}
	fmt.Printf("\n%s\n", name)
	for line := range strings.Lines(text) {
		fmt.Printf("  %s\n", quoted(strings.TrimSuffix(line, "\n")))
	}
}

// printLife prints a line for each event.
func printLife(l *replay.Life) {
	fmt.Printf("\nlife\n")
	for i, e := range l.Events {
		var facts []string
		add := func(name string, value *float64) {
			if value != nil {
				facts = append(facts, name+" "+short(browse.Number(*value)))
			}
		}
		what := string(e.Kind)
		add("priority", e.Priority)
		if m := e.Measured; m != nil {
			add("|advantage|", m.Advantage)
			add("TD error", m.TDError)
			add("gradient norm", m.GradNorm)
			add("mean ratio", m.MeanRatio)
		}
		if d := e.Draw; d != nil {
			if what = fmt.Sprintf("drawn in batch %d", d.Batch); d.Times > 1 {
				what += fmt.Sprintf(" %d times", d.Times)
			}
			if d.Fresh {
				what += " as fresh"
			}
			add("probability", &d.Probability)
			add("weight", &d.Weight)
			facts = append(facts, fmt.Sprintf("staleness %d", d.Staleness), string(d.Outcome))
		}
		if e.Cause != "" {
			what = "left by " + string(e.Cause)
		}
		if len(facts) > 0 {
			what += ": " + strings.Join(facts, ", ")
		}
		if e.Caller != "" {
			what += " (" + quoted(e.Caller) + ")"
		}
		fmt.Printf("  %s  version %d  %s\n", e.Time.Local().Format(time.DateTime), e.Version, what)
		if i == 0 && l.Forgotten > 0 {
			fmt.Printf("  %s between are forgotten\n", words.Plural(l.Forgotten, "event"))
		}
	}
}

// printTokens prints a line for each token.
func printTokens(r *scoredRollout) {
	heading := fmt.Sprintf("\n%6s %8s %10s %8s %10s", "token", "id", "log-prob", "version", "advantage")
	if r.PolicyLogprobs != nil {
		heading += "      ratio"
	}
	if r.Pieces != nil {
		heading += "  text"
	}
	fmt.Println(heading)
	starts := make(map[int]browse.Turn, len(r.TurnList))
	for _, turn := range r.TurnList {
		starts[int(turn.Start)] = turn
	}
	for i, id := range r.TokenIDs {
		if turn, ok := starts[i]; ok {
			fmt.Printf("  turn of %d tokens, reward %s\n", turn.End-turn.Start, short(turn.Reward))
		}
		line := fmt.Sprintf("%6d %8d", i, id)
		if r.Mask[i] == 1 {
			advantage := r.Advantage
			if r.Advantages != nil {
				advantage = r.Advantages[i]
			}
			line += fmt.Sprintf(" %10s %8d %10s", short(r.Logprobs[i]), r.Versions[i], short(advantage))
			if r.PolicyLogprobs != nil {
				line += fmt.Sprintf(" %10s", short(browse.Number(math.Exp(float64(r.PolicyLogprobs[i]-r.Logprobs[i])))))
			}
		} else if r.Pieces != nil {
			line += strings.Repeat(" ", len(heading)-len("  text")-1-len(line)) // without the line break before it
		}
		if r.Pieces != nil {
			line += "  " + quoted(r.Pieces[i])
		}
		fmt.Println(line)
	}
}
