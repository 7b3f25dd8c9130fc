package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const module = "github.com/reprise-rl/reprise"

// tagged are the folders of modules that have a tag for each version: those that programs require, and cmd, by whose
// tag Go writes the version into the program.
func tagged() []string { return []string{"", "cmd", "lab"} }

// release is what a commit says of itself.
type release struct {
	Version string // 0.1.0
	Commit  string
	Time    time.Time // of the commit
	Notes   string    // Markdown, of CHANGELOG.md
}

// Where a version stands.
const (
	pythonFile    = "python/src/reprise/__init__.py"
	changelogFile = "CHANGELOG.md"
	citationFile  = "CITATION.cff"
)

var (
	pythonVersion   = regexp.MustCompile(`(?m)^__version__ = "(\d+\.\d+\.\d+)"$`)
	citationVersion = regexp.MustCompile(`(?m)^version: "?([^"\n]+)"?$`)
	citationDate    = regexp.MustCompile(`(?m)^date-released: "?(\d{4}-\d\d-\d\d)"?$`)
	changes         = regexp.MustCompile(`(?m)^## \[([^]]+)\](?: - (\d{4}-\d\d-\d\d))?$`)
	workspaceFolder = regexp.MustCompile(`(?m)^\t\.(?:/(\w+))?$`)
	requirement     = regexp.MustCompile(`(?m)^\t(` + regexp.QuoteMeta(module) + `(?:/\w+)?) (v\S+)$`)
)

// check returns the release that a commit is, or everything that is in its way, each with its remedy.
func check(root string) (r release, err error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			problem("%w", err)
		}
		return string(text)
	}
	m := pythonVersion.FindStringSubmatch(read(pythonFile))
	if m == nil {
		problem("%s: want a line such as __version__ = \"0.1.0\": it decides the version", pythonFile)
		return r, errors.Join(problems...)
	}
	r.Version = m[1]

	changed, err := git(root, "status", "--porcelain")
	if err != nil {
		return r, err
	}
	if changed != "" {
		problem("the tree differs from its commit: commit, or remove:\n%s", changed)
	}
	for _, tag := range missingTags(root, r.Version) {
		problem("this commit has no tag %s: git tag -a %s -m %s", tag, tag, tag)
	}
	if other := otherVersions(root, r.Version); len(other) > 0 {
		problem("this commit has tags of another version than %s in %s: %s: delete them (git tag -d), or change the "+
			"version", r.Version, pythonFile, strings.Join(other, " "))
	}

	text := read(changelogFile)
	notes, date, found := section(text, r.Version)
	switch {
	case !found:
		problem("%s has no section \"## [%s] - YYYY-MM-DD\": rename Unreleased, and begin an empty one", changelogFile,
			r.Version)
	case date == "":
		problem("%s: [%s] has no date: want \"## [%s] - YYYY-MM-DD\"", changelogFile, r.Version, r.Version)
	case notes == "":
		problem("%s: [%s] is empty: want what changed", changelogFile, r.Version)
	}
	if left, _, _ := section(text, "Unreleased"); found && left != "" {
		problem("%s: changes under Unreleased are not of this release: move them to [%s]", changelogFile, r.Version)
	}
	r.Notes = fmt.Sprintf("# Reprise %s\n\n%s\n", r.Version, notes)

	text = read(citationFile)
	if m := citationVersion.FindStringSubmatch(text); m == nil || m[1] != r.Version {
		problem("%s: want version: %s", citationFile, r.Version)
	}
	if m := citationDate.FindStringSubmatch(text); date != "" && (m == nil || m[1] != date) {
		problem("%s: want date-released: %s, the date in %s", citationFile, date, changelogFile)
	}
	for _, folder := range workspaceFolder.FindAllStringSubmatch(read("go.work"), -1) {
		name := path.Join(folder[1], "go.mod")
		for _, m := range requirement.FindAllStringSubmatch(read(name), -1) {
			if m[2] != "v"+r.Version {
				problem("%s requires %s %s: want v%s (go mod edit -require=%s@v%s, in that folder)", name, m[1], m[2],
					r.Version, m[1], r.Version)
			}
		}
	}

	if r.Commit, err = git(root, "rev-parse", "HEAD"); err != nil {
		return r, err
	}
	stamp, err := git(root, "log", "-1", "--format=%cI")
	if err != nil {
		return r, err
	}
	if r.Time, err = time.Parse(time.RFC3339, stamp); err != nil {
		return r, err
	}
	r.Time = r.Time.UTC()
	return r, errors.Join(problems...)
}

// section returns what CHANGELOG.md says of a version, and its date.
func section(text, version string) (body, date string, found bool) {
	all := changes.FindAllStringSubmatchIndex(text, -1)
	for i, at := range all {
		if text[at[2]:at[3]] != version {
			continue
		}
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if at[4] >= 0 {
			date = text[at[4]:at[5]]
		}
		return strings.TrimSpace(text[at[1]:end]), date, true
	}
	return "", "", false
}

// tagsHere returns the commit's tags; none if git cannot tell.
func tagsHere(root string) []string {
	text, _ := git(root, "tag", "--points-at", "HEAD")
	return strings.Fields(text)
}

// missingTags returns the tags of a version that the commit lacks.
func missingTags(root, version string) (missing []string) {
	here := tagsHere(root)
	for _, folder := range tagged() {
		if tag := path.Join(folder, "v"+version); !slices.Contains(here, tag) {
			missing = append(missing, tag)
		}
	}
	return missing
}

// otherVersions returns tags of the commit that are of other versions.
func otherVersions(root, version string) (others []string) {
	for _, tag := range tagsHere(root) {
		if base := path.Base(tag); base != "v"+version && regexp.MustCompile(`^v\d`).MatchString(base) {
			others = append(others, tag)
		}
	}
	return others
}

// built refuses a program that was not built from the commit.
func (r release) built(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the program that make builds: %w", err)
	}
	of := make(map[string]string)
	for _, s := range info.Settings {
		of[s.Key] = s.Value
	}
	if of["vcs.revision"] != r.Commit || of["vcs.modified"] != "false" || info.Main.Version != "v"+r.Version {
		return fmt.Errorf("%s is of version %s, commit %s: build it from this commit: make binaries", program,
			info.Main.Version, of["vcs.revision"])
	}
	return nil
}

// git runs git in a folder and returns what it printed.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimRight(string(out), "\n"), err
}
