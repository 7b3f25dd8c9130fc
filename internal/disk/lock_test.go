//go:build unix

package disk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/disk"
)

func TestALockedFileIsRefusedWithTheOtherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for range 2 { // the second finds the file that the first left
		held, err := disk.LockFile(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = disk.LockFile(path, 0)
		if !errors.Is(err, disk.ErrLocked) || !strings.HasSuffix(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("a second lock: %v", err)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
