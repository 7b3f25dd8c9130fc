package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user and group of the image's process, as in distroless images.
const nobody = 65532

// platformFiles are the files of the image of one platform.
type platformFiles struct {
	platform
	files []file
}

// writeImage writes an OCI archive, with an image for each platform: the program and its licences on nothing else.
func writeImage(path string, platforms []platformFiles, r release) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := p.image(r)
		if err != nil {
			return fmt.Errorf("make the image for %s/%s: %w", p.os, p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "localhost/reprise:" + r.Version})
	if err := to.AppendIndex(index, named); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error { // in order
		if err != nil || path == dir {
			return err
		}
		f := file{mode: 0o644}
		if f.name, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		f.name = filepath.ToSlash(f.name)
		if e.IsDir() {
			f.name, f.mode = f.name+"/", 0o755
		} else if f.content, err = os.ReadFile(path); err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, files, r.Time); err != nil {
		return err
	}
	return os.WriteFile(path, archive.Bytes(), 0o644)
}

// image returns the image of one platform. deploy/Dockerfile makes the same from source.
func (p platformFiles) image(r release) (v1.Image, error) {
	var packed bytes.Buffer
	files := append([]file{{name: "data/", mode: 0o755, owner: nobody}}, p.files...)
	if err := writeTar(&packed, files, r.Time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	const configured = "/etc/reprise/serve.yaml"
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.Time},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         fmt.Sprintf("%d:%d", nobody, nobody),
			Entrypoint:   []string{"/reprise"},
			Cmd:          []string{"serve", "--config", configured, "--data", "/data"},
			Volumes:      map[string]struct{}{"/data": {}},
			ExposedPorts: map[string]struct{}{"7447/tcp": {}, "7448/tcp": {}},
			StopSignal:   "SIGTERM",
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/reprise", "health", "--config", configured},
				Interval: 10 * time.Second, Timeout: 6 * time.Second, StartPeriod: 10 * time.Minute, Retries: 3},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "Reprise",
				"org.opencontainers.image.version":  r.Version,
				"org.opencontainers.image.revision": r.Commit,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer,
		History: v1.History{Created: v1.Time{Time: r.Time}, CreatedBy: "make release"}})
}
