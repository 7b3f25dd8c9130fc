package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reprise-rl/reprise/internal/disk"
)

// A node votes in the groups of JetStream from the moment its server runs, and its folder is where it keeps what it has
// voted for and acknowledged. Under the name of a node that has lost its folder, one with an empty folder could elect a
// leader that lacks acknowledged writes. So each folder has an id, the state names the folder of every node that has
// ever joined ([claim]), and a node with an empty folder asks the others ([Node.askForName]) before it starts a
// server that votes.

const (
	// identityFile is the file of an identity, in the folder of the node's copies.
	identityFile = "node.json"
	// nameSubject is where nodes are asked whose folder has a name.
	nameSubject = "reprise.name"
)

// identity tells a node's folder from every other.
type identity struct {
	Node   string `json:"node"`
	Folder string `json:"folder"` // random
	Joined bool   `json:"joined"` // whether the node has ever been in the state

	path  string
	empty bool // there were no copies in the folder
}

// readIdentity reads the identity of a node's folder, or makes one for a folder that has none.
func readIdentity(o Options) (*identity, error) {
	copies := filepath.Join(o.Data, copiesFolder)
	i := &identity{Node: o.Node, Folder: rand.Text(), path: filepath.Join(copies, identityFile)}
	text, err := os.ReadFile(i.path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Join(copies, server.JetStreamStoreDir)) // of a build without identities
		i.empty = errors.Is(err, fs.ErrNotExist)
		i.Joined = !i.empty
		return i, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, i); err != nil {
		return nil, fmt.Errorf("%s: %w: the folder is damaged: start a node of another name (cluster.node) with an "+
			"empty one and cluster.replaces: %s", i.path, err, o.Node)
	}
	if i.Node != o.Node {
		return nil, fmt.Errorf("cluster.node: %s: %s has the copies of node %s: want that name, or another data folder",
			o.Node, o.Data, i.Node)
	}
	return i, nil
}

// write writes the identity to its file.
func (i *identity) write() error {
	if err := os.MkdirAll(filepath.Dir(i.path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return disk.WriteFile(i.path, text)
}

// refuse makes an error of join say which folder and what to do.
func (i *identity) refuse(err error) error {
	if errors.Is(err, errOtherFolder) {
		return fmt.Errorf("cluster.node: %s: %w, and %s is another: the node could vote without knowing what it "+
			"acknowledged before: start it with that folder, or as a node of another name with cluster.replaces: %s", i.Node,
			err, filepath.Dir(i.path), i.Node)
	}
	return fmt.Errorf("cluster.node: %s: %w", i.Node, err)
}

// standing is what a node answers to the question whose folder has a name.
type standing struct {
	Node   string `json:"node"`
	New    bool   `json:"new"`    // it has never joined
	Knows  bool   `json:"knows"`  // it knows the state as it is now
	Folder string `json:"folder"` // the name's, by the state that it has read last; "": no node of that name had joined
}

// answerName answers the others' questions. It asks for the state as it is now: a name may have joined since the last
// beat.
func (n *Node) answerName(m *nats.Msg) {
	ctx, cancel := context.WithTimeout(n.ctx, beatTime)
	defer cancel()
	s, failed := n.directory.ask(ctx)
	if failed != nil {
		s, _ = n.directory.last()
	}
	a := standing{Node: n.options.Node, New: !n.joined.Load(), Knows: failed == nil,
		Folder: s.Names[string(m.Data)].Folder}
	text, err := json.Marshal(a)
	if err == nil {
		err = m.Respond(text)
	}
	if err != nil {
		n.log.Debug("answering whose folder has a name", "error", err)
	}
}

// identify finds out which folder this node has, and writes it down before a server runs that could vote.
func (n *Node) identify(ctx context.Context) (err error) {
	if n.identity, err = readIdentity(n.options); err != nil {
		return err
	}
	n.joined.Store(n.identity.Joined)
	if n.identity.empty {
		if err := n.askForName(ctx); err != nil {
			return err
		}
	}
	return n.identity.write()
}

// askForName asks the other nodes until it is certain that no other folder has had this node's name: until one answers
// that knows the state, or a majority says that it has never joined. It asks by a server
// without JetStream, which votes for nothing.
func (n *Node) askForName(ctx context.Context) error {
	o := n.options
	so, err := serverOptions(o, n.token)
	if err != nil {
		return err
	}
	so.JetStream, so.ServerName = false, o.Node+"-asks-"+rand.Text()
	if len(so.Routes) == 0 { // alone
		return nil
	}
	s, err := startServer(o, so)
	if err != nil {
		return err
	}
	defer s.WaitForShutdown()
	defer s.Shutdown()
	conn, err := dial(s, nodeUser, n.token)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Subscribe(nameSubject, n.answerName); err != nil { // others that are new ask this one
		return err
	}
	for told := time.Now(); ; {
		certain, err := n.askOnce(ctx, conn)
		if certain || err != nil {
			return err
		}
		if time.Since(told) > waitTime {
			told = time.Now()
			n.log.Warn("waiting for the other nodes: one with an empty data folder asks them whether its name is taken",
				"node", o.Node, "data", o.Data, "peers", strings.Join(o.Peers, ", "))
		}
	}
}

// askOnce asks the other nodes once, and reports whether their answers suffice.
func (n *Node) askOnce(ctx context.Context, conn *nats.Conn) (certain bool, err error) {
	inbox := nats.NewInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := conn.PublishRequest(nameSubject, inbox, []byte(n.options.Node)); err != nil {
		return false, err
	}
	round, cancel := context.WithTimeout(ctx, 2*beatTime)
	defer cancel()
	most := max(n.options.Replicas, len(n.options.Peers))/2 + 1
	fresh := make(map[string]bool) // nodes that have never joined, with this one
	for {
		m, err := answers.NextMsgWithContext(round)
		if ctx.Err() != nil {
			return false, fmt.Errorf("joining the cluster as node %s: %w: %s is empty, and too few of the nodes at %s have "+
				"answered whether the name is taken: want %d nodes up", n.options.Node, context.Cause(ctx), n.options.Data,
				strings.Join(n.options.Peers, ", "), most)
		}
		if err != nil { // the round has ended
			return false, nil
		}
		var a standing
		if err := json.Unmarshal(m.Data, &a); err != nil {
			return false, fmt.Errorf("another node's answer whose folder has the name %s: %w", n.options.Node, err)
		}
		if a.Folder != "" {
			return false, n.identity.refuse(errOtherFolder)
		}
		if a.New {
			fresh[a.Node] = true
		}
		if a.Knows || len(fresh) >= most {
			return true, nil
		}
	}
}

// takeOver has the groups of JetStream leave out the lost node that this one replaces. They make new copies here, from
// those that are left.
func (n *Node) takeOver(ctx context.Context) error {
	lost := n.options.Replaces
	if lost == "" {
		return nil
	}
	c, err := n.replace(ctx, lost)
	for ; err == nil; err = pause(ctx) { // while JetStream elects a leader nobody answers
		attempt, cancel := context.WithTimeout(ctx, 2*askTime)
		failed := n.removePeer(attempt, c.Peer)
		cancel()
		if failed == nil {
			return nil
		}
		n.log.Warn("removing the node that this one replaces; it is tried again", "node", lost, "error", failed)
	}
	return fmt.Errorf("cluster.replaces: %s: %w", lost, err)
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(beatTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replace says in the state that this node has the place of a lost one, which then cannot come back. One that was lost
// just now is evicted first.
func (n *Node) replace(ctx context.Context, lost string) (c claim, err error) {
	for end := time.Now().Add(3 * evictTime); ; {
		err = n.directory.change(ctx, func(s *state) error {
			c, err = s.replaceable(lost, n.options.Node)
			if err != nil {
				return err
			}
			c.ReplacedBy = n.options.Node
			s.Names[lost] = c
			for table, p := range s.Tables {
				p.setDamaged(lost, false)
				s.Tables[table] = p
			}
			return nil
		})
		if !errors.Is(err, errUp) || time.Now().After(end) {
			return c, err
		}
		if stopped := pause(ctx); stopped != nil {
			return c, err
		}
	}
}

// removePeer asks the leader of JetStream's servers, which hears only the system account, to remove one of them.
func (n *Node) removePeer(ctx context.Context, peer string) error {
	conn, err := dial(n.server, systemUser, n.token)
	if err != nil {
		return err
	}
	defer conn.Close()
	request, err := json.Marshal(server.JSApiMetaServerRemoveRequest{Peer: peer})
	if err != nil {
		return err
	}
	m, err := conn.RequestWithContext(ctx, server.JSApiRemoveServer, request)
	if err != nil {
		return err
	}
	var answer server.JSApiMetaServerRemoveResponse
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil && !server.IsNatsErr(answer.Error, server.JSClusterServerNotMemberErr) { // removed before
		return answer.Error
	}
	return nil
}
