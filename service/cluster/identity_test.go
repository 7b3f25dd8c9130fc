package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFolderKeepsItsIdentity(t *testing.T) {
	o := Options{Node: "n0", Data: t.TempDir()}
	first, err := readIdentity(o)
	if err != nil || !first.empty || first.Joined || first.Folder == "" {
		t.Fatalf("of an empty folder: %+v, %v", first, err)
	}
	if err := first.write(); err != nil {
		t.Fatal(err)
	}
	if again, err := readIdentity(o); err != nil || again.empty || again.Folder != first.Folder {
		t.Errorf("read again: %+v, %v; want %+v", again, err, first)
	}
	if _, err := readIdentity(Options{Node: "n1", Data: o.Data}); err == nil ||
		!strings.Contains(err.Error(), "cluster.node: n1: "+o.Data+" has the copies of node n0") {
		t.Errorf("under another name: %v", err)
	}
	if err := os.WriteFile(first.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readIdentity(o); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("of a damaged file: %v", err)
	}
	old := Options{Node: "n0", Data: t.TempDir()} // of a build that wrote no identities
	if err := os.MkdirAll(filepath.Join(old.Data, copiesFolder, "jetstream"), 0o700); err != nil {
		t.Fatal(err)
	}
	if i, err := readIdentity(old); err != nil || i.empty || !i.Joined {
		t.Errorf("of a folder with copies: %+v, %v", i, err)
	}
}
