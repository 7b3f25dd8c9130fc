package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/reprise-rl/reprise/wire"
)

// shortestToken is how many characters a token has at least: as long as guessing it takes for ever.
const shortestToken = 16

// digest is the SHA-256 of a token. Only digests are kept and compared.
type digest [sha256.Size]byte

// tokensFile is what a tokens file holds.
type tokensFile struct {
	Tokens []entry `yaml:"tokens"`
}

// entry is one token with its rights. Of the three ways to give a token at most one is used; none wants a certificate.
type entry struct {
	Name        string   `yaml:"name"`         // shown in logs and on the dashboard
	Token       string   `yaml:"token"`        // itself
	TokenSHA256 string   `yaml:"token_sha256"` // 64 hexadecimal digits
	TokenFile   string   `yaml:"token_file"`   // a file that holds it; white space around it is dropped
	Certificate string   `yaml:"certificate"`  // common name of a client certificate, wanted instead of a token or beside it
	Read        []string `yaml:"read"`         // globs of tables: * stands for any characters, ? for one, [a-z] for a range
	Write       []string `yaml:"write"`

	token    digest
	hasToken bool
}

// grants are the tokens of a file.
type grants struct {
	entries  []entry
	warnings []string
}

// readTokens reads a tokens file and the files that it names.
func readTokens(file string, read func(string) ([]byte, error)) (*grants, error) {
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("reading the tokens file: %w", err)
	}
	g, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("tokens file %s: %w", file, err)
	}
	var problems []error
	plain := false
	for i := range g.entries {
		e := &g.entries[i]
		plain = plain || e.Token != ""
		if e.TokenFile == "" {
			continue
		}
		from := e.TokenFile
		if !filepath.IsAbs(from) {
			from = filepath.Join(filepath.Dir(file), from)
		}
		secret, err := read(from)
		if err != nil {
			problems = append(problems, fmt.Errorf("tokens[%d].token_file: %w", i, err))
			continue
		}
		if err := e.keep(strings.TrimSpace(string(secret))); err != nil {
			problems = append(problems, fmt.Errorf("tokens[%d].token_file: %s: %w", i, from, err))
		}
	}
	problems = append(problems, g.repeated()...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("tokens file %s: %w", file, errors.Join(problems...))
	}
	if info, err := os.Stat(file); plain && err == nil && info.Mode().Perm()&0o077 != 0 {
		g.warnings = append(g.warnings, fmt.Sprintf("tokens file %s holds tokens in plain text and its mode is %04o: want 0600, or token_sha256 in place of token", file, info.Mode().Perm()))
	}
	return g, nil
}

// parseTokens reads the YAML of a tokens file and checks all of it but the files that it names.
func parseTokens(text []byte) (*grants, error) {
	var f tokensFile
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(&f); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false)) // without the source, which may hold tokens
	}
	if len(f.Tokens) == 0 {
		return nil, errors.New("tokens: none: want at least one {name, token_sha256, read, write}")
	}
	var problems []error
	for i := range f.Tokens {
		for _, err := range f.Tokens[i].check() {
			problems = append(problems, fmt.Errorf("tokens[%d].%w", i, err))
		}
	}
	return &grants{entries: f.Tokens}, errors.Join(problems...)
}

// check finds what is wrong with an entry, and digests a token that it holds.
func (e *entry) check() (problems []error) {
	given := 0
	for _, way := range []string{e.Token, e.TokenSHA256, e.TokenFile} {
		if way != "" {
			given++
		}
	}
	switch {
	case given > 1:
		problems = append(problems, errors.New("token: given in more than one way: want one of token, token_sha256 and token_file"))
	case given == 0 && e.Certificate == "":
		problems = append(problems, errors.New("token: none: want token, token_sha256, token_file or certificate"))
	case e.Token != "":
		if err := e.keep(e.Token); err != nil {
			problems = append(problems, fmt.Errorf("token: %w", err))
		}
	case e.TokenSHA256 != "":
		sum, err := hex.DecodeString(e.TokenSHA256)
		if err != nil || len(sum) != sha256.Size {
			problems = append(problems, fmt.Errorf("token_sha256: %q: want 64 hexadecimal digits, as sha256sum prints them", e.TokenSHA256))
			break
		}
		e.token, e.hasToken = digest(sum), true
	}
	if e.Name == "" {
		problems = append(problems, errors.New("name: none: want one that logs and the dashboard can show"))
	}
	if len(e.Read)+len(e.Write) == 0 {
		problems = append(problems, errors.New("read: no rights: want globs of tables under read, write or both, such as [\"*\"]"))
	}
	for i, glob := range e.Read {
		problems = append(problems, checkGlob("read", i, glob)...)
	}
	for i, glob := range e.Write {
		problems = append(problems, checkGlob("write", i, glob)...)
	}
	return problems
}

func checkGlob(right string, i int, glob string) []error {
	if _, err := path.Match(glob, ""); err != nil || glob == "" {
		return []error{fmt.Errorf("%s[%d]: %q: want a glob of table names, such as \"math-*\"", right, i, glob)}
	}
	return nil
}

// keep takes the digest of a token.
func (e *entry) keep(token string) error {
	if len(token) < shortestToken {
		return fmt.Errorf("%d characters: want at least %d, made for example by: openssl rand -hex 32", len(token), shortestToken)
	}
	e.token, e.hasToken = sha256.Sum256([]byte(token)), true
	return nil
}

// repeated finds names given twice, and entries that the same caller would meet.
func (g *grants) repeated() (problems []error) {
	for i, e := range g.entries {
		for j, other := range g.entries[:i] {
			if e.Name == other.Name {
				problems = append(problems, fmt.Errorf("tokens[%d].name: %q is tokens[%d]'s already: want another", i, e.Name, j))
			}
			if e.token == other.token && e.hasToken == other.hasToken && e.Certificate == other.Certificate {
				problems = append(problems, fmt.Errorf("tokens[%d].token: is tokens[%d]'s already: want another", i, j))
			}
		}
	}
	return problems
}

// find returns the entry that an identity meets. All digests are compared, in constant time each. Among several, one that
// wants a token and a certificate is taken before one that wants a token alone, and this before a certificate alone.
func (g *grants) find(shown identity) (*entry, error) {
	var found *entry
	best, half := 0, ""
	for i := range g.entries {
		e := &g.entries[i]
		token := e.hasToken && shown.hasToken && subtle.ConstantTimeCompare(e.token[:], shown.token[:]) == 1
		certificate := e.Certificate != "" && e.Certificate == shown.certificate
		rank := 0
		switch {
		case e.hasToken && e.Certificate != "":
			if token && certificate {
				rank = 3
			} else if token {
				half = e.Name
			}
		case token:
			rank = 2
		case certificate && !shown.hasToken: // a wrong token is not forgiven for a certificate
			rank = 1
		}
		if rank > best {
			found, best = e, rank
		}
	}
	switch {
	case found != nil:
		return found, nil
	case half != "":
		return nil, wire.Errorf(wire.Unauthenticated, "authorization: token %q is good together with its client certificate only", half)
	case shown.hasToken:
		return nil, wire.Errorf(wire.Unauthenticated, "authorization: the token is not known: want one of the service's tokens file")
	case shown.certificate != "":
		return nil, wire.Errorf(wire.Unauthenticated, "authorization: no token, and no entry of the tokens file has certificate: %q", shown.certificate)
	}
	return nil, wire.Errorf(wire.Unauthenticated, "authorization: no token: send \"authorization: Bearer TOKEN\" with every call")
}

// matches tells whether any of the globs matches a table's name.
func matches(globs []string, table string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, table); ok && err == nil {
			return true
		}
	}
	return false
}
