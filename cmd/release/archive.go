package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// file is a file, or with a name that ends in a slash a folder, of an archive or of the layer of an image.
type file struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// writeTar writes files in their order, all of one time.
func writeTar(w io.Writer, files []file, when time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(f.name, "/") {
			kind = tar.TypeDir
		}
		err := t.WriteHeader(&tar.Header{Typeflag: kind, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner,
			Size: int64(len(f.content)), ModTime: when})
		if err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := t.Write(f.content); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	return t.Close()
}

// writeArchive writes a .tar.gz.
func writeArchive(path string, files []file, when time.Time) error {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := writeTar(z, files, when); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

// writeSums writes SHA256SUMS of a folder's files, as sha256sum -c reads it.
func writeSums(folder string) error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(folder) // in order
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		if e.Name() == name {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(folder, name), sums.Bytes(), 0o644)
}

// legal matches the names of files that must go with what is built from a module.
var legal = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|copyright)([-._].*)?$`)

// thirdParties returns the licences and notices of Go and of every module in a program but ours.
func thirdParties(root, program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}", "all")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all: %w", err)
	}
	folders := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if of := strings.Split(strings.TrimSpace(line), "\t"); len(of) == 3 {
			folders[of[0]+" "+of[1]] = of[2]
		}
	}
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "Reprise contains the following, each under its own licence.")
	if err := addLegal(&b, "Go "+runtime.Version(), strings.TrimSpace(string(goRoot))); err != nil {
		return nil, err
	}
	for _, d := range info.Deps {
		if d.Path == module || strings.HasPrefix(d.Path, module+"/") {
			continue
		}
		if d.Replace != nil {
			d = d.Replace
		}
		folder := folders[d.Path+" "+d.Version]
		if folder == "" {
			return nil, fmt.Errorf("%s %s is in the program but not on this machine: go mod download", d.Path, d.Version)
		}
		if err := addLegal(&b, d.Path+" "+d.Version, folder); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// addLegal adds the legal files of a module's folder. There must be one.
func addLegal(b *bytes.Buffer, name, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !legal.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(b, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), name, e.Name(), bytes.TrimSpace(content))
	}
	if !found {
		return fmt.Errorf("%s has no licence in %s: find out under which one it may be distributed", name, folder)
	}
	return nil
}
