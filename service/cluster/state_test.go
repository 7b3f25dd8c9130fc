package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Whatever happens in whatever order, each table has one owner that is up while any node is, an owner keeps its tables
// unless it is evicted or hands them over, and a node that was evicted renews no lease.
func TestEachTableHasAnOwnerThatIsUp(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		s := state{Nodes: make(map[string]member), Tables: make(map[string]placement), Names: make(map[string]claim)}
		sessions := make(map[string]uint64) // of the nodes' processes, evicted or not
		name := func() string { return fmt.Sprintf("n%d", random.IntN(5)) }
		for step := range 100 {
			before := make(map[string]placement)
			for table, p := range s.Tables {
				before[table] = p
			}
			moved, gone := "", ""
			switch node, table := name(), fmt.Sprintf("t%d", random.IntN(12)); random.IntN(7) {
			case 0:
				sessions[node] = random.Uint64()
				_ = s.join(node, claim{}, member{Session: sessions[node]})
				gone = node // under its session before
			case 1:
				s.evict(node)
				gone = node
			case 2:
				_, known := s.Tables[table]
				if s.create(table, placement{Log: fmt.Sprint(step)}) == known {
					t.Fatalf("seed %d: creating %s, which is there: %t", seed, table, known)
				}
			case 3:
				delete(s.Tables, table)
			case 4:
				if from := s.Tables[table].Owner; s.handOver(table, from) {
					moved = table
					if s.Tables[table].Owner == from {
						t.Fatalf("seed %d: %s was handed to its owner", seed, table)
					}
				}
			case 5:
				if table := s.surplus(node); table != "" {
					moved = table
					s.handOver(table, node)
				}
			case 6:
				_, up := s.Nodes[node]
				if err := s.beat(node, sessions[node], ""); errors.Is(err, errEvicted) == up {
					t.Fatalf("seed %d: the beat of %s, which is up: %t, gave %v", seed, node, up, err)
				}
			}
			for table, p := range s.Tables {
				if len(s.Nodes) > 0 && !s.owned(p) {
					t.Fatalf("seed %d, step %d: %s is owned by %q, which is not up", seed, step, table, p.Owner)
				}
				was, known := before[table]
				if known && was.Owner != "" && table != moved && was.Owner != gone &&
					(was.Owner != p.Owner || was.Session != p.Session || was.Log != p.Log) {
					t.Fatalf("seed %d, step %d: %s went from %+v to %+v", seed, step, table, was, p)
				}
			}
		}
	}
}

func TestTablesAreSpreadOverTheNodes(t *testing.T) {
	s := state{Nodes: make(map[string]member), Tables: make(map[string]placement), Names: make(map[string]claim)}
	for i := range 3 {
		_ = s.join(fmt.Sprintf("n%d", i), claim{}, member{Session: uint64(i + 1)})
	}
	for i := range 8 {
		s.create(fmt.Sprintf("t%d", i), placement{})
	}
	if l := s.loads(); l["n0"] != 3 || l["n1"] != 3 || l["n2"] != 2 {
		t.Errorf("the nodes have %v tables", l)
	}
	s.evict("n0")
	_ = s.join("n0", claim{}, member{Session: 9})
	if l := s.loads(); l["n0"] != 0 || l["n1"]+l["n2"] != 8 {
		t.Errorf("after the loss of a node they have %v", l)
	}
	for range 10 {
		for _, name := range []string{"n1", "n2"} {
			if table := s.surplus(name); table != "" {
				s.handOver(table, name)
			}
		}
	}
	if l := s.loads(); l["n0"] < 2 || l["n1"] > 3 || l["n2"] > 3 {
		t.Errorf("after the tables were handed over they have %v", l)
	}
}

// A name stands for one folder, for good.
func TestANameStandsForOneFolder(t *testing.T) {
	s := state{Nodes: make(map[string]member), Tables: make(map[string]placement), Names: make(map[string]claim)}
	for _, folder := range []string{"a", "a"} { // and again
		if err := s.join("n0", claim{Folder: folder, Peer: "p"}, member{Session: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.replaceable("n0", "n1"); err == nil || !strings.Contains(err.Error(), "is up") {
		t.Errorf("a node that is up can be replaced: %v", err)
	}
	if _, err := s.replaceable("n5", "n1"); err == nil || !strings.Contains(err.Error(), "want one of n0") {
		t.Errorf("a node that never joined can be replaced: %v", err)
	}
	s.evict("n0")
	if err := s.join("n0", claim{Folder: "b"}, member{}); !errors.Is(err, errOtherFolder) {
		t.Errorf("an empty folder under the name: %v", err)
	}
	c, err := s.replaceable("n0", "n1")
	if err != nil || c.Peer != "p" {
		t.Errorf("replacing it: %+v, %v", c, err)
	}
	c.ReplacedBy = "n1"
	s.Names["n0"] = c
	if err := s.join("n0", claim{Folder: "a"}, member{}); !errors.Is(err, errReplaced) {
		t.Errorf("a node that was replaced is back: %v", err)
	}
	if _, err := s.replaceable("n0", "n2"); !errors.Is(err, errReplaced) {
		t.Errorf("it is replaced twice: %v", err)
	}
	if len(s.Nodes) != 0 {
		t.Errorf("%v are up", s.Nodes)
	}
}
