// Command release checks that a commit is a release, and packs one: `make release`.
//
// The version is that of the Python package, and tags, CHANGELOG.md, CITATION.cff and the modules' requirements agree
// with it. What is packed depends on the commit alone: times are the commit's, and names are in order.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

const usage = `usage: release check            print the version, or everything that is in the way of a release
       release pack FOLDER      pack bin/reprise-OS-ARCH, and sum what is in the folder`

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	r, err := check(root)
	if err != nil {
		return fmt.Errorf("this commit cannot be released:\n%w", err)
	}
	switch {
	case flags.NArg() == 1 && flags.Arg(0) == "check":
		fmt.Println(r.Version)
		return nil
	case flags.NArg() == 2 && flags.Arg(0) == "pack":
		return pack(root, flags.Arg(1), r)
	}
	return errors.New(usage)
}

// platform is one for which there is a program.
type platform struct{ os, arch string }

func platforms() []platform {
	return []platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}}
}

// program is where make puts the program for a platform.
func (p platform) program(root string) string {
	return filepath.Join(root, "bin", fmt.Sprintf("reprise-%s-%s", p.os, p.arch))
}

// pack writes archives of the programs, an image of those for Linux, notes and SHA256SUMS of the whole folder.
func pack(root, folder string, r release) error {
	licence, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return err
	}
	var images []platformFiles
	for _, p := range platforms() {
		if err := r.built(p.program(root)); err != nil {
			return err
		}
		program, err := os.ReadFile(p.program(root))
		if err != nil {
			return err
		}
		others, err := thirdParties(root, p.program(root))
		if err != nil {
			return err
		}
		files := []file{
			{name: "LICENSE", mode: 0o644, content: licence},
			{name: "THIRD_PARTY_LICENSES", mode: 0o644, content: others},
			{name: "reprise", mode: 0o755, content: program},
		}
		name := fmt.Sprintf("reprise-%s-%s-%s.tar.gz", r.Version, p.os, p.arch)
		if err := writeArchive(filepath.Join(folder, name), files, r.Time); err != nil {
			return err
		}
		if p.os == "linux" {
			images = append(images, platformFiles{p, files})
		}
	}
	name := fmt.Sprintf("reprise-%s-image.oci.tar", r.Version)
	if err := writeImage(filepath.Join(folder, name), images, r); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "NOTES.md"), []byte(r.Notes), 0o644); err != nil {
		return err
	}
	return writeSums(folder)
}
