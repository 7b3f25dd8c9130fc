package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/wire"
)

// state is what the nodes agree on: one document in a replicated stream, changed by compare-and-set. Its methods are
// the only changes, and take no time and no network into account.
type state struct {
	Nodes  map[string]member    `json:"nodes"`
	Tables map[string]placement `json:"tables"`
	Names  map[string]claim     `json:"names"` // of all nodes that have ever joined
}

// claim is what a node's name stands for, for good.
type claim struct {
	Folder     string `json:"folder"`                // its data folder's id
	Peer       string `json:"peer"`                  // its id in the groups of JetStream
	ReplacedBy string `json:"replaced_by,omitempty"` // the node that has taken over its copies
}

// member is a node with a lease that nobody has ended.
type member struct {
	Session uint64 `json:"session"` // of the process; a node that was evicted comes back under another
	Beat    uint64 `json:"beat"`    // how often it has renewed its lease
	Address string `json:"address"` // as clients dial its service
	Domain  string `json:"domain"`
	Full    string `json:"full,omitempty"` // why its disk takes nothing more
}

// placement is a table and its owner.
type placement struct {
	Log     string      `json:"log"`                      // name of its stream, which no other table has ever had
	Owner   string      `json:"owner,omitempty"`          // a node; "" while no node is up
	Session uint64      `json:"session,omitempty"`        // of the owner
	Counts  wire.Counts `json:"counts"`                   // as of the owner's last beat
	Reached uint64      `json:"reached,omitempty"`        // last message of the log that was acknowledged, as of that beat
	First   uint64      `json:"first,omitempty"`          // message with which the log begins; 0: not known
	Damaged []string    `json:"damaged_copies,omitempty"` // nodes whose copies of the log are damaged
}

// errEvicted is the error of a node whose lease another node has ended.
var errEvicted = errors.New("the other nodes have given this node's tables to others")

// Why a node cannot join.
var (
	errOtherFolder = errors.New("a node of this name has joined the cluster with another data folder")
	errReplaced    = errors.New("it has been replaced by")
)

// join adds a node, or brings it back under a new session, unless its name stands for another folder, or it has been
// replaced.
func (s *state) join(name string, c claim, m member) error {
	known, ok := s.Names[name]
	switch {
	case ok && known.Folder != c.Folder:
		return errOtherFolder
	case known.ReplacedBy != "":
		return fmt.Errorf("%w node %s: want an empty data folder and another name", errReplaced, known.ReplacedBy)
	}
	s.Names[name] = c
	s.Nodes[name] = m
	s.place()
	return nil
}

// errUp is the error of replacing a node that has a lease.
var errUp = errors.New("this node is up: only a lost one can be replaced")

// replaceable returns the claim of a node that another is to replace.
func (s *state) replaceable(lost, by string) (claim, error) {
	c, known := s.Names[lost]
	_, up := s.Nodes[lost]
	var err error
	switch {
	case !known:
		err = fmt.Errorf("no node of that name has joined: want one of %s",
			strings.Join(slices.Sorted(maps.Keys(s.Names)), ", "))
	case up:
		err = errUp
	case c.ReplacedBy != "" && c.ReplacedBy != by:
		err = fmt.Errorf("%w node %s", errReplaced, c.ReplacedBy)
	}
	return c, err
}

// beat renews a node's lease, and says why its disk is full if it is.
func (s *state) beat(name string, session uint64, full string) error {
	m, ok := s.Nodes[name]
	if !ok || m.Session != session {
		return errEvicted
	}
	m.Beat++
	m.Full = full
	s.Nodes[name] = m
	return nil
}

// evict ends a node's lease and gives its tables to others.
func (s *state) evict(name string) {
	delete(s.Nodes, name)
	s.place()
}

// create adds a table unless there is one of that name.
func (s *state) create(name string, p placement) (created bool) {
	if _, taken := s.Tables[name]; taken {
		return false
	}
	s.Tables[name] = p
	s.place()
	return true
}

// owned reports whether a table's owner is up.
func (s *state) owned(p placement) bool {
	m, up := s.Nodes[p.Owner]
	return up && m.Session == p.Session
}

// full returns the first node by name whose disk takes nothing more, and why; "" if there is none.
func (s *state) full() (node, why string) {
	for name, m := range s.Nodes {
		if m.Full != "" && (node == "" || name < node) {
			node, why = name, m.Full
		}
	}
	return node, why
}

// loads returns the number of tables of each node.
func (s *state) loads() map[string]int {
	loads := make(map[string]int)
	for name := range s.Nodes {
		loads[name] = 0
	}
	for _, p := range s.Tables {
		if s.owned(p) {
			loads[p.Owner]++
		}
	}
	return loads
}

// leastLoaded returns the node with the fewest tables, the first by name among equals, "" if there is none.
func leastLoaded(loads map[string]int) (least string) {
	for _, name := range slices.Sorted(maps.Keys(loads)) {
		if least == "" || loads[name] < loads[least] {
			least = name
		}
	}
	return least
}

// place gives every table without an owner to the least loaded node.
func (s *state) place() {
	loads := s.loads()
	for _, name := range slices.Sorted(maps.Keys(s.Tables)) {
		p := s.Tables[name]
		if s.owned(p) {
			continue
		}
		p.Owner = leastLoaded(loads)
		p.Session = s.Nodes[p.Owner].Session
		loads[p.Owner]++
		s.Tables[name] = p
	}
}

// handOver gives a table that a node owns to the least loaded of the others. It reports whether there is one.
func (s *state) handOver(table, from string) bool {
	p, loads := s.Tables[table], s.loads()
	delete(loads, from)
	to := leastLoaded(loads)
	if p.Owner != from || to == "" {
		return false
	}
	p.Owner, p.Session = to, s.Nodes[to].Session
	s.Tables[table] = p
	return true
}

// surplus returns a table that a node should hand over, as another has at least two fewer, "" if there is none.
func (s *state) surplus(name string) string {
	loads := s.loads()
	if loads[name] < loads[leastLoaded(loads)]+2 {
		return ""
	}
	for _, table := range slices.Sorted(maps.Keys(s.Tables)) {
		if s.Tables[table].Owner == name {
			return table
		}
	}
	return ""
}
