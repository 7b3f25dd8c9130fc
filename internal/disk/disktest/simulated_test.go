package disktest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
)

// An ordered disk loses the last names, and none before that of a file or in a folder that was synced; another may lose
// any that are not synced themselves. Both tear a rename between folders in no other way.
func TestNamesAreLostInOrder(t *testing.T) {
	const seeds = 200
	var prefixes, others int
	for seed := range uint64(seeds) {
		for _, ordered := range []bool{true, false} {
			d := &Simulated{Ordered: ordered}
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			create := func(path string) disk.File {
				f, err := d.Open(path, os.O_CREATE|os.O_RDWR)
				check(err)
				return f
			}
			check(d.Mkdir("/folder"))
			check(d.Mkdir("/folder/inner"))
			for i := range 3 {
				create(fmt.Sprintf("/folder/inner/%d", i))
			}
			check(create("/folder/inner/3").Sync())
			check(d.Rename("/folder/inner/0", "/folder/moved"))
			check(d.Remove("/folder/inner/1"))
			create("/last")

			d.Restore(rand.New(rand.NewPCG(seed, 1)))
			names := func(path string) []string { // none of a folder that is lost
				names, _ := d.List(path)
				return names
			}
			got := [][]string{names("/"), names("/folder"), names("/folder/inner")}
			inOrder := slices.ContainsFunc([][][]string{
				{{"folder"}, {"inner"}, {"0", "1", "2", "3"}},
				{{"folder"}, {"inner", "moved"}, {"1", "2", "3"}},
				{{"folder"}, {"inner", "moved"}, {"2", "3"}},
				{{"folder", "last"}, {"inner", "moved"}, {"2", "3"}},
			}, func(want [][]string) bool { return slices.EqualFunc(got, want, slices.Equal) })
			switch {
			case ordered && !inOrder:
				t.Errorf("seed %d: an ordered disk has %q", seed, got)
			case ordered && !slices.Contains(got[0], "last"):
				prefixes++
			case !ordered && !inOrder:
				others++
			}
		}
	}
	if prefixes == 0 || prefixes == seeds || others == 0 {
		t.Errorf("of %d, %d ordered disks lost the last name, and %d others lost names in another order", seeds, prefixes,
			others)
	}
}
