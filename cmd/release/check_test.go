package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// written is a tree that is a release.
func written() map[string]string {
	return map[string]string{
		pythonFile: "__all__ = []\n__version__ = \"0.2.0\"\n",
		changelogFile: "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Tables\n\n- More.\n\n" +
			"## [0.1.0] - 2026-11-27\n\n- All.\n",
		citationFile: "cff-version: 1.2.0\nversion: 0.2.0\ndate-released: 2026-12-01\n",
		"go.work":    "go 1.27.1\n\nuse (\n\t.\n\t./lab\n)\n",
		"go.mod":     "module " + module + "\n\nrequire (\n\tgolang.org/x/sys v0.49.0\n)\n",
		"lab/go.mod": "module " + module + "/lab\n\nrequire (\n\t" + module + " v0.2.0\n)\n",
	}
}

// commit writes a tree into a new repository, and gives the commit tags.
func commit(t *testing.T, tree map[string]string, tags ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range tree {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_AUTHOR_DATE", "2026-12-01T10:00:00+02:00")
	t.Setenv("GIT_COMMITTER_DATE", "2026-12-01T10:00:00+02:00")
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	commands := [][]string{{"init", "--quiet"}, {"config", "user.name", "a"}, {"config", "user.email", "a@b.example"},
		{"add", "."}, {"commit", "--quiet", "-m", "release"}}
	for _, tag := range tags {
		commands = append(commands, []string{"tag", "-a", tag, "-m", tag})
	}
	for _, c := range commands {
		if _, err := git(root, c...); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestACommitWhoseVersionsAgreeIsARelease(t *testing.T) {
	r, err := check(commit(t, written(), "v0.2.0", "cmd/v0.2.0", "lab/v0.2.0"))
	if err != nil {
		t.Fatal(err)
	}
	const notes = "# Reprise 0.2.0\n\n### Tables\n\n- More.\n"
	if r.Version != "0.2.0" || r.Notes != notes || len(r.Commit) != 40 {
		t.Errorf("%+v", r)
	}
	if got := r.Time.Format("2006-01-02T15:04:05Z07:00"); got != "2026-12-01T08:00:00Z" {
		t.Errorf("time %s, want the commit's in UTC", got)
	}
}

func TestWhatIsInTheWayOfAReleaseIsNamedWithItsRemedy(t *testing.T) {
	all := []string{"v0.2.0", "cmd/v0.2.0", "lab/v0.2.0"}
	for _, c := range []struct {
		name           string
		file, old, new string // a change to the tree
		tags           []string
		want           string
	}{
		{"no tag of a module", "", "", "", all[:2], "no tag lab/v0.2.0: git tag -a lab/v0.2.0 -m lab/v0.2.0"},
		{"a tag of another version", "", "", "", append(all[:3:3], "v0.3.0"),
			"tags of another version than 0.2.0 in python/src/reprise/__init__.py: v0.3.0"},
		{"another version of Python's", pythonFile, "0.2.0", "0.2.1", all, "has no tag v0.2.1"},
		{"no version", pythonFile, "0.2.0", "next", all, `want a line such as __version__ = "0.1.0"`},
		{"no section", changelogFile, "[0.2.0] - 2026-12-01", "[0.1.5] - 2026-12-01", all,
			`has no section "## [0.2.0] - YYYY-MM-DD": rename Unreleased`},
		{"no date", changelogFile, " - 2026-12-01", "", all, "[0.2.0] has no date"},
		{"nothing changed", changelogFile, "### Tables\n\n- More.\n", "", all, "[0.2.0] is empty"},
		{"changes since", changelogFile, "[Unreleased]\n", "[Unreleased]\n\n- Late.\n", all,
			"changes under Unreleased are not of this release: move them to [0.2.0]"},
		{"another version cited", citationFile, "version: 0.2.0", "version: 0.1.0", all, "CITATION.cff: want version: 0.2.0"},
		{"another date cited", citationFile, "2026-12-01", "2026-11-27", all, "want date-released: 2026-12-01, the date in"},
		{"a module requires another version", "lab/go.mod", "v0.2.0", "v0.1.0", all,
			"lab/go.mod requires " + module + " v0.1.0: want v0.2.0 (go mod edit -require=" + module + "@v0.2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := written()
			if c.file != "" {
				changed := strings.Replace(tree[c.file], c.old, c.new, 1)
				if changed == tree[c.file] {
					t.Fatalf("%s has no %q", c.file, c.old)
				}
				tree[c.file] = changed
			}
			if _, err := check(commit(t, tree, c.tags...)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("a file that is not in the commit", func(t *testing.T) {
		root := commit(t, written(), all...)
		if err := os.WriteFile(filepath.Join(root, "new.go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := check(root); err == nil || !strings.Contains(err.Error(), "commit, or remove:\n?? new.go") {
			t.Errorf("%v", err)
		}
	})
}

// The files of this tree are written as check reads them; whether they agree, only a release says.
func TestTheVersionOfThisTreeIsRead(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	version := pythonVersion.FindStringSubmatch(read(pythonFile))
	cited := citationVersion.FindStringSubmatch(read(citationFile))
	if version == nil || cited == nil || version[1] != cited[1] {
		t.Errorf("%s has %q, %s %q", pythonFile, version, citationFile, cited)
	}
	if _, _, found := section(read(changelogFile), "Unreleased"); !found {
		t.Errorf("%s has no section Unreleased", changelogFile)
	}
	if !requirement.MatchString(read("cmd/go.mod")) || len(workspaceFolder.FindAllString(read("go.work"), -1)) != 5 {
		t.Error("go.work or cmd/go.mod is not as check reads it")
	}
}
