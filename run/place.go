package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/wire"
)

// bufferFile says where the table of a run is that is not in the run itself.
const bufferFile = "buffer.json"

// Remote names the table of a service in which a run keeps its rollouts ([Config.WithBuffer]).
type Remote struct {
	Address string         `json:"address"` // grpc://host:port/table, grpc+tls://host:port/table or grpc+unix:///path/of/socket/table
	Options client.Options `json:"options"` // of the connection; a token itself is not recorded, its file is
	Run     string         `json:"run"`     // under which the service keeps the run's checkpoints; Train makes it
	Replace bool           `json:"-"`       // a table of that name goes, with all that it holds
}

// WithBuffer returns the configuration of a run that keeps its rollouts in a table of a service, which it makes there. The run writes
// the same results as with a table of its own. The table is the run's alone: what another program changes ends it.
func (c Config) WithBuffer(r Remote) Config {
	c.remote = &r
	return c
}

// ReachBuffer reports what would keep a run from beginning at its service: that nobody answers, that the table is in use or may not
// be made, that nothing would be kept. Without a service there is nothing.
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
		stats, err = tried(ctx, conn, table)
	case err == nil && c.remote.Replace:
		return c.remote.kept(stats)
	}
	if err != nil {
		return err
	}
	return errors.Join(c.remote.unused(stats), c.remote.kept(stats))
}

// tried makes a table of any kind to see what becomes of it, and removes it.
func tried(ctx context.Context, conn *client.Client, table *client.Table) (*wire.TableStatistics, error) {
	if _, err := conn.Create(ctx, wire.Table{Name: table.Name()}); err != nil {
		return nil, err
	}
	stats, err := table.Statistics(ctx)
	return stats, errors.Join(err, conn.Drop(ctx, table.Name()))
}

// kept refuses a service that keeps nothing: a run on it could not be resumed.
func (r Remote) kept(stats *wire.TableStatistics) error {
	if stats.Journal != nil {
		return nil
	}
	return fmt.Errorf("the service of table %s keeps nothing, so that the run could not be resumed: start it with a data folder, reprise serve --data DIR", r.Address)
}

// unused refuses a table that somebody has used.
func (r Remote) unused(stats *wire.TableStatistics) error {
	if stats.Inserted == 0 && stats.Refused == 0 && stats.Version == 0 {
		return nil
	}
	return fmt.Errorf("table %s is in use: it is at version %d and has had %d rollouts inserted; name another table in --buffer, or replace it by --force",
		r.Address, stats.Version, stats.Inserted)
}

func (r Remote) dial(ctx context.Context) (*client.Client, *client.Table, error) {
	service, table, err := client.SplitTable(r.Address)
	if err != nil {
		return nil, nil, fmt.Errorf("--buffer: %w", err)
	}
	c, err := client.Dial(ctx, service, r.Options)
	if err != nil {
		return nil, nil, fmt.Errorf("--buffer: %w", err)
	}
	return c, c.Table(table), nil
}

// openTable opens the table of a run: its own, or one of a service. A run that begins wants the latter empty.
func (c Config) openTable(ctx context.Context, vocab int, dir string, begins bool) (table, error) {
	if c.remote != nil {
		return openRemote(ctx, *c.remote, c.replayOptions(vocab), dir, begins)
	}
	t, err := replay.New(c.replayOptions(vocab))
	if err != nil {
		return nil, under("replay", err)
	}
	return embedded{t}, nil
}

// named returns the place with a name for the checkpoints of a new run, which no other run has.
func (r Remote) named(dir string) Remote {
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
	for _, file := range []*string{&r.Options.TokenFile, &r.Options.CA, &r.Options.Cert, &r.Options.Key} {
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

// again returns the place of a run that is resumed: as it is recorded in the folder, but for what is given now.
func (c Config) again(dir string) (Config, error) {
	recorded, err := readRemote(dir)
	if err != nil {
		return c, err
	}
	given := c.remote
	switch {
	case recorded == nil && given != nil && given.Address != "":
		return c, fmt.Errorf("--buffer: %s: the run in %s keeps its rollouts in itself: leave it out", given.Address, dir)
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
