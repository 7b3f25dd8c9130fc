package access_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

const (
	trainerToken   = "trainer-0123456789"
	generatorToken = "generator-0123456789"
)

func sum(token string) string {
	s := sha256.Sum256([]byte(token))
	return hex.EncodeToString(s[:])
}

// call recognises a caller by a bearer token; an empty one sends no header.
func call(p *access.Policy, token string) (context.Context, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return p.Authenticate(r)
}

func policyOf(t *testing.T, text string) *access.Policy {
	t.Helper()
	p, err := access.NewPolicy(access.Options{Tokens: write(t, t.TempDir(), "tokens.yaml", []byte(text))})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestATokenGivesTheRightsOfItsEntry(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "secret", []byte("  from-a-file-0123456789\n"))
	p, err := access.NewPolicy(access.Options{Tokens: write(t, folder, "tokens.yaml", fmt.Appendf(nil, `
tokens:
  - {name: trainer, token: %s, read: ["*"], write: ["math-*", code]}
  - {name: generator, token_sha256: %s, write: ["math-?"]}
  - {name: watcher, token_file: secret, read: ["[a-c]*"]}
`, trainerToken, sum(generatorToken)))})
	if err != nil {
		t.Fatal(err)
	}
	if p.Tokens() != 3 || !p.NeedsTokens() {
		t.Errorf("%d tokens, asks %v", p.Tokens(), p.NeedsTokens())
	}
	for _, c := range []struct {
		token, name, table string
		read, write        bool
	}{
		{trainerToken, "trainer", "math-12", true, true},
		{trainerToken, "trainer", "code", true, true},
		{trainerToken, "trainer", "code2", true, false},
		{generatorToken, "generator", "math-1", false, true},
		{generatorToken, "generator", "math-12", false, false},
		{"from-a-file-0123456789", "watcher", "code", true, false},
		{"from-a-file-0123456789", "watcher", "math-1", false, false},
	} {
		ctx, err := call(p, c.token)
		if err != nil {
			t.Fatal(err)
		}
		if who, ok := access.From(ctx); !ok || who.Name != c.name {
			t.Errorf("%s is taken for %q", c.name, who.Name)
		}
		if got := p.Authorize(ctx, c.table, wire.ToRead) == nil; got != c.read {
			t.Errorf("%s may read %s: %v", c.name, c.table, got)
		}
		err = p.Authorize(ctx, c.table, wire.ToWrite)
		if (err == nil) != c.write {
			t.Errorf("%s writes %s: %v", c.name, c.table, err)
		}
		if err != nil && wire.CodeOf(err) != wire.Denied {
			t.Errorf("%s writes %s: code %s", c.name, c.table, wire.CodeOf(err))
		}
	}
}

func TestUnknownCallersAreRefused(t *testing.T) {
	p := policyOf(t, "tokens: [{name: a, token: "+trainerToken+", read: ['*']}]")
	for token, want := range map[string]string{
		"":                                 "no token: send",
		generatorToken:                     "unknown token",
		trainerToken + "x":                 "unknown token",
		trainerToken[:len(trainerToken)-1]: "unknown token",
		sum(trainerToken):                  "unknown token",
	} {
		_, err := call(p, token)
		if err == nil || !strings.Contains(err.Error(), want) || wire.CodeOf(err) != wire.Unauthenticated {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if err := p.Authorize(t.Context(), "x", wire.ToRead); wire.CodeOf(err) != wire.Unauthenticated {
		t.Errorf("a context without a caller: %v", err)
	}
}

func TestWithoutATokensFileEverythingIsAllowed(t *testing.T) {
	open, err := access.NewPolicy(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*access.Policy{nil, open} {
		ctx, err := call(p, "anything")
		if err != nil || p.Authorize(ctx, "x", wire.ToWrite) != nil || p.NeedsTokens() || p.Tokens() != 0 || p.Reload() != nil {
			t.Errorf("policy %v: %v", p, err)
		}
		if _, err := p.Authenticate(&http.Request{Header: http.Header{"Authorization": {"nonsense"}}}); err != nil {
			t.Errorf("a header that nobody asked for: %v", err)
		}
	}
}

func TestAnInvalidTokensFileReportsEveryProblem(t *testing.T) {
	for text, want := range map[string][]string{
		"tokens: []":   {"tokens: none"},
		"tokens: [{}]": {"tokens[0].token: none", "tokens[0].name: none", "tokens[0].read: no rights"},
		"tokens: [{name: a, token: short, read: [x]}]":                               {"tokens[0].token: 5 characters: want at least 16", "openssl"},
		"tokens: [{name: a, token_sha256: abc, read: [x]}]":                          {`token_sha256: "abc": want 64`},
		"tokens: [{name: a, token: " + trainerToken + ", token_file: b, read: [x]}]": {"more than one way"},
		"tokens: [{name: a, token: " + trainerToken + ", read: ['[x'], write: " +
			"['']}]": {`read[0]: "[x"`, `write[0]: ""`},
		"tokens: [{name: a, token: " + trainerToken + ", reads: [x]}]": {"reads"},
		"tokens: [{name: a, token: " + trainerToken + ", read: [x]}, {name: a, certificate: c, read: " +
			"[x]}]": {`tokens[1].name: "a" is also tokens[0]'s`},
		"tokens: [{name: a, token: " + trainerToken + ", read: [x]}, {name: b, token_sha256: " +
			"" + sum(trainerToken) + ", read: [x]}]": {
			"tokens[1].token: is also tokens[0]'s"},
		"tokens: [{name: a, token_file: nowhere, read: [x]}]": {"tokens[0].token_file", "nowhere"},
		"tokens: {": {"tokens file"},
	} {
		_, err := access.NewPolicy(access.Options{Tokens: write(t, t.TempDir(), "tokens.yaml", []byte(text))})
		if err == nil {
			t.Errorf("%s: accepted", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v: want %q in it", text, err, w)
			}
		}
		if strings.Contains(err.Error(), trainerToken) {
			t.Errorf("the error gives a token away: %v", err)
		}
	}
	if _, err := access.NewPolicy(access.Options{Tokens: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a file that is not there was accepted")
	}
}

func TestAttackNoExampleOrWeakTokenIsTaken(t *testing.T) {
	lineFeed := func(token string) string { return sum(token + "\n") }
	for entry, want := range map[string]string{
		"token_sha256: 5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8": `"password", which`,
		"token_sha256: " + strings.ToUpper(sum("password")):                              `"password"`,
		"token_sha256: " + lineFeed("password"):                                          `"password"`,
		"token_sha256: " + sum("TOKEN"):                                                  `"TOKEN"`,
		"token_sha256: " + sum("Secret"):                                                 `"Secret"`,
		"token_sha256: " + sum("adminadmin"):                                             `"adminadmin"`,
		"token_sha256: " + sum(""):                                                       `"empty"`,
		"token_sha256: " + sum("0123456789abcdef"):                                       "openssl rand",
		"token_sha256: <64 digits>":                                                      "want 64 hexadecimal digits",
		"token: aaaaaaaaaaaaaaaaaaaaaaaa":                                                "1 different",
		"token: '1234123412341234'":                                                      "4 different",
		"token: passwordpassword":                                                        "7 different",
		"token: 0123456789abcdef":                                                        "guesses: want a random one",
		"token: abcdefghijklmnop":                                                        "anybody guesses",
		"token: f3a1c07be29d4d6e9b0c":                                                    "anybody guesses",
		"token: administrator12":                                                         "15 characters: want",
	} {
		text := "tokens: [{name: a, read: ['*'], " + entry + "}]"
		_, err := access.NewPolicy(access.Options{Tokens: write(t, t.TempDir(), "tokens.yaml", []byte(text))})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %q in it", entry, err, want)
		}
	}
	guide, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("access.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`token(_sha256)?: [^<]*\b[0-9a-f]{16,}`).FindAll(append(guide, source...),
		-1) {
		t.Errorf("an example of the guide or the package could be taken over: %s", found)
	}
}

func TestTokensInPlainTextThatOthersCanReadAreLogged(t *testing.T) {
	for _, c := range []struct {
		mode os.FileMode
		text string
		warn bool
	}{
		{0o644, "token: " + trainerToken, true},
		{0o600, "token: " + trainerToken, false},
		{0o644, "token_sha256: " + sum(trainerToken), false},
	} {
		path := write(t, t.TempDir(), "tokens.yaml", []byte("tokens: [{name: a, read: ['*'], "+c.text+"}]"))
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		if _, err := access.NewPolicy(access.Options{Tokens: path,
			Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "plain text"); got != c.warn {
			t.Errorf("mode %o, %s: log %q", c.mode, c.text, log.String())
		}
	}
}

// clock is a clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time          { return c.at }
func (c *clock) forward(d time.Duration) { c.at = c.at.Add(d) }

func TestChangesOfTheTokensFileApplyAfterASecond(t *testing.T) {
	folder := t.TempDir()
	with := func(token, rights string) []byte {
		return []byte("tokens: [{name: a, token: " + token + ", " + rights + "}, {name: b, token_file: secret, read: " +
			"['*']}]")
	}
	write(t, folder, "secret", []byte("first-0123456789abc"))
	path := write(t, folder, "tokens.yaml", with(trainerToken, "read: ['*'], write: ['*']"))
	var log strings.Builder
	c := &clock{time.Unix(1000, 0)}
	p, err := access.NewPolicy(access.Options{Tokens: path, Clock: c.now,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	early, err := call(p, trainerToken)
	if err != nil {
		t.Fatal(err)
	}

	write(t, folder, "tokens.yaml", with(trainerToken, "read: ['*']"))
	if err := p.Authorize(early, "x", wire.ToWrite); err != nil {
		t.Errorf("before a second has passed: %v", err)
	}
	c.forward(time.Second)
	if err := p.Authorize(early, "x", wire.ToWrite); wire.CodeOf(err) != wire.Denied {
		t.Errorf("a right taken back from a caller that is connected: %v", err)
	}

	write(t, folder, "tokens.yaml", []byte("tokens: ["))
	for range 3 {
		c.forward(time.Second)
		if err := p.Authorize(early, "x", wire.ToRead); err != nil {
			t.Errorf("with a broken file: %v", err)
		}
	}
	if n := strings.Count(log.String(), "are invalid"); n != 1 {
		t.Errorf("a broken file was logged %d times: %s", n, log.String())
	}

	write(t, folder, "tokens.yaml", with(generatorToken, "read: ['*']"))
	c.forward(time.Second)
	if err := p.Authorize(early, "x", wire.ToRead); wire.CodeOf(err) != wire.Unauthenticated {
		t.Errorf("a token that was taken out: %v", err)
	}
	if _, err := call(p, generatorToken); err != nil {
		t.Errorf("a token that was put in: %v", err)
	}

	write(t, folder, "secret", []byte("other-0123456789abc"))
	c.forward(time.Second)
	if _, err := call(p, "other-0123456789abc"); err != nil {
		t.Errorf("a token file that changed: %v", err)
	}
	if _, err := call(p, "first-0123456789abc"); err == nil {
		t.Error("the token file's former token is still good")
	}
}

func TestAttackAClockSteppedBackKeepsNoRevokedToken(t *testing.T) {
	folder := t.TempDir()
	path := write(t, folder, "tokens.yaml", []byte("tokens: [{name: a, token: "+trainerToken+", read: ['*']}]"))
	c := &clock{time.Unix(1_000_000, 0)}
	p, err := access.NewPolicy(access.Options{Tokens: path, Clock: c.now})
	if err != nil {
		t.Fatal(err)
	}
	early, err := call(p, trainerToken)
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, "tokens.yaml", []byte("tokens: [{name: a, token: "+generatorToken+", read: ['*']}]"))
	c.forward(-time.Hour)
	if err := p.Authorize(early, "x", wire.ToRead); wire.CodeOf(err) != wire.Unauthenticated {
		t.Errorf("a caller whose token was revoked before the clock went back: %v", err)
	}
	write(t, folder, "tokens.yaml", []byte("tokens: [{name: a, token: "+trainerToken+", read: ['*']}]"))
	c.forward(time.Second)
	if _, err := call(p, generatorToken); wire.CodeOf(err) != wire.Unauthenticated {
		t.Errorf("a token revoked after the clock went back: %v", err)
	}
}

func TestReloadReadsAtOnceAndKeepsTheOldTokensOnAnError(t *testing.T) {
	folder := t.TempDir()
	path := write(t, folder, "tokens.yaml", []byte("tokens: [{name: a, token: "+trainerToken+", read: ['*']}]"))
	c := &clock{time.Unix(1000, 0)}
	p, err := access.NewPolicy(access.Options{Tokens: path, Clock: c.now})
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, "tokens.yaml", []byte("nonsense: 1"))
	if err := p.Reload(); err == nil {
		t.Error("a broken file was loaded")
	}
	if _, err := call(p, trainerToken); err != nil {
		t.Errorf("after a broken reload: %v", err)
	}
	write(t, folder, "tokens.yaml", []byte("tokens: [{name: a, token: "+generatorToken+", read: ['*']}]"))
	if err := p.Reload(); err != nil {
		t.Error(err)
	}
	if _, err := call(p, generatorToken); err != nil {
		t.Errorf("after a reload: %v", err)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add([]byte("tokens: [{name: a, token: 7c1e9a04b35d82f6, read: ['*'], write: [a]}]"), "Bearer 7c1e9a04b35d82f6")
	f.Add([]byte("tokens: [{name: a, token_sha256: "+strings.Repeat("0", 64)+", certificate: b, read: ['[']}]"),
		"Basic Og==")
	f.Add([]byte("tokens: [{}, {name: [}]"), "basic OmE=")
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, header string) {
		path := filepath.Join(folder, "tokens.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := access.NewPolicy(access.Options{Tokens: path})
		if err != nil {
			return
		}
		ctx, err := p.Authenticate(&http.Request{Header: http.Header{"Authorization": {header}}})
		if err != nil {
			if wire.CodeOf(err) != wire.Unauthenticated {
				t.Fatalf("%v has code %s", err, wire.CodeOf(err))
			}
			return
		}
		if who, ok := access.From(ctx); !ok || who.Name == "" {
			t.Fatalf("a caller without a name was let in by %q", header)
		}
	})
}
