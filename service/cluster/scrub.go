package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/xxh3"

	"github.com/reprise-rl/reprise/service/journal"
	"github.com/reprise-rl/reprise/wire"
)

// scrubTries is how often a scrub tries to read a copy: elections and slow disks pass.
const scrubTries = 5

// scrub reads the copies of the log of a table of this node, while it owns the table, compares them, and tells the
// other nodes which is damaged.
func (t *tables) scrub(ctx context.Context, table string, bytesPerSecond int64) (found []wire.ScrubbedCopy, err error) {
	o := t.find(table)
	if o == nil || !o.open.Load() {
		return nil, wire.ElsewhereError("", "table %q: this node does not have it any more: retry", table)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.ctx, cancel)()
	stream, err := t.directory.js.Stream(ctx, o.log)
	if err != nil {
		return nil, err
	}
	current, others := copies(stream.CachedInfo().Cluster)
	var whole []*scrubbed
	read := make([]*scrubbed, len(current))
	last := o.taken.Load().reached.Load() // what every copy is read to
	for i, node := range current {
		read[i] = t.scrubCopy(ctx, o.taken.Load(), last, node, bytesPerSecond)
		for try := 1; read[i].error != nil && !read[i].damaged && try < scrubTries && pause(ctx) == nil; try++ {
			read[i] = t.scrubCopy(ctx, o.taken.Load(), last, node, bytesPerSecond)
		}
		if read[i].error == nil {
			whole = append(whole, read[i])
		}
	}
	compare(whole)
	var errs []error
	for i, node := range current {
		c := wire.ScrubbedCopy{Node: node}
		switch r := read[i]; {
		case r.damaged:
			c.Damage = []string{r.error.Error()}
			errs = append(errs, t.tellDamage(ctx, table, r.log, r.error))
		case r.doubt != "":
			c.Doubt = r.doubt
			t.log.Error("copies of a table's log differ", "table", table, "node", node, "what", r.doubt)
		case r.error != nil:
			c.Unread = r.error.Error()
			t.log.Warn("a copy of a table's log could not be read", "table", table, "node", node, "error", r.error)
		case len(whole) > 1 || t.directory.replicas == 1: // it was compared with another
			errs = append(errs, t.changePlacement(ctx, table, o.log, func(p *placement) bool {
				return p.setDamaged(node, false)
			}))
		}
		found = append(found, c)
	}
	for _, node := range others {
		found = append(found, wire.ScrubbedCopy{Node: node, Unread: "it is down, or not up to date"})
	}
	return found, errors.Join(append(errs, ctx.Err())...)
}

// scrubbed is what became of reading a copy.
type scrubbed struct {
	node    string
	log     *tableLog
	digests digests
	error   error
	damaged bool   // the copy is damaged, as error says
	doubt   string // it differs from other copies, and which are right is not known
}

// scrubCopy reads the copy of a log on a node through, up to a last message.
func (t *tables) scrubCopy(ctx context.Context, own *tableLog, last uint64, node string, bytesPerSecond int64) *scrubbed {
	s := &scrubbed{node: node, digests: make(digests)}
	s.log = &tableLog{js: t.directory.js, stream: own.stream, name: own.name, ctx: ctx, log: t.log, last: last,
		first: own.first, seen: s.digests.add}
	s.error = s.log.readCopy(ctx, func(at string) bool { return at == node || at == "" },
		func(batch []journal.Message) error {
			bytes := 0
			for _, m := range batch {
				bytes += len(m.Data)
			}
			select {
			case <-time.After(time.Duration(float64(bytes) / float64(bytesPerSecond) * float64(time.Second))):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	s.damaged = s.log.broken && errors.Is(s.error, journal.ErrDamaged)
	return s
}

// digestSpan is how many sequence numbers one digest is for.
const digestSpan = 1024

// digests tell the contents of copies apart, by XXH3-128 over the messages of digestSpan sequence numbers each. The key
// is the first of these numbers.
type digests map[uint64]digest

type digest struct {
	first, last uint64 // messages that are there
	sum         xxh3.Uint128
}

// add adds the next message of a copy. A gap is what a trim took while the copy was read, as [tableLog.follows] has
// checked: then nothing before it is in the log any more, and the digests begin anew behind it. Otherwise they would
// differ from those of copies that were read before the trim.
func (d digests) add(number uint64, writer string, content []byte) {
	key := number - number%digestSpan
	if before := number - 1; d[before-before%digestSpan].last != before {
		clear(d)
	}
	of, begun := d[key]
	if !begun {
		of.first = number
	}
	of.last = number
	var head []byte
	for _, n := range []uint64{of.sum.Lo, of.sum.Hi, number, uint64(len(writer))} {
		head = binary.LittleEndian.AppendUint64(head, n)
	}
	sum := xxh3.New() // whose writes never fail
	_, _ = sum.Write(append(head, writer...))
	_, _ = sum.Write(content)
	of.sum = sum.Sum128()
	d[key] = of
}

// compare compares copies, each of which is whole by itself. The majority is right, and the others are damaged; without
// a majority all are in doubt. Messages that were trimmed from one copy before it was read are not compared.
func compare(read []*scrubbed) {
	keys := make(map[uint64]bool)
	for _, s := range read {
		for key := range s.digests {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		from := uint64(0) // of the copy that was trimmed most
		for _, s := range read {
			if of, there := s.digests[key]; there {
				from = max(from, of.first)
			}
		}
		having := make(map[digest][]*scrubbed)
		for _, s := range read {
			if of := s.digests[key]; of.first == from {
				having[of] = append(having[of], s)
			}
		}
		if len(having) > 1 {
			judge(having, len(read))
		}
	}
}

// judge notes which copies differ, given those that have the same messages.
func judge(having map[digest][]*scrubbed, all int) {
	for of, copies := range having {
		most, others := false, []string(nil)
		for other, agreeing := range having {
			if other == of {
				continue
			}
			most = most || 2*len(agreeing) > all
			for _, s := range agreeing {
				others = append(others, s.node)
			}
		}
		slices.Sort(others)
		for _, s := range copies {
			switch {
			case 2*len(copies) > all || s.damaged:
			case most:
				s.error = s.log.damaged("has other messages from %d to %d than most copies", of.first, of.last)
				s.damaged = true
			default:
				s.doubt = fmt.Sprintf("its messages from %d to %d differ from those of %s: which are right is not known without "+
					"another copy", of.first, of.last, strings.Join(others, " and "))
			}
		}
	}
}

// copies returns the nodes that have current copies of a stream, and the others.
func copies(c *jetstream.ClusterInfo) (current, others []string) {
	if c == nil {
		return nil, nil
	}
	if c.Leader != "" {
		current = append(current, c.Leader)
	}
	for _, r := range c.Replicas {
		if r.Current && !r.Offline {
			current = append(current, r.Name)
		} else {
			others = append(others, r.Name)
		}
	}
	return current, others
}
