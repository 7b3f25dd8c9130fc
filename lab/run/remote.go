package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// bufferFile says where the table of a run is that is not in the run itself.
const bufferFile = "buffer.json"

// Remote names the table of a service in which a run keeps its rollouts ([Config.WithBuffer]).
type Remote struct {
	// grpc://host:port/table, grpc+tls://host:port/table or grpc+unix:///path/of/socket/table; several with commas
	// between them are the parts of one table
	Address string         `json:"address"`
	Options client.Options `json:"options"` // of the connection; a token itself is not recorded, its file is
	Run     string         `json:"run"`     // under which the service keeps the run's checkpoints; Train makes it
	Replace bool           `json:"-"`       // a table of that name goes, with all that it holds

	// Publish makes the run one on the real clock: others fill the table, and each version of the weights is published in
	// this folder (engine.Publish); "": the run has its own workers, on a virtual clock.
	Publish string `json:"publish,omitempty"`
}

// WithBuffer returns the configuration of a run that keeps its rollouts in a table of a service, which it makes there.
// The run writes the same results as with a table of its own. The table is the run's alone: what another program
// changes ends it.
func (c Config) WithBuffer(r Remote) Config {
	c.remote = &r
	return c
}

// ReachBuffer reports what would keep a run from beginning at its service: that nobody answers, that the table is in
// use or may not be made, that nothing would be kept. Without a service there is nothing.
func (c Config) ReachBuffer(ctx context.Context) error {
	if c.remote == nil {
		return nil
	}
	conn, table, err := c.remote.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stats, err := table.Statistics(ctx)
	switch {
	case errors.Is(err, wire.ErrNotFound):
		stats, err = probeCreate(ctx, conn, table)
	case err == nil && c.remote.Replace:
		return c.remote.requireJournal(stats)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.remote.requireUnused(stats), c.remote.requireJournal(stats))
}

// connection is a client of one service, or of several that hold tables in parts.
type connection interface {
	Create(ctx context.Context, definition wire.Table) (wire.TableInfo, error)
	Drop(ctx context.Context, name string) error
	Close() error
}

// serviceTable is a table of one service, or one in parts. Its methods may be called concurrently.
type serviceTable interface {
	pipeline.Buffer
	observedTable
	leasedTable
	savedTable
}

// observedTable is a table of a service to those who look at it.
type observedTable interface {
	Name() string
	Info(ctx context.Context) (wire.TableInfo, error)
	Statistics(ctx context.Context) (*wire.TableStatistics, error)
	Scan(ctx context.Context, rows int, each func([]rollout.Draw) error) error
}

// leasedTable draws batches that count once they are acknowledged.
type leasedTable interface {
	Lease(ctx context.Context, req rollout.Request) (*rollout.Batch, error)
	Acknowledge(ctx context.Context, batches ...rollout.BatchID) error
}

// savedTable inserts under batch ids, and goes back to what a service saved.
type savedTable interface {
	InsertGroups(ctx context.Context, o client.Insertion, groups ...rollout.Group) (wire.InsertAnswer, error)
	Checkpoint(ctx context.Context, name string) (wire.CheckpointAnswer, error)
	Restore(ctx context.Context, name string) (wire.TableInfo, error)
}

// probeCreate makes a table of any kind to see what becomes of it, and removes it.
func probeCreate(ctx context.Context, conn connection, table observedTable) (*wire.TableStatistics, error) {
	if _, err := conn.Create(ctx, wire.Table{Name: table.Name()}); err != nil {
		return nil, err
	}
	stats, err := table.Statistics(ctx)
	return stats, errors.Join(err, conn.Drop(ctx, table.Name()))
}

// requireJournal refuses a service that keeps nothing: a run on it could not be resumed.
func (r Remote) requireJournal(stats *wire.TableStatistics) error {
	if stats.Journal != nil {
		return nil
	}
	return fmt.Errorf("the service of table %s keeps nothing, so that the run could not be resumed: start it with a "+
		"data folder, reprise serve --data DIR", r.Address)
}

// requireUnused refuses a table that somebody has used.
func (r Remote) requireUnused(stats *wire.TableStatistics) error {
	if stats.Inserted == 0 && stats.Refused == 0 && stats.Version == 0 {
		return nil
	}
	return fmt.Errorf("table %s is in use: it is at version %d and has had %d rollouts inserted; name another table "+
		"in --buffer, or replace it by --force",
		r.Address, stats.Version, stats.Inserted)
}

// dial connects to the table. On the real clock its calls wait; of a table in parts batches come from all of them.
func (r Remote) dial(ctx context.Context) (connection, serviceTable, error) {
	services, name, err := client.SplitTables(r.Address)
	if err != nil {
		return nil, nil, fmt.Errorf("--buffer: %w", err)
	}
	wait := time.Duration(0)
	if r.Publish != "" {
		wait = client.Forever
	}
	if len(services) == 1 {
		c, err := client.Dial(ctx, services[0], r.Options)
		if err != nil {
			return nil, nil, fmt.Errorf("--buffer: %w", err)
		}
		return c, c.Table(name).UsingAtDraw().Waiting(wait), nil
	}
	c, err := client.DialAll(ctx, services, client.AllOptions{Options: r.Options, Scope: client.AllParts})
	if err != nil {
		return nil, nil, fmt.Errorf("--buffer: %w", err)
	}
	return c, c.Table(name).UsingAtDraw().Waiting(wait), nil
}

// withRunName returns the place with a name for the checkpoints of a new run, which no other run has.
func (r Remote) withRunName(dir string) Remote {
	if r.Run != "" {
		return r
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	folder := []rune(filepath.Base(dir))
	plain := strings.Map(func(c rune) rune {
		if c < 0x80 && (c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return c
		}
		return '-'
	}, string(folder[:min(len(folder), 48)]))
	var id [8]byte
	rand.Read(id[:]) // never fails
	r.Run = "run-" + strings.Trim(plain, "-") + "-" + hex.EncodeToString(id[:])
	return r
}

// write records the place in the run's folder.
func (r Remote) write(dir string) error {
	for _, file := range []*string{&r.Options.TokenFile, &r.Options.CA, &r.Options.Cert, &r.Options.Key, &r.Publish} {
		if *file == "" {
			continue
		}
		abs, err := filepath.Abs(*file) // the run may be resumed from elsewhere
		if err != nil {
			return err
		}
		*file = abs
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFile(filepath.Join(dir, bufferFile), append(text, '\n'))
}

// readRemote returns where the table of the run in a folder is, nil if it is in the run itself.
func readRemote(dir string) (*Remote, error) {
	path := filepath.Join(dir, bufferFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Remote)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// withRecordedBuffer returns the place of a run that is resumed: as it is recorded in the folder, but for what is given
// now.
func (c Config) withRecordedBuffer(dir string) (Config, error) {
	recorded, err := readRemote(dir)
	if err != nil {
		return c, err
	}
	given := c.remote
	switch {
	case recorded == nil && given != nil && given.Address != "":
		return c, fmt.Errorf("--buffer: %s: the run in %s keeps its rollouts in itself: leave it out", given.Address,
			dir)
	case recorded == nil: // what is given is how to connect, if there were anything to connect to
		c.remote = nil
		return c, nil
	case given == nil:
		return c.WithBuffer(*recorded), nil
	}
	r := *recorded
	if given.Address != "" {
		r.Address = given.Address
	}
	if given.Options != (client.Options{}) {
		r.Options = given.Options
	}
	return c.WithBuffer(r), nil
}

// remote is a table of a service that belongs to one run. It notices when somebody else changes it: then the run would
// go on with other rollouts than it knows of.
type remote struct {
	place   Remote
	client  connection
	table   serviceTable
	options replay.Options
	dir     string // of the run, for what errors advise

	version rollout.Version // that the table must have
	last    uint64          // rollouts inserted
	newest  uint64          // rollout id given last, 0 if none was
	draws   uint64          // batches drawn
	slot    int             // of the last checkpoint, 0 or 1
}

// inParts reports whether the table is in parts over several services. Batch ids and request ids then decide which part
// gives or gets what, and the run numbers them itself: the same run, the same parts.
func (r *remote) inParts() bool {
	_, parted := r.table.(*client.PartedTable)
	return parted
}

// openRemote connects to a service and makes the table of a run there, or finds it: a run that begins wants it empty.
func openRemote(ctx context.Context, place Remote, o replay.Options, dir string, begins bool) (*remote, error) {
	local, err := replay.New(o)
	if err != nil {
		return nil, under("replay", err)
	}
	c, t, err := place.dial(ctx)
	if err != nil {
		return nil, err
	}
	r := &remote{place: place, client: c, table: t, options: local.Options(), dir: dir}
	if err := place.create(ctx, c, t, wire.Table{Options: r.options}, begins); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return r, nil
}

// create makes the table of a run and, for a run that begins, sees to it that it is as new.
func (r Remote) create(
	ctx context.Context, conn connection, table observedTable, definition wire.Table, begins bool,
) error {
	definition.Name = table.Name()
	if begins && r.Replace {
		if err := conn.Drop(ctx, definition.Name); err != nil && !errors.Is(err, wire.ErrNotFound) {
			return err
		}
	}
	if _, err := conn.Create(ctx, definition); err != nil {
		if errors.Is(err, wire.ErrExists) {
			return fmt.Errorf("%w: name another table in --buffer, or replace it by --force", err)
		}
		return err
	}
	if !begins {
		return nil
	}
	stats, err := table.Statistics(ctx)
	if err != nil {
		return err
	}
	return errors.Join(r.requireUnused(stats), r.requireJournal(stats))
}

// Insert, Sample, Report, Advance and Len are the pipeline's.

// Insert adds whole groups, once, and makes sure that nobody else has.
func (r *remote) Insert(ctx context.Context, groups ...rollout.Group) ([]rollout.ID, error) {
	var o client.Insertion
	if r.inParts() {
		o.BatchID = fmt.Sprintf("run-%d", r.last)
	}
	answer, err := r.table.InsertGroups(ctx, o, groups...)
	if err != nil {
		return nil, r.advise(err)
	}
	ids := make([]rollout.ID, len(answer.IDs))
	gap := false // between ids
	for i, id := range answer.IDs {
		gap = gap || id != r.newest+1
		ids[i], r.newest = rollout.ID(id), id
		r.last++
	}
	if gap && !r.inParts() { // ids of another program, or those that a service passes over when it starts again
		if _, err := r.stats(ctx); err != nil {
			return nil, err
		}
	}
	return ids, r.at(rollout.Version(answer.Version))
}

// Sample draws a batch whose draws count as used.
func (r *remote) Sample(ctx context.Context, req rollout.Request) (*rollout.Batch, error) {
	if r.inParts() {
		req.ID = fmt.Sprintf("run-%d", r.draws)
	}
	b, err := r.table.Sample(ctx, req)
	if err != nil {
		return nil, r.advise(err)
	}
	r.draws++
	return b, r.at(b.Version)
}

// Report passes on what the learner measured.
func (r *remote) Report(ctx context.Context, feedback ...rollout.Feedback) error {
	return r.advise(r.table.Report(ctx, feedback...))
}

// Advance sets the table's version.
func (r *remote) Advance(ctx context.Context, v rollout.Version) error {
	if err := r.table.Advance(ctx, v); err != nil {
		return r.advise(err)
	}
	r.version = v
	return nil
}

// Len returns how many rollouts the table holds.
func (r *remote) Len(ctx context.Context) (int, error) {
	n, err := r.table.Len(ctx)
	return n, r.advise(err)
}

// Options returns the options that the table was made with.
func (r *remote) Options() replay.Options { return r.options }

func (r *remote) state(ctx context.Context) (tableState, error) {
	s, err := r.summary(ctx)
	return s.tableState, err
}

func (r *remote) summary(ctx context.Context) (tableSummary, error) {
	stats, err := r.stats(ctx)
	if err != nil {
		return tableSummary{}, err
	}
	return tableSummaryOf(stats, r.options), nil
}

// tableSummaryOf writes a service's statistics as those of an embedded table.
func tableSummaryOf(stats *wire.TableStatistics, o replay.Options) tableSummary {
	decay := math.Inf(1) // where nothing decays
	if o.Sampler == replay.Prioritized {
		decay = float64(stats.AgeDecay)
	}
	a := tableSummary{tableState: tableState{stats.Present, stats.NeverUsedShare, decay}, stats: stats.Stats()}
	for _, s := range stats.Ages {
		a.ages = append(a.ages, results.AgePriority{Age: s.Age, Count: s.Units, Base: s.Base,
			Probability: s.Probability})
	}
	for _, e := range stats.ESSByAge {
		a.ess = append(a.ess, results.AgeESS{Age: e.First, Last: e.Last, ESS: e.ESS, Tokens: e.Tokens})
	}
	return a
}

// stats asks for the table's statistics and holds them to what the run did.
func (r *remote) stats(ctx context.Context) (*wire.TableStatistics, error) {
	stats, err := r.table.Statistics(ctx)
	if err != nil {
		return nil, r.advise(err)
	}
	if stats.Inserted != r.last {
		return nil, r.changed("has had %d rollouts inserted where the run inserted %d", stats.Inserted, r.last)
	}
	return stats, r.at(rollout.Version(stats.Version))
}

// at holds the version that the service told to the run's.
func (r *remote) at(v rollout.Version) error {
	if v != r.version {
		return r.changed("is at version %d where the run is at %d", v, r.version)
	}
	return nil
}

// changed says that the table is not as the run left it.
func (r *remote) changed(format string, args ...any) error {
	return fmt.Errorf("table %s %s: another program uses it too, or the service lost what it held; %s", r.place.Address,
		fmt.Sprintf(format, args...), r.remedy())
}

// advise adds to an error that ends a run how to go on with it.
func (r *remote) advise(err error) error {
	switch {
	case err == nil, errors.Is(err, rollout.ErrFull), errors.Is(err, rollout.ErrStarved):
		return err
	case errors.Is(err, client.ErrUnreachable):
		return fmt.Errorf("%w; once it is back, %s", err, r.remedy())
	default:
		return fmt.Errorf("%w; %s", err, r.remedy())
	}
}

// remedy says how to go on from the last checkpoint.
func (r *remote) remedy() string {
	return "go on from the last checkpoint by: reprise train --resume --out " + r.dir
}

func (r *remote) close() error { return r.client.Close() }

// remoteFile stands in a checkpoint in place of tableFile.
const remoteFile = "table.json"

// remoteSave is what remoteFile says: under which name the service keeps the table of the checkpoint. The run keeps two
// names in turn, so that the one of its last whole checkpoint is never the one being written.
type remoteSave struct {
	Name     string `json:"name"`
	Slot     int    `json:"slot"` // 0 or 1
	Version  int32  `json:"version"`
	Inserted uint64 `json:"inserted"` // rollouts, ever
	Present  int    `json:"present"`
	Draws    uint64 `json:"draws,omitempty"` // batches, ever
}

func (r *remote) save(ctx context.Context, dir string) error {
	slot := 1 - r.slot
	saved := remoteSave{Name: fmt.Sprintf("%s-%d", r.place.Run, slot), Slot: slot, Version: int32(r.version),
		Inserted: r.last, Draws: r.draws}
	answer, err := r.table.Checkpoint(ctx, saved.Name)
	if err != nil {
		return err
	}
	if err := r.at(rollout.Version(answer.Version)); err != nil {
		return err
	}
	saved.Present = answer.Present
	text, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, remoteFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	r.slot = slot
	return nil
}

func (r *remote) restore(ctx context.Context, dir string) error {
	saved, err := readRemoteSave(dir)
	if err != nil {
		return err
	}
	info, err := r.table.Restore(ctx, saved.Name)
	if errors.Is(err, wire.ErrNotFound) {
		return fmt.Errorf("%w: the service has not got the table of the run's checkpoint: was its data folder "+
			"replaced?", err)
	}
	if err != nil {
		return err
	}
	if info.Version != saved.Version || info.Present != saved.Present {
		return fmt.Errorf("table %s was restored to version %d with %d rollouts, the run's checkpoint has version %d "+
			"with %d: another program has saved %s since",
			r.place.Address, info.Version, info.Present, saved.Version, saved.Present, saved.Name)
	}
	r.version, r.last, r.slot = rollout.Version(saved.Version), saved.Inserted, saved.Slot
	r.draws = saved.Draws
	_, err = r.stats(ctx)
	return err
}

func readRemoteSave(dir string) (saved remoteSave, err error) {
	path := filepath.Join(dir, remoteFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return saved, err
	}
	if err := json.Unmarshal(text, &saved); err != nil {
		return saved, fmt.Errorf("read %s: %w", path, err)
	}
	return saved, nil
}
