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

// Publish makes a version of the weights a folder below dir, which write fills: DIR/v7 is version 7. It appears under
// that name once it is whole and on the disk; one of that version that was there goes. Of the versions that were
// published, the newest keep stay, at least 1: engines may be reading the one before.
//
// A trainer first publishes a version, then advances its table to it. So whoever sees a version in the table finds its
// folder, or a newer one.
func Publish(dir string, v rollout.Version, keep int, write func(folder string) error) (Weights, error) {
	place := filepath.Join(dir, versionPrefix+strconv.Itoa(int(v)))
	absolute, err := filepath.Abs(place)
	if err != nil {
		return Weights{}, err
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
		err = removeOld(dir, keep)
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
		m.Files[filepath.ToSlash(name)], err = digest(path, (*os.File).Sync)
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

// digest reads a file, and then calls after.
func digest(path string, after func(*os.File) error) (manifestFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return manifestFile{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err == nil {
		err = after(f)
	}
	return manifestFile{Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// published returns the versions below dir, in no order.
func published(dir string) (list []rollout.Version, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), versionPrefix)
		if v, err := strconv.ParseInt(number, 10, 32); ours && err == nil && v >= 0 {
			list = append(list, rollout.Version(v))
		}
	}
	return list, err
}

// removeOld leaves the newest versions.
func removeOld(dir string, keep int) error {
	list, err := published(dir)
	if err != nil {
		return err
	}
	for _, v := range list {
		newer := 0
		for _, other := range list {
			if other > v {
				newer++
			}
		}
		if newer >= max(keep, 1) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, versionPrefix+strconv.Itoa(int(v)))))
		}
	}
	return err
}

// Newest returns the newest version published in dir that is not above most, the version of the table. Without one the
// error wraps [fs.ErrNotExist].
func Newest(dir string, most rollout.Version) (Weights, error) {
	list, err := published(dir)
	if err != nil {
		return Weights{}, err
	}
	newest := rollout.NoVersion
	for _, v := range list {
		if v <= most {
			newest = max(newest, v)
		}
	}
	if newest == rollout.NoVersion {
		return Weights{}, fmt.Errorf("%s has no version of the weights up to %d: want one that a trainer published: %w",
			dir, most, fs.ErrNotExist)
	}
	folder, err := filepath.Abs(filepath.Join(dir, versionPrefix+strconv.Itoa(int(newest))))
	return Weights{Version: newest, Folder: folder}, err
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

// Check compares a published folder with its manifest: a copy to another machine may have been cut short.
func (w Weights) Check() error {
	m, err := readManifest(w.Folder)
	if err != nil {
		return err
	}
	path := filepath.Join(w.Folder, ManifestFile)
	if m.Version != w.Version {
		return fmt.Errorf("%s is of version %d, the folder's name says %d: publish it again", path, m.Version, w.Version)
	}
	for name, want := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("%s names %q: want files of this folder", path, name)
		}
		file := filepath.Join(w.Folder, filepath.FromSlash(name))
		got, err := digest(file, func(*os.File) error { return nil })
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s has %d bytes with SHA-256 %.12s…: its manifest says %d with %.12s…: copy or publish it "+
				"again", file, got.Bytes, got.SHA256, want.Bytes, want.SHA256)
		}
	}
	return nil
}
