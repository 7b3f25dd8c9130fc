package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// unpack writes a tar archive into a folder, and returns its headers.
func unpack(t *testing.T, archive io.Reader, folder string) (headers []*tar.Header) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		} else if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		path := filepath.Join(folder, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, content, h.FileInfo().Mode())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnImageRunsItsProgramAsNobodyAndIsTheSameEachTime(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	r := release{Version: "0.2.0", Commit: strings.Repeat("ab", 20), Time: time.Unix(1_790_000_000, 0).UTC()}
	images := []platformFiles{
		{platform{"linux", "amd64"}, []file{{name: "reprise", mode: 0o755, content: content}}},
		{platform{"linux", "arm64"}, []file{{name: "reprise", mode: 0o755, content: []byte("arm")}}},
	}
	var written [2][]byte
	for i := range written {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := writeImage(path, images, r); err != nil {
			t.Fatal(err)
		}
		if written[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(written[0], written[1]) {
		t.Error("the same files make two images")
	}

	dir := t.TempDir()
	unpack(t, bytes.NewReader(written[0]), dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 ||
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "localhost/reprise:0.2.0" {
		t.Fatalf("%+v, %v: want one index, named for podman load", top, err)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(inner); err != nil {
		t.Error(err)
	}
	manifest, err := inner.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 || manifest.Manifests[0].Platform.Architecture != "amd64" ||
		manifest.Manifests[1].Platform.Architecture != "arm64" {
		t.Fatalf("%+v, %v", manifest, err)
	}
	image, err := inner.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	check := strings.Join(c.Healthcheck.Test, " ")
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/reprise"}) ||
		check != "CMD /reprise health --config /etc/reprise/serve.yaml" || config.Architecture != "amd64" ||
		!config.Created.Time.Equal(r.Time) || c.Labels["org.opencontainers.image.revision"] != r.Commit {
		t.Errorf("%+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v: want one", len(layers), err)
	}
	stream, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	headers := unpack(t, stream, root)
	if h := headers[0]; h.Name != "data/" || h.Uid != nobody || h.Gid != nobody {
		t.Errorf("%s of %d:%d, want data/ of the user that writes to it", h.Name, h.Uid, h.Gid)
	}
	out, err := exec.Command(filepath.Join(root, "reprise"), "--help").CombinedOutput()
	if !strings.Contains(string(out), "usage: release check") {
		t.Errorf("the program in the layer printed %q, %v", out, err)
	}
}

func TestAnArchiveHasItsFilesWithTheCommitsTimeAndSums(t *testing.T) {
	folder := t.TempDir()
	when := time.Unix(1_790_000_000, 0).UTC()
	path := filepath.Join(folder, "a.tar.gz")
	files := []file{{name: "LICENSE", mode: 0o644, content: []byte("licence")}, {name: "reprise", mode: 0o755}}
	if err := writeArchive(path, files, when); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	headers := unpack(t, z, t.TempDir())
	if len(headers) != 2 || headers[1].Name != "reprise" || headers[1].Mode != 0o755 || !headers[1].ModTime.Equal(when) {
		t.Errorf("%v", headers)
	}
	if err := writeSums(folder); err != nil {
		t.Fatal(err)
	}
	sum := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	if sum.Err != nil {
		t.Skip("there is no sha256sum")
	}
	sum.Dir = folder
	if out, err := sum.CombinedOutput(); err != nil || string(out) != "a.tar.gz: OK\n" {
		t.Errorf("sha256sum: %s, %v", out, err)
	}
}

func TestLicencesOfWhatIsInAProgramGoWithIt(t *testing.T) {
	program, err := os.Executable() // this test, with the module that makes images
	if err != nil {
		t.Fatal(err)
	}
	text, err := thirdParties(filepath.Join("..", ".."), program)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nGo go", "Copyright 2009 The Go Authors", "google/go-containerregistry v",
		"Apache License"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q among the licences", want)
		}
	}
	if strings.Contains(string(text), fmt.Sprintf("\n%s ", module)) {
		t.Error("our own licence is among them: it stands in LICENSE")
	}
	if err := addLegal(new(bytes.Buffer), "example.com/a v1.0.0", t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "example.com/a v1.0.0 has no licence") {
		t.Errorf("a module without a licence: %v", err)
	}
}
