package cluster

import (
	"slices"

	"github.com/nats-io/nats-server/v2/server"
)

// A copy that lost messages must not lead its log: JetStream's nodes that catch up delete what the leader's copy lacks.
// So each node compares what its server counts with where the logs begin ([placement.First]), says in the state which of
// its copies lack messages, and gives way to a node whose copy is whole.

// lacks reports whether a node's copy of the table's log lacks messages between where the log begins and the last that
// the copy has: only trims remove messages, and only before First. As long as messages are there that may be trimmed, as
// many may be missing behind them unseen.
func (p placement) lacks(c server.StreamState) bool {
	return p.First > 0 && c.LastSeq >= p.First && c.Msgs < c.LastSeq-p.First+1
}

// avoided returns the nodes whose copies are not read: the damaged ones, unless all are. In that case one is read
// anyway, so the error says what is wrong.
func (p placement) avoided(replicas int) []string {
	if len(p.Damaged) >= replicas {
		return nil
	}
	return p.Damaged
}

// setDamaged notes whether the copy of a node is damaged, and reports whether that is news.
func (p *placement) setDamaged(node string, damaged bool) (news bool) {
	if slices.Contains(p.Damaged, node) == damaged {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(p.Damaged), func(n string) bool { return n == node })
	if p.Damaged = others; damaged {
		p.Damaged = append(others, node)
	}
	return true
}

// look is what a node's server says of its copies of streams, by name, now and the time before.
type look struct {
	now, before map[string]server.StreamDetail
}

// lacks reports whether the copy of a table's log lacked messages both times: one that JetStream is just deleting does
// for a moment.
func (l *look) lacks(p placement) bool {
	return p.lacks(l.now[p.Log].State) && p.lacks(l.before[p.Log].State)
}

// lookLoop looks at the node's copies of streams. The beat does not wait for it: the server answers after the disk.
func (n *Node) lookLoop() {
	for n.ctx.Err() == nil {
		account, err := n.server.JszAccount(&server.JSzOptions{Account: server.DEFAULT_GLOBAL_ACCOUNT, Streams: true})
		if err != nil { // JetStream has ended, which the beat sees
			n.log.Debug("looking at this node's copies", "error", err)
			account = &server.AccountDetail{}
		}
		now := make(map[string]server.StreamDetail, len(account.Streams))
		for _, c := range account.Streams {
			now[c.Name] = c
		}
		n.seen.Store(&look{now: now, before: n.seen.Load().now})
		_ = pause(n.ctx)
	}
}

// logDamage logs which copies of this node are damaged by a state, and were not by the one before.
func (n *Node) logDamage(before, now state, seen *look) {
	for table, p := range now.Tables {
		if !slices.Contains(p.Damaged, n.options.Node) || slices.Contains(before.Tables[table].Damaged, n.options.Node) {
			continue
		}
		c := seen.now[p.Log].State
		n.log.Error("this node's copy of a table's log is damaged", "table", table, "stream", p.Log, "begins_with",
			c.FirstSeq, "want", p.First, "ends_with", c.LastSeq, "messages", c.Msgs)
	}
}

// giveWay steps down as the leader of each log whose copy here is damaged, if another that is up to date is whole.
func (n *Node) giveWay(s state, seen *look) {
	for _, p := range s.Tables {
		c := seen.now[p.Log].Cluster
		if c == nil || !slices.Contains(p.Damaged, n.options.Node) ||
			!n.server.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, p.Log) { // the look may be old
			continue
		}
		whole := slices.IndexFunc(c.Replicas, func(r *server.PeerInfo) bool {
			return r.Current && !r.Offline && !slices.Contains(p.Damaged, r.Name)
		})
		if whole >= 0 {
			to := c.Replicas[whole].Name
			n.log.Info("another node is to lead a log, as this node's copy is damaged", "stream", p.Log, "node", to,
				"error", stepDown(n.conn, p.Log, to))
		}
	}
}
