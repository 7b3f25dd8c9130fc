package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/rollout"
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
	damages    = flag.Int("damages", 3, "copies that tests of damage damage")
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

// damaging damages files of one node after another, and looks for what was acknowledged.
type damaging struct {
	*trio
	random   *rand.Rand
	inserted int // groups into table lab
}

func startDamaging(t *testing.T, stream uint64) *damaging {
	d := &damaging{trio: startTrio(t), random: rand.New(rand.NewPCG(*damageSeed, stream))}
	create(t, d.any(), "lab")
	return d
}

func (d *damaging) insertNext(groups int) {
	d.t.Helper()
	for range groups {
		d.insert("lab", d.inserted)
		d.inserted++
	}
}

// A node comes back with a damaged copy of a table's log, every second time after the copy was damaged while the node
// was up, and the node led the log; every second time of both it leads while another node is down. The scrub or
// JetStream finds it, no table is read from it, the node makes a new copy or is replaced, and nothing that was
// acknowledged is lost.
func TestADamagedCopyLosesNothing(t *testing.T) {
	tests.Long(t)
	d := startDamaging(t, 4)
	named := 0
	for k := range *damages {
		behind := -1 // a node that was down while the damaged one led
		kind, at := kinds[k%len(kinds)], d.random.IntN(3)
		what, lose, elect := fmt.Sprintf("%s on node %d", kind.name, at), d.loseNode, k%4 >= 2
		if k%2 == 1 {
			what = what + " that is up"
			lose = func(at int, damage func(log string)) { behind = d.damageNode(at, elect, damage) }
		}
		lose(at, func(log string) {
			for _, path := range d.files(at, log, ".blk") {
				if err := kind.damage(path, d.random); err != nil {
					t.Fatal(err)
				}
			}
		})
		if d.nodes[at] == nil {
			t.FailNow()
		}
		if elect && k%2 == 0 {
			behind = d.elect(at, what)
		}
		d.awaitWhole()
		found, damaged := d.scrub(), d.placed("lab").Damaged
		for _, copied := range found {
			if wrong := len(copied.Damage) > 0; wrong != slices.Contains(damaged, copied.Node) && copied.Unread == "" {
				t.Errorf("%s: node %s: %+v, and %q are known as damaged", what, copied.Node, copied, damaged)
			}
		}
		if len(found) != 3 {
			t.Errorf("%s: %d copies were read: %v", what, len(found), found)
		}
		d.pass("lab") // another owner reads what is left
		d.insertNext(1)
		if len(damaged) > 0 { // otherwise JetStream has found it by itself, and made the copy anew
			named++
			risk := fmt.Sprintf("node %s has a damaged copy of table lab", damaged[0])
			if risks := strings.Join(d.any().View().Risks, ""); !strings.Contains(risks, risk) {
				t.Errorf("the risks are %q", risks)
			}
		}
		for i := range d.options {
			if !slices.Contains(damaged, d.options[i].Node) {
				continue
			}
			if i != at && i != behind {
				t.Fatalf("%s: the copy of %s is said to be damaged", what, d.options[i].Node)
			}
			d.kill(i)
			d.replace(i)
		}
		d.lookForAll(at, what)
		t.Logf("%s: all of %d groups are there; named %q", what, d.inserted, damaged)
	}
	if named == 0 {
		t.Error("no copy was found damaged")
	}
}

// A node comes back with a damaged file of JetStream's own: the state of a stream, of the groups that agree on what it
// has, or of the group that knows the streams. It mends that by itself, or is replaced, and nothing that was
// acknowledged is lost.
func TestDamagedMetadataLosesNothing(t *testing.T) {
	tests.Long(t)
	d := startDamaging(t, 5)
	for k := range *damages {
		kind, at, what := kinds[k%len(kinds)], d.random.IntN(3), ""
		d.loseNode(at, func(log string) {
			root := filepath.Join(d.options[at].Data, copiesFolder, server.JetStreamStoreDir)
			var paths []string
			err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() && (!strings.Contains(path, log) || filepath.Ext(path) != ".blk") {
					paths = append(paths, path)
				}
				return err
			})
			path := paths[d.random.IntN(len(paths))]
			snapshot := slices.IndexFunc(paths, func(path string) bool { return strings.Contains(path, "_meta_/snapshots/") })
			if k == 0 && snapshot >= 0 { // without it a node does not start
				path = paths[snapshot]
			}
			if err := errors.Join(err, kind.damage(path, d.random)); err != nil {
				t.Fatal(err)
			}
			what = fmt.Sprintf("%s, %s, on node %d", kind.name, strings.TrimPrefix(path, root), at)
		})
		mended := false
		for end := time.Now().Add(mendTime); d.nodes[at] != nil && !mended && time.Now().Before(end); {
			if mended = d.whole(); !mended {
				time.Sleep(100 * time.Millisecond)
			}
		}
		if !mended {
			if d.nodes[at] != nil {
				d.kill(at)
			}
			d.replace(at)
		}
		for _, copied := range d.scrub() {
			if len(copied.Damage) > 0 {
				t.Errorf("%s: node %s: %+v", what, copied.Node, copied)
			}
		}
		d.pass("lab")
		d.insertNext(1)
		d.lookForAll(at, what)
		t.Logf("%s: all of %d groups are there; mended by itself: %v", what, d.inserted, mended)
	}
}

// otherContent changes the content of one message of a file of messages so that its checksums are right.
func otherContent(path, log string, random *rand.Rand) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var records [][]byte // total(4) number(8) time(8) subject_length(2) subject [header_length(4) header] message sum(8)
	for rest := b; len(rest) > 0; {
		n := binary.LittleEndian.Uint32(rest) &^ (1 << 31)
		records, rest = append(records, rest[:n]), rest[n:]
	}
	for _, i := range random.Perm(len(records)) {
		r := records[i]
		subject := r[22 : 22+binary.LittleEndian.Uint16(r[20:])]
		at := 22 + len(subject)
		if binary.LittleEndian.Uint32(r)&(1<<31) == 0 {
			continue // not a message of ours
		}
		header := r[at+4 : at+4+int(binary.LittleEndian.Uint32(r[at:]))]
		message := r[at+4+len(header) : len(r)-8]
		if len(message) <= sumLength {
			continue
		}
		message[len(message)-1]++
		binary.LittleEndian.PutUint32(message, contentSum(message[sumLength:]))
		key := sha256.Sum256([]byte(log + "-" + strings.TrimSuffix(filepath.Base(path), ".blk")))
		sum, err := highwayhash.New64(key[:])
		if err != nil {
			return err
		}
		for _, part := range [][]byte{r[4:20], subject, header, message} {
			_, _ = sum.Write(part)
		}
		sum.Sum(r[len(r)-8 : len(r)-8])
		return os.WriteFile(path, b, 0o600)
	}
	return errors.New("no message of a table")
}

// A copy whose messages are others than those of the other nodes, each whole by itself, is found by comparing them.
func TestACopyWithOtherMessagesIsFound(t *testing.T) {
	tests.Long(t)
	d := startDamaging(t, 6)
	for range max(1, *damages/3) {
		at := d.random.IntN(3)
		d.loseNode(at, func(log string) {
			paths := d.files(at, log, ".blk")
			if err := otherContent(paths[d.random.IntN(len(paths))], log, d.random); err != nil {
				t.Fatal(err)
			}
		})
		d.awaitWhole()
		found := d.scrub()
		for _, copied := range found {
			if wrong := len(copied.Damage) > 0; wrong != (copied.Node == d.options[at].Node) {
				t.Errorf("node %s: %+v; node %d differs", copied.Node, copied, at)
			}
		}
		if damaged := d.knownDamaged(); damaged != d.options[at].Node {
			t.Fatalf("%q is known as damaged, want %q", damaged, d.options[at].Node)
		}
		d.pass("lab")
		d.insertNext(1)
		d.kill(at)
		d.replace(at)
		d.lookForAll(at, "other messages")
	}
}

// Copies are compared where both have what the other has. Most are right; of two that differ neither is known to be.
func TestCopiesAreCompared(t *testing.T) {
	long := 3 * digestSpan
	// A trim while message trimAt is read leaves message next as the first.
	overtaken := func(node string, first, trimAt, next, changed int) *scrubbed {
		s := &scrubbed{node: node, log: &tableLog{name: "log", source: node}, digests: make(digests)}
		for n := first; n <= long; n++ {
			if n > trimAt && n < next {
				continue
			}
			text := fmt.Sprint(n)
			if n == changed {
				text = "other"
			}
			s.digests.add(uint64(n), "writer", []byte(text))
		}
		return s
	}
	read := func(node string, first, changed int) *scrubbed { return overtaken(node, first, 0, 0, changed) }
	for name, each := range map[string]struct {
		copies         []*scrubbed
		damaged, doubt string
	}{
		"the same":                     {[]*scrubbed{read("a", 1, 0), read("b", 1, 0), read("c", 1, 0)}, "", ""},
		"one differs":                  {[]*scrubbed{read("a", 1, 0), read("b", 1, 2000), read("c", 1, 0)}, "b", ""},
		"its last message differs":     {[]*scrubbed{read("a", 1, 0), read("b", 1, 0), read("c", 1, long)}, "c", ""},
		"all differ":                   {[]*scrubbed{read("a", 1, 5), read("b", 1, 6), read("c", 1, 7)}, "", "abc"},
		"one of two differs":           {[]*scrubbed{read("a", 1, 5), read("b", 1, 0)}, "", "ab"},
		"trimmed between":              {[]*scrubbed{read("a", 1, 0), read("b", 100, 0), read("c", 1500, 0)}, "", ""},
		"trimmed, and one differs":     {[]*scrubbed{read("a", 1, 0), read("b", 100, 0), read("c", 1500, 2500)}, "c", ""},
		"differs where one is trimmed": {[]*scrubbed{read("a", 1, 5), read("b", 1500, 0), read("c", 1500, 0)}, "", ""},
		"of one nothing is left":       {[]*scrubbed{read("a", 1, 0), read("b", long+1, 0), read("c", 1, 0)}, "", ""},
		"trimmed while one is read": {
			[]*scrubbed{read("a", 1, 0), read("b", 1, 0), overtaken("c", 1, 100, 500, 0)}, "", ""},
		"trimmed far while one is read": {
			[]*scrubbed{read("a", 1, 0), read("b", 1, 0), overtaken("c", 1, 100, 1500, 0)}, "", ""},
		"trimmed while one is read, and it differs": {
			[]*scrubbed{read("a", 1, 0), read("b", 1, 0), overtaken("c", 1, 100, 500, 2500)}, "c", ""},
		"only one": {[]*scrubbed{read("a", 1, 0)}, "", ""},
	} {
		compare(each.copies)
		damaged, doubt := "", ""
		for _, s := range each.copies {
			if s.damaged && errors.Is(s.error, journal.ErrDamaged) {
				damaged += s.node
			}
			if s.doubt != "" {
				doubt += s.node
			}
		}
		if damaged != each.damaged || doubt != each.doubt {
			t.Errorf("%s: damaged %q, in doubt %q; want %q, %q", name, damaged, doubt, each.damaged, each.doubt)
		}
	}
}

// A scrub beside insertions and trims finds nothing wrong, also where a trim overtakes the reader of one copy: the log
// is larger than what a reader has under way.
func TestAScrubBesideWritersAndTrimsFindsNothing(t *testing.T) {
	tests.Long(t)
	c := startTrio(t)
	create(t, c.any(), "lab")
	tokens, logprobs := make([]int32, 60_000), make([]float32, 60_000) // 0.5 MB
	random := rand.New(rand.NewPCG(1, 7))
	for i := range tokens {
		tokens[i], logprobs[i] = random.Int32N(1<<17), -random.Float32()
	}
	at, s := c.owner("lab")
	const groups = 64 // 32 MB
	for range groups {
		r := rollout.New("large", []int32{1}, rollout.Completion{Tokens: tokens, Logprobs: logprobs})
		_, err := s.Insert(t.Context(), rollout.Group{Rollouts: []*rollout.Rollout{r}})
		if err := errors.Join(err, s.journal.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(200 * time.Millisecond):
			}
			// The second trims all that was there before.
			if err := errors.Join(c.give(s, i), s.journal.Rewrite(s.Table)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2 {
		for _, copied := range c.scrub() {
			if len(copied.Damage) > 0 {
				t.Errorf("node %s: %+v", copied.Node, copied)
			}
		}
	}
	close(ended)
	writer.Wait()
	if damaged := c.knownDamaged(); damaged != "" {
		t.Errorf("%q is known as damaged", damaged)
	}
	c.awaitWhole()
	tests.Until(t, "the nodes to agree that the log begins behind the groups above", func() bool {
		return c.placed("lab").First > groups
	})
	owner := c.nodes[at].tables
	own := owner.find("lab").taken.Load()
	tests.Until(t, "a trim to overtake a reader", func() bool {
		last := own.reached.Load()
		read := []*scrubbed{owner.scrubCopy(t.Context(), own, last, "n0", 1<<30),
			owner.scrubCopy(t.Context(), own, last, "n1", 1<<30)}
		writer.Go(func() {
			if err := s.journal.Rewrite(s.Table); err != nil {
				t.Error(err)
			}
		})
		read = append(read, owner.scrubCopy(t.Context(), own, last, "n2", 2<<20))
		writer.Wait()
		compare(read)
		for _, r := range read {
			if r.damaged || r.doubt != "" {
				t.Fatalf("node %s: %v, %q", r.node, r.error, r.doubt)
			}
		}
		for _, of := range read[2].digests {
			if of.last > last { // what came in the place of the trimmed end
				return true
			}
		}
		return false
	})
}

// mendTime is how long a node may take to mend JetStream's files before it is replaced.
const mendTime = 30 * time.Second

// loseNode ends a node, damages it, and starts it again, with insertions before, and while it is down.
func (d *damaging) loseNode(at int, damage func(log string)) {
	d.t.Helper()
	d.insertNext(30)
	log := d.placed("lab").Log
	d.kill(at)
	d.insertNext(5) // which the damaged node does not have
	damage(log)
	if err := d.tryStart(at); err != nil {
		d.t.Logf("node %d does not start: %v", at, err)
		if !strings.Contains(err.Error(), "cluster.replaces: "+d.options[at].Node) {
			d.t.Error("that does not say what to do")
		}
	}
}

// damageNode damages a node that is up, has it lead the log and the table opened anew, with another node down or not,
// and starts the node again. It returns which other node was down, -1 if none.
func (d *damaging) damageNode(at int, elect bool, damage func(log string)) (behind int) {
	d.t.Helper()
	d.insertNext(30)
	log := d.placed("lab").Log
	damage(log)
	d.insertNext(5)
	behind = -1
	if elect {
		behind = d.elect(at, fmt.Sprintf("node %d, damaged while it is up", at))
	} else {
		d.lead(at, log)
		d.insertNext(5)
		d.pass("lab")
		d.insertNext(5)
		for _, copied := range d.scrub() {
			if len(copied.Damage) > 0 && copied.Node != d.options[at].Node {
				d.t.Errorf("node %s: %v, and node %d is damaged", copied.Node, copied.Damage, at)
			}
		}
	}
	d.kill(at)
	d.start(at)
	return behind
}

// lead has a node lead a stream.
func (c *trio) lead(at int, stream string) {
	c.t.Helper()
	tests.Until(c.t, c.options[at].Node+" to lead "+stream, func() bool { return c.askToLead(at, stream) })
}

// electTime is how long a damaged node may take to lead, and the other to serve beside it, until both are given up.
const electTime = 15 * time.Second

// elect has a damaged node lead the log and the table opened anew, while another node is down and falls behind. Only
// two are left, one of them damaged, so each step may fail; what is served must be all that was acknowledged. It returns
// the node that was down, which may have lost the same messages by catching up.
func (d *damaging) elect(at int, what string) (behind int) {
	d.t.Helper()
	log := d.placed("lab").Log
	behind = (at + 1 + d.random.IntN(2)) % 3
	d.kill(behind)
	acknowledged := d.insertSome(5)
	led := within(electTime, func() bool { return d.askToLead(at, log) })
	acknowledged += d.insertSome(5)
	opened := false
	if before, s := d.serving("lab"); s != nil {
		d.nodes[before].tables.pass("lab", log, nil)
		opened = within(electTime, func() bool {
			now, s := d.serving("lab")
			if s == nil || now == before {
				return false
			}
			d.lookIn(s, what+" elected")
			return true
		})
	}
	if damaged := d.options[at].Node; slices.Contains(d.placed("lab").Damaged, damaged) {
		// What comes back now takes its copy from the leader.
		tests.Until(d.t, "a leader whose copy is whole", func() bool {
			leader := d.leader(log)
			return leader != "" && leader != damaged
		})
	}
	d.t.Logf("%s: elected: %v; %d of 10 insertions were acknowledged; opened anew: %v", what, led, acknowledged, opened)
	d.start(behind)
	return behind
}

// insertSome inserts groups while they are acknowledged in time, and returns how many were. The next insertion repeats
// one that was not.
func (d *damaging) insertSome(groups int) (done int) {
	for range groups {
		if !within(electTime, func() bool {
			at, s := d.serving("lab")
			if s == nil || d.give(s, d.inserted) != nil {
				return false
			}
			return s.journal.Commit(d.t.Context()) == nil && d.nodes[at].Valid()
		}) {
			return done
		}
		d.inserted, done = d.inserted+1, done+1
	}
	return done
}

// within reports whether something comes true in time.
func within(limit time.Duration, met func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if met() {
			return true
		}
	}
	return false
}

// askToLead asks a node to lead a stream, and reports whether it does.
func (c *trio) askToLead(at int, stream string) bool {
	if c.leader(stream) == c.options[at].Node {
		return true
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), askTime)
	defer cancel()
	_, _ = c.any().conn.RequestWithContext(ctx, fmt.Sprintf(server.JSApiStreamLeaderStepDownT, stream),
		fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, c.options[at].Node))
	return false
}

// leader returns the node that leads a stream, "" if none is known to.
func (c *trio) leader(stream string) string {
	ctx, cancel := context.WithTimeout(c.t.Context(), askTime)
	defer cancel()
	s, err := c.any().directory.js.Stream(ctx, stream)
	if err != nil {
		return ""
	}
	return leaderOf(s.CachedInfo().Cluster)
}

// lookForAll looks for everything that was acknowledged, with another node than the damaged one down for a while.
func (d *damaging) lookForAll(damaged int, what string) {
	d.t.Helper()
	down := (damaged + 1 + d.random.IntN(2)) % 3
	d.kill(down)
	d.insertNext(1)
	d.start(down)
	d.awaitWhole()
	d.pass("lab")
	_, s := d.owner("lab")
	d.lookIn(s, what)
}

// lookIn looks for everything that was acknowledged in a table that was just opened.
func (d *damaging) lookIn(s *served, what string) {
	d.t.Helper()
	counts := s.prompts()
	for i := range d.inserted {
		if n := counts[fmt.Sprint(i)]; n != 2 {
			d.t.Fatalf("%s: group %d of %d has %d rollouts", what, i, d.inserted, n)
		}
	}
}

// replace replaces a node that is down by one with an empty folder, and scrubs the new copy.
func (c *trio) replace(at int) {
	c.t.Helper()
	lost := c.options[at].Node
	c.options[at].Node, c.options[at].Replaces, c.options[at].Data = lost+"x", lost, c.t.TempDir()
	c.start(at)
	c.awaitWhole()
	c.scrub()
	if slices.Contains(c.placed("lab").Damaged, c.options[at].Node) {
		c.t.Fatalf("the new copy of %s is damaged", lost)
	}
}

// scrub has the owner of table lab scrub its copies. All are read, but those that are known to be damaged may not be
// up to date.
func (c *trio) scrub() (found []wire.ScrubbedCopy) {
	c.t.Helper()
	tests.Until(c.t, "a scrub", func() bool {
		owner, _ := c.owner("lab")
		var err error
		found, err = c.nodes[owner].Scrub(c.t.Context(), "lab", 1<<30)
		return err == nil && !slices.ContainsFunc(found, func(copied wire.ScrubbedCopy) bool {
			return copied.Unread != "" && !slices.Contains(c.placed("lab").Damaged, copied.Node)
		})
	})
	return found
}

// knownDamaged returns the nodes whose copies of table lab are known to be damaged.
func (c *trio) knownDamaged() string { return strings.Join(c.placed("lab").Damaged, ", ") }

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
