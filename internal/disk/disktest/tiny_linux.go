package disktest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// folderKey names the folder of the child's disk in its environment.
const folderKey = "REPRISE_TINY_DISK"

// Tiny runs the calling test, which is no subtest, once more in a process of its own with a disk of the given bytes, as
// tmpfs writes them: 8m. There it returns the disk's folder; here "", once that process has passed, and the test
// returns. Where such a disk may not be mounted the test is skipped.
func Tiny(t *testing.T, size string) (folder string) {
	t.Helper()
	if folder := os.Getenv(folderKey); folder != "" {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Skipf("no mounts of its own: %v", err)
		}
		if err := syscall.Mount("tiny", folder, "tmpfs", 0, "size="+size); err != nil {
			t.Skipf("no disk of its own: %v", err)
		}
		return folder
	}
	child := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	child.Env = append(os.Environ(), folderKey+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	text, err := child.CombinedOutput()
	switch {
	case child.ProcessState == nil:
		t.Skipf("no process with mounts of its own: %v", err)
	case strings.Contains(string(text), "--- SKIP: "+t.Name()):
		t.Skipf("%s", text)
	case err != nil || !strings.Contains(string(text), "--- PASS: "+t.Name()):
		t.Fatalf("on the tiny disk: %v\n%s", err, text)
	}
	return ""
}

// Fill writes a file until its disk is full. Removing it makes space again.
func Fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
}
