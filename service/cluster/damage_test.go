package cluster

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// files returns the paths of the files of a node's copy of a stream whose names end so.
func (c *trio) files(i int, stream, ending string) (paths []string) {
	c.t.Helper()
	dir := filepath.Join(c.options[i].Data, copiesFolder, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT,
		"streams", stream)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ending) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		c.t.Fatalf("files of %s in %s: %v, %v", stream, dir, paths, err)
	}
	return paths
}

var (
	damages    = flag.Int("damages", 3, "copies that TestADamagedCopyLosesNothing damages")
	damageSeed = flag.Uint64("damage-seed", 1, "which copies, and how")
)

// kinds are what disks do to a file.
var kinds = []struct {
	name   string
	damage func(path string, random *rand.Rand) error
}{
	{"a flipped bit", func(path string, random *rand.Rand) error {
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			return err
		}
		b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		return os.WriteFile(path, b, 0o600)
	}},
	{"a cut file", func(path string, random *rand.Rand) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, random.Int64N(info.Size()+1))
	}},
	{"no file", func(path string, _ *rand.Rand) error { return os.Remove(path) }},
}

// A node comes back with a damaged copy of a table's log. The scrub or JetStream finds it, no table is read from it,
// the node makes a new copy or is replaced, and nothing that was acknowledged is lost.
func TestADamagedCopyLosesNothing(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	create(t, c.any(), "lab")
	random := rand.New(rand.NewPCG(*damageSeed, 4))
	next, named := 0, 0
	for k := range *damages {
		name, damage := kinds[k%len(kinds)].name, kinds[k%len(kinds)].damage
		for range 30 {
			c.insert("lab", next)
			next++
		}
		log := c.placed("lab").Log
		at := random.IntN(3)
		c.kill(at)
		for range 5 { // which the damaged node does not have
			c.insert("lab", next)
			next++
		}
		for _, path := range c.files(at, log, ".blk") {
			if err := damage(path, random); err != nil {
				t.Fatal(err)
			}
		}
		c.start(at)
		c.awaitWhole()
		found := c.scrub()
		damaged := c.placed("lab").Damaged
		for _, copied := range found {
			if wrong := len(copied.Damage) > 0; wrong != (copied.Node == damaged) || copied.Unread != "" {
				t.Errorf("%s on node %d: node %s: %+v, and %q is known as damaged", name, at, copied.Node, copied, damaged)
			}
		}
		if len(found) != 3 {
			t.Errorf("%d copies were read: %v", len(found), found)
		}
		if damaged != "" && damaged != c.options[at].Node {
			t.Fatalf("%s on node %d: the scrub names %q", name, at, damaged)
		}
		c.pass("lab") // another owner reads what is left
		c.insert("lab", next)
		next++
		if damaged != "" { // otherwise JetStream has found it by itself, and made the copy anew
			named++
			c.replace(at)
		}
		down := (at + 1 + random.IntN(2)) % 3
		c.kill(down)
		c.insert("lab", next)
		next++
		c.start(down)
		c.awaitWhole()
		c.pass("lab")
		_, s := c.owner("lab")
		counts := s.prompts()
		for i := range next {
			if counts[fmt.Sprint(i)] != 2 {
				t.Fatalf("%s on node %d: group %d of %d has %d rollouts", name, at, i, next, counts[fmt.Sprint(i)])
			}
		}
		t.Logf("%s on node %d: all of %d groups are there; named %q", name, at, next, damaged)
	}
	if named == 0 {
		t.Error("no copy was found damaged")
	}
}

// replace replaces a node with a damaged copy of table lab's log, and scrubs the new copy.
func (c *trio) replace(at int) {
	c.t.Helper()
	if risks := strings.Join(c.any().View().Risks, ""); !strings.Contains(risks, "has a damaged copy of table lab") {
		c.t.Errorf("the risks are %q", risks)
	}
	c.kill(at)
	lost := c.options[at].Node
	c.options[at].Node, c.options[at].Replaces, c.options[at].Data = lost+"x", lost, c.t.TempDir()
	c.start(at)
	c.awaitWhole()
	c.scrub()
	if again := c.placed("lab").Damaged; again != "" {
		c.t.Fatalf("the new copy of %s is damaged", again)
	}
}

// scrub has the owner of table lab scrub its copies.
func (c *trio) scrub() (found []wire.ScrubbedCopy) {
	c.t.Helper()
	tests.Until(c.t, "a scrub", func() bool {
		owner, _ := c.owner("lab")
		var err error
		found, err = c.nodes[owner].Scrub(c.t.Context(), "lab", 1<<30)
		return err == nil
	})
	return found
}

// placed returns what the nodes agree on about a table.
func (c *trio) placed(table string) (p placement) {
	c.t.Helper()
	tests.Until(c.t, "the state", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		s, err := c.any().directory.ask(ctx)
		p = s.Tables[table]
		return err == nil
	})
	return p
}

// pass has a table's owner give it to another node, which reads its log.
func (c *trio) pass(table string) {
	at, _ := c.owner(table)
	log := c.placed(table).Log
	c.nodes[at].tables.pass(table, log, nil)
	tests.Until(c.t, "another owner", func() bool {
		now, _ := c.owner(table)
		return now != at
	})
}

// awaitWhole waits until all nodes have all copies.
func (c *trio) awaitWhole() {
	c.t.Helper()
	tests.Until(c.t, "all copies", c.whole)
}

// An only copy is not left out because it is damaged: its owner goes on saying why it cannot be opened.
func TestAnOnlyCopyIsNotLeftOut(t *testing.T) {
	alone := &tables{directory: &directory{replicas: 1}, log: slog.New(slog.DiscardHandler)}
	if err := alone.tellDamage(t.Context(), "lab", &tableLog{source: "n0"}, journal.ErrDamaged); err != nil {
		t.Errorf("the state was asked: %v", err)
	}
}
