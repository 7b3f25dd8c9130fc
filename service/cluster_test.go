package service

import (
	"os"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/wire"
)

// placed is a cluster of which a service sees these tables.
type placed struct {
	Cluster
	tables []wire.PlacedTable
}

func (c placed) View() wire.ClusterView { return wire.ClusterView{Tables: c.tables} }

func TestRoutedExpertsOfDroppedTablesAreRemoved(t *testing.T) {
	s, err := New(Options{Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(t.Context())
	s.options.Cluster = placed{tables: []wire.PlacedTable{{Name: "here"}, {Name: "elsewhere", Owner: "b"}}}
	defer func() { s.options.Cluster = nil }()
	s.removeOldExperts() // there is no folder yet
	for _, name := range []string{"here", "elsewhere", "dropped"} {
		if err := os.MkdirAll(s.expertsFolder(name)+"/log", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.removeOldExperts()
	var left []string
	folders, err := os.ReadDir(s.expertsFolder(""))
	for _, f := range folders {
		left = append(left, f.Name())
	}
	if err != nil || !slices.Equal(left, []string{"elsewhere", "here"}) {
		t.Errorf("%v are left, %v", left, err)
	}
}
