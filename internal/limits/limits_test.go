package limits_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/limits"
)

func TestMain(m *testing.M) {
	if os.Getenv("LIMITS_PRINT") != "" {
		fmt.Println(limits.Memory())
		return
	}
	os.Exit(m.Run())
}

func TestMemoryIsTheLeastLimit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits of a process are read on Linux")
	}
	if free := limits.Memory(); free < 64<<20 || free > 1<<50 {
		t.Errorf("the process may use %d bytes", free)
	}
	for want, set := range map[string]string{
		"1024000000\n": "ulimit -d 1000000",
		"1000000000\n": "ulimit -d 1000000; export GOMEMLIMIT=1000000000",
		"900000000\n":  "export GOMEMLIMIT=900000000",
	} {
		c := exec.Command("sh", "-c", set+`; exec "$0"`, os.Args[0])
		c.Env = append(os.Environ(), "LIMITS_PRINT=1")
		got, err := c.CombinedOutput()
		if err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("%s: %q, %v, want %q", set, got, err, want)
		}
	}
}
