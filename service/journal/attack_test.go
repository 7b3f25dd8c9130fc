package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

// A journal whose folder was removed or replaced acknowledges nothing more: a restart would not find it.
func TestAttackAJournalTakenAwayIsNoticedBeforeItAcknowledges(t *testing.T) {
	attacks := map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { must(t, os.RemoveAll(path)) },
		"replaced": func(t *testing.T, path string) {
			must(t, os.CopyFS(path+".other", os.DirFS(path)))
			must(t, os.RemoveAll(path))
			must(t, os.Rename(path+".other", path))
		},
		"cut short": func(t *testing.T, path string) { must(t, os.Truncate(segmentsIn(t, Options{Path: path})[0], 100)) },
		"its segment replaced": func(t *testing.T, path string) {
			segment := segmentsIn(t, Options{Path: path})[0]
			must(t, os.WriteFile(path+".other", must2(os.ReadFile(segment))(t), 0o600))
			must(t, os.Rename(path+".other", segment))
		},
		"folder moved": func(t *testing.T, path string) {
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".moved"))
		},
	}
	for name, attack := range attacks {
		for _, mode := range []Sync{Always, Off, Interval} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				o := onDisk(t)
				o.Path, o.Sync = filepath.Join(t.TempDir(), "tables", "a.journal"), mode
				must(t, os.Mkdir(filepath.Dir(o.Path), 0o700))
				table, random := newTable(t, replay.Options{}), rollout.Stream(1, "attack", 0)
				j := create(t, o, table)
				insert := func() error {
					_, err := table.Insert(ctx, aGroup(random, 2, 5, 0))
					must(t, err)
					return j.Commit(ctx)
				}
				must(t, insert())
				attack(t, o.Path)
				err := insert()
				if err == nil {
					t.Fatal("an insertion was acknowledged into a file that no restart finds")
				}
				for _, part := range []string{o.Path, "while it was open", "checkpoint"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v does not say %q", err, part)
					}
				}
				if again := j.Commit(ctx); again == nil || again.Error() != err.Error() || j.Stats().Err == nil {
					t.Errorf("after %v a commit gave %v", err, again)
				}
				if closing := j.Close(); closing == nil {
					t.Error("closing it gave no error")
				}
			})
		}
	}
}
