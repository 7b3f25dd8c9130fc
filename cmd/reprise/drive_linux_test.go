package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/internal/disk/disktest"
)

// drive is a simulated disk that programs see as a folder. The kernel keeps nothing of it, so that the disk knows of
// each write when the program has made it.
type drive struct {
	t      *testing.T
	disk   disktest.Simulated
	dir    string
	server *fuse.Server
	random *rand.Rand   // only for whoever takes the power
	power  sync.RWMutex // held for writing while the power goes: no call is under way then
	slow   atomic.Int64 // the longest that a sync takes, in nanoseconds
}

// newDrive mounts an empty disk. The test is skipped where it may not.
func newDrive(t *testing.T, seed, stream uint64, ordered bool) *drive {
	t.Helper()
	d := &drive{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, stream))}
	d.disk.Ordered = ordered
	if err := d.mount(); err != nil {
		t.Skipf("no disk whose power can be lost: mounting it takes /dev/fuse and root: %v", err)
	}
	t.Cleanup(func() {
		if err := d.server.Unmount(); err != nil {
			t.Errorf("%s: %v", d.dir, err)
		}
	})
	return d
}

func (d *drive) mount() (err error) {
	d.server, err = fusefs.Mount(d.dir, &inode{drive: d}, &fusefs.Options{MountOptions: fuse.MountOptions{
		FsName: "reprise-test", DirectMountStrict: true, MaxWrite: fuse.MAX_KERNEL_WRITE, DisableSplice: true,
		DisableReadDirPlus: true, DisableXAttrs: true}})
	return err
}

// use begins a call, which the result ends.
func (d *drive) use() (end func()) {
	d.power.RLock()
	return d.power.RUnlock
}

// cut takes the power from disks at the same moment. Kill ends the programs that use them, before they see an error.
func cut(drives []*drive, kill func()) {
	for _, d := range drives {
		d.power.Lock()
		defer d.power.Unlock()
		d.disk.LosePower(0)
	}
	kill()
}

// restore gives the power back to a disk that no process uses.
func (d *drive) restore() {
	d.t.Helper()
	if err := d.server.Unmount(); err != nil {
		d.t.Fatalf("%s: %v", d.dir, err)
	}
	d.disk.Restore(d.random)
	if err := d.mount(); err != nil {
		d.t.Fatalf("%s: %v", d.dir, err)
	}
}

// inode is a file or a folder of a drive.
type inode struct {
	fusefs.Inode
	drive *drive
}

// opened is an open file.
type opened struct {
	disk.File
	syncs bool // after each write
}

func (n *inode) path() string             { return "/" + n.Path(nil) }
func (n *inode) below(name string) string { return filepath.Join(n.path(), name) }

func errno(err error) syscall.Errno {
	var number syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &number):
		return number
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, fs.ErrExist):
		return syscall.EEXIST
	}
	return syscall.EIO
}

// child returns what has a name in this folder.
func (n *inode) child(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	size, folder, err := n.drive.disk.Stat(n.below(name))
	if err != nil {
		return nil, errno(err)
	}
	describe(&out.Attr, size, folder)
	if known := n.GetChild(name); known != nil {
		return known, 0
	}
	return n.NewInode(ctx, &inode{drive: n.drive}, fusefs.StableAttr{Mode: out.Mode & syscall.S_IFMT}), 0
}

func describe(a *fuse.Attr, size int64, folder bool) {
	a.Mode, a.Size = syscall.S_IFREG|0o600, uint64(size)
	if folder {
		a.Mode, a.Size = syscall.S_IFDIR|0o700, 0
	}
}

func (n *inode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	defer n.drive.use()()
	return n.child(ctx, name, out)
}

func (n *inode) Getattr(_ context.Context, h fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	defer n.drive.use()()
	return n.attributes(h, &out.Attr)
}

func (n *inode) attributes(h fusefs.FileHandle, out *fuse.Attr) syscall.Errno {
	if f, ok := h.(*opened); ok { // which may have no name any more
		size, err := f.Size()
		describe(out, size, false)
		return errno(err)
	}
	size, folder, err := n.drive.disk.Stat(n.path())
	describe(out, size, folder)
	return errno(err)
}

// Setattr sets a file's size. Modes, owners and times are not kept.
func (n *inode) Setattr(_ context.Context, h fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	defer n.drive.use()()
	if size, ok := in.GetSize(); ok {
		f, open := h.(*opened)
		if !open {
			named, err := n.drive.disk.Open(n.path(), 0)
			if err != nil {
				return errno(err)
			}
			f = &opened{File: named}
		}
		if err := f.Truncate(int64(size)); err != nil {
			return errno(err)
		}
	}
	return n.attributes(h, &out.Attr)
}

func (n *inode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<28, 1<<28, 1<<28
	return 0
}

func (n *inode) Opendir(context.Context) syscall.Errno { return 0 }

func (n *inode) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	defer n.drive.use()()
	names, err := n.drive.disk.List(n.path())
	if err != nil {
		return nil, errno(err)
	}
	var entries []fuse.DirEntry
	for _, name := range names {
		var a fuse.Attr
		if _, folder, err := n.drive.disk.Stat(n.below(name)); err == nil {
			describe(&a, 0, folder)
			entries = append(entries, fuse.DirEntry{Name: name, Mode: a.Mode})
		}
	}
	return fusefs.NewListDirStream(entries), 0
}

func (n *inode) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	defer n.drive.use()()
	if err := n.drive.disk.Mkdir(n.below(name)); err != nil {
		return nil, errno(err)
	}
	return n.child(ctx, name, out)
}

func (n *inode) Unlink(_ context.Context, name string) syscall.Errno {
	defer n.drive.use()()
	return errno(n.drive.disk.Remove(n.below(name)))
}

func (n *inode) Rmdir(ctx context.Context, name string) syscall.Errno { return n.Unlink(ctx, name) }

func (n *inode) Rename(_ context.Context, name string, into fusefs.InodeEmbedder, to string, flags uint32,
) syscall.Errno {
	defer n.drive.use()()
	if flags != 0 {
		return syscall.EINVAL
	}
	return errno(n.drive.disk.Rename(n.below(name), into.(*inode).below(to)))
}

func (n *inode) Create(ctx context.Context, name string, flags, _ uint32, out *fuse.EntryOut,
) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	defer n.drive.use()()
	f, err := n.drive.open(n.below(name), flags|syscall.O_CREAT)
	if err != nil {
		return nil, nil, 0, errno(err)
	}
	child, failed := n.child(ctx, name, out)
	return child, f, fuse.FOPEN_DIRECT_IO, failed
}

func (n *inode) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	defer n.drive.use()()
	f, err := n.drive.open(n.path(), flags&^(syscall.O_CREAT|syscall.O_EXCL))
	if err != nil {
		return nil, 0, errno(err)
	}
	return f, fuse.FOPEN_DIRECT_IO, 0
}

func (d *drive) open(path string, flags uint32) (*opened, error) {
	f, err := d.disk.Open(path, int(flags))
	return &opened{File: f, syncs: flags&syscall.O_DSYNC != 0}, err
}

func (n *inode) Read(_ context.Context, h fusefs.FileHandle, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	defer n.drive.use()()
	read, err := h.(*opened).ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return fuse.ReadResultData(b[:read]), errno(err)
}

func (n *inode) Write(ctx context.Context, h fusefs.FileHandle, b []byte, at int64) (uint32, syscall.Errno) {
	end := n.drive.use()
	f := h.(*opened)
	written, err := f.WriteAt(b, at)
	end()
	if err == nil && f.syncs {
		if failed := n.Fsync(ctx, h, 0); failed != 0 {
			return 0, failed
		}
	}
	return uint32(written), errno(err)
}

// Fsync syncs a file, or a folder, whose handle is none of ours.
func (n *inode) Fsync(_ context.Context, h fusefs.FileHandle, _ uint32) syscall.Errno {
	if most := n.drive.slow.Load(); most > 0 {
		time.Sleep(time.Duration(rand.Int64N(most)))
	}
	defer n.drive.use()()
	if f, ok := h.(*opened); ok {
		return errno(f.Sync())
	}
	return errno(n.drive.disk.SyncFolder(n.path()))
}

// What a program has synced survives each loss of power, and of what it has not some is lost.
func TestADriveLosesWhatIsNotSynced(t *testing.T) {
	d := newDrive(t, *faultSeed, 9, true)
	path := func(name string) string { return filepath.Join(d.dir, "folder", name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(path(""), 0o700))
	const times = 40
	kept := map[string]int{}
	for k := range times {
		content := bytes.Repeat([]byte{byte(k + 1)}, 3000)
		check(disk.WriteFile(path("synced"), content))
		direct, err := os.OpenFile(path("direct"), os.O_CREATE|os.O_RDWR|os.O_SYNC, 0o600)
		check(err)
		_, err = direct.WriteAt(content, 0)
		check(errors.Join(err, direct.Close()))
		check(os.WriteFile(path("written"), content, 0o600))
		check(os.WriteFile(path("new"), content, 0o600))
		check(os.Rename(path("new"), filepath.Join(d.dir, "renamed")))

		cut([]*drive{d}, func() {})
		if _, err := os.ReadFile(path("synced")); !errors.Is(err, syscall.EIO) {
			t.Fatalf("a disk without power: %v", err)
		}
		d.restore()
		for _, name := range []string{"synced", "direct", "written", "../renamed"} {
			found, err := os.ReadFile(path(name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if bytes.Equal(found, content) {
				kept[name]++
			}
		}
	}
	for name, n := range kept {
		if synced := name == "synced" || name == "direct"; synced != (n == times) {
			t.Errorf("%s was kept %d times of %d", name, n, times)
		}
	}
	if len(kept) != 4 {
		t.Errorf("what was kept: %v: want some of each", kept)
	}
}
