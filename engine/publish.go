package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/reprise-rl/reprise/internal/disk"
	"github.com/reprise-rl/reprise/rollout"
)

// ManifestFile is in the folder of every published version: the version, and the size and SHA-256 of each other file.
const ManifestFile = "manifest.json"

type manifest struct {
	Version rollout.Version         `json:"version"`
	Files   map[string]manifestFile `json:"files"`
}

type manifestFile struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const (
	versionPrefix = "v"
	partSuffix    = ".part" // of a folder that is being written
)

// folderOf returns the folder of a version below dir.
func folderOf(dir string, v rollout.Version) string {
	return filepath.Join(dir, versionPrefix+strconv.Itoa(int(v)))
}

// Publish makes a version of the weights a folder below dir, which write fills: DIR/v7 is version 7. It appears under
// that name once it is whole and on the disk, in place of one of that version. Publish then removes all but the newest
// keep versions; want 2 or more, because an engine may still be reading the one before. It refuses a folder with newer
// versions: they are of another run, and engines would take them.
//
// A trainer first publishes a version, then advances its table to it. So whoever sees a version in the table finds its
// folder, or a newer one.
func Publish(dir string, v rollout.Version, keep int, write func(folder string) error) (Weights, error) {
	place := folderOf(dir, v)
	absolute, err := filepath.Abs(place)
	if err != nil {
		return Weights{}, err
	}
	list, err := published(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Weights{}, err
	}
	if n := len(list); n > 0 && list[n-1] > v {
		return Weights{}, fmt.Errorf("publish version %d: %s has version %d, of another run: remove its versions, or "+
			"publish elsewhere", v, dir, list[n-1])
	}
	part := place + partSuffix
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return Weights{}, fmt.Errorf("publish version %d: %w", v, err)
	}
	err = write(part)
	if err == nil {
		err = writeManifest(part, v)
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(place), os.Rename(part, place), disk.SyncFolder(dir))
	}
	if err == nil {
		list = slices.DeleteFunc(list, func(other rollout.Version) bool { return other == v })
		err = remove(dir, list[:max(0, len(list)+1-max(keep, 1))])
	}
	if err != nil {
		return Weights{}, fmt.Errorf("publish version %d: %w", v, errors.Join(err, os.RemoveAll(part)))
	}
	return Weights{Version: v, Folder: absolute}, nil
}

// writeManifest syncs the files of a folder and writes their manifest.
func writeManifest(folder string, v rollout.Version) error {
	m := manifest{Version: v, Files: make(map[string]manifestFile)}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		m.Files[filepath.ToSlash(name)], err = syncAndDigest(path)
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFile(filepath.Join(folder, ManifestFile), append(text, '\n'))
}

// syncAndDigest makes a file survive a loss of power, and reads it.
func syncAndDigest(path string) (manifestFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return manifestFile{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err == nil {
		err = f.Sync()
	}
	return manifestFile{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// published returns the versions below dir, ascending.
func published(dir string) (list []rollout.Version, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), versionPrefix)
		if v, err := strconv.ParseInt(number, 10, 32); ours && err == nil && v >= 0 {
			list = append(list, rollout.Version(v))
		}
	}
	slices.Sort(list)
	return list, err
}

// remove removes versions from dir.
func remove(dir string, versions []rollout.Version) (err error) {
	for _, v := range versions {
		err = errors.Join(err, os.RemoveAll(folderOf(dir, v)))
	}
	return err
}

// RemovePublished removes the versions above one from a folder: those of another run, or of a trainer that was killed
// before its table heard of them. Above [rollout.NoVersion] are all.
func RemovePublished(dir string, above rollout.Version) error {
	list, err := published(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	first, _ := slices.BinarySearch(list, above+1)
	return errors.Join(err, remove(dir, list[first:]))
}

// Newest returns the newest version published in dir that is not above most, the version of the table. It passes over
// one whose files are not all there in their size: it is being copied from elsewhere, or removed. Without a version the
// error wraps [fs.ErrNotExist].
func Newest(dir string, most rollout.Version) (Weights, error) {
	list, err := published(dir)
	if err != nil {
		return Weights{}, err
	}
	for _, v := range slices.Backward(list) {
		if folder := folderOf(dir, v); v <= most && whole(folder) {
			folder, err := filepath.Abs(folder)
			return Weights{Version: v, Folder: folder}, err
		}
	}
	return Weights{}, fmt.Errorf("%s has no version of the weights up to %d: want one that a trainer published: %w", dir,
		most, fs.ErrNotExist)
}

// whole reports whether the files of a published folder have the sizes that its manifest says.
func whole(folder string) bool {
	m, err := readManifest(folder)
	for name, want := range m.Files {
		info, failed := os.Stat(filepath.Join(folder, filepath.FromSlash(name)))
		if failed != nil || info.Size() != want.Bytes {
			return false
		}
	}
	return err == nil
}

// PublishedVersion returns the version that a folder says it is. For one that was not published the error wraps
// [fs.ErrNotExist].
func PublishedVersion(folder string) (rollout.Version, error) {
	m, err := readManifest(folder)
	return m.Version, err
}

func readManifest(folder string) (m manifest, err error) {
	path := filepath.Join(folder, ManifestFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read %s: %w", path, err)
	}
	return m, nil
}
