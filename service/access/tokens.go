package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// The least length of a token in characters, and how many different ones it has: too many to guess.
const (
	minToken     = 16
	minDifferent = 8
	randomToken  = "want a random one, made for example by: openssl rand -hex 32"
)

// weakTokens are what people try first, in lower case: stand-ins, defaults and examples, also of this program's
// guides.
const weakTokens = "token mytoken yourtoken your_token your-token my_token my-token api_token bearer secret mysecret " +
	"topsecret supersecret change_me change-me changeme changeit default example test testing tester demo " +
	"dev local none null todo xxx password passw0rd p@ssw0rd password1 password123 passwort pass admin administrator " +
	"root user guest public private key apikey api_key letmein welcome welcome1 login hello master monkey dragon " +
	"football baseball princess sunshine iloveyou shadow superman batman trustno1 starwars whatever freedom qwerty " +
	"qwertyuiop qwertyuiopasdfgh qwerty123 1q2w3e4r 1qaz2wsx asdfghjkl zxcvbnm abc abc123 abcdef abcdefghijklmnop " +
	"abcdefghijklmnopqrstuvwxyz 0 1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890 0123456789 " +
	"1234567890123456 0123456789abcdef 123456789abcdef0 fedcba9876543210 0123456789abcdef0123456789abcdef " +
	"111111 000000 123123 654321 666666 correcthorsebatterystaple reprise replay trainer trainers learner generator " +
	"generators worker watcher dashboard placeholder grafana prometheus f3a1c07be29d4d6e9b0c"

// weakDigests returns the tokens that are refused, by their digests: the weak ones as they are, in capitals, with a
// capital, twice, and with the line feed that `echo TOKEN | sha256sum` adds.
var weakDigests = sync.OnceValue(func() map[digest]string {
	weak := map[digest]string{sha256.Sum256(nil): "empty"}
	for _, w := range strings.Fields(weakTokens) {
		for _, form := range []string{w, strings.ToUpper(w), strings.ToUpper(w[:1]) + w[1:], w + w} {
			weak[sha256.Sum256([]byte(form))] = form
			weak[sha256.Sum256([]byte(form+"\n"))] = form
		}
	}
	return weak
})

// digest is the SHA-256 of a token. Only digests are kept and compared.
type digest [sha256.Size]byte

// tokensFile is the content of a tokens file.
type tokensFile struct {
	Tokens []entry `yaml:"tokens"`
}

// entry is one token with its rights. It gives the token in at most one of three ways, or a certificate instead.
type entry struct {
	Name        string   `yaml:"name"`         // shown in logs and on the dashboard
	Token       string   `yaml:"token"`        // itself
	TokenSHA256 string   `yaml:"token_sha256"` // 64 hexadecimal digits
	TokenFile   string   `yaml:"token_file"`   // a file that holds it; white space around it is ignored
	Certificate string   `yaml:"certificate"`  // common name of a client certificate, instead of a token or with it
	Read        []string `yaml:"read"`         // globs of tables: * matches any characters, ? one, [a-z] a range
	Write       []string `yaml:"write"`
	Label       []string `yaml:"label"` // tables in which it may give rewards; who may write may do that too

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
	var p option.Problems
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
		if err == nil {
			if err = e.setToken(strings.TrimSpace(string(secret))); err != nil {
				err = fmt.Errorf("%s: %w", from, err)
			}
		}
		if err != nil {
			p.Add(fmt.Errorf("tokens[%d].token_file: %w", i, err))
		}
	}
	p.Add(g.repeated()...)
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("tokens file %s: %w", file, err)
	}
	if info, err := os.Stat(file); plain && err == nil && info.Mode().Perm()&0o077 != 0 {
		g.warnings = append(g.warnings, fmt.Sprintf("tokens file %s holds tokens in plain text and its mode is %04o: "+
			"want 0600, or token_sha256 in place of token", file, info.Mode().Perm()))
	}
	return g, nil
}

// parseTokens parses and checks a tokens file. It does not read the files that it names.
func parseTokens(text []byte) (*grants, error) {
	var f tokensFile
	var p option.Problems
	p.Add(settings.Reader{Hidden: true}.YAML(text, &f))
	if len(f.Tokens) == 0 && len(p) == 0 {
		return nil, errors.New("tokens: none: want at least one {name, token_sha256, read, write, label}")
	}
	for i := range f.Tokens {
		at := fmt.Sprintf("tokens[%d].", i)
		if p.Has(at+"name", at+"token", at+"token_sha256", at+"token_file", at+"certificate", at+"read", at+"write", at+"label") {
			continue
		}
		for _, err := range f.Tokens[i].check() {
			p.Add(fmt.Errorf("%s%w", at, err))
		}
	}
	return &grants{entries: f.Tokens}, p.Err()
}

// check returns the problems of an entry, and sets the digest of its token.
func (e *entry) check() (p option.Problems) {
	given := 0
	for _, way := range []string{e.Token, e.TokenSHA256, e.TokenFile} {
		if way != "" {
			given++
		}
	}
	switch {
	case given > 1:
		p.Add(errors.New("token: given in more than one way: want one of token, token_sha256 and token_file"))
	case given == 0 && e.Certificate == "":
		p.Add(errors.New("token: none: want token, token_sha256, token_file or certificate"))
	case e.Token != "":
		if err := e.setToken(e.Token); err != nil {
			p.Add(fmt.Errorf("token: %w", err))
		}
	case e.TokenSHA256 != "":
		sum, err := hex.DecodeString(e.TokenSHA256)
		if err != nil || len(sum) != sha256.Size {
			p.Add(fmt.Errorf("token_sha256: %q: want 64 hexadecimal digits, as sha256sum prints them", e.TokenSHA256))
			break
		}
		if weak, ok := weakDigests()[digest(sum)]; ok {
			p.Add(fmt.Errorf("token_sha256: %.8s… is that of %q, which anybody guesses: %s", e.TokenSHA256, weak,
				randomToken))
		}
		e.token, e.hasToken = digest(sum), true
	}
	if e.Name == "" {
		p.Add(errors.New("name: none: want one that logs and the dashboard can show"))
	}
	if len(e.Read)+len(e.Write)+len(e.Label) == 0 {
		p.Add(errors.New("read: no rights: want globs of tables under read, write or label, such as [\"*\"]"))
	}
	p.Add(checkGlobs("read", e.Read)...)
	p.Add(checkGlobs("write", e.Write)...)
	p.Add(checkGlobs("label", e.Label)...)
	return p
}

func checkGlobs(right string, globs []string) (p option.Problems) {
	for i, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			p.Add(fmt.Errorf("%s[%d]: %q: want a glob of table names, such as \"math-*\"", right, i, glob))
		}
	}
	return p
}

// setToken sets the digest of a token.
func (e *entry) setToken(token string) error {
	different := make(map[rune]bool)
	for _, r := range token {
		different[r] = true
	}
	e.token, e.hasToken = sha256.Sum256([]byte(token)), true
	switch _, weak := weakDigests()[e.token]; {
	case len(token) < minToken:
		return fmt.Errorf("%d characters: want at least %d; %s", len(token), minToken, randomToken)
	case len(different) < minDifferent:
		return fmt.Errorf("%d different characters: want at least %d; %s", len(different), minDifferent,
			randomToken)
	case weak:
		return fmt.Errorf("one that anybody guesses: %s", randomToken)
	}
	return nil
}

// repeated returns the problems of names given twice and of entries that the same caller would match.
func (g *grants) repeated() (problems []error) {
	for i, e := range g.entries {
		for j, other := range g.entries[:i] {
			if e.Name == other.Name {
				problems = append(problems, fmt.Errorf("tokens[%d].name: %q is also tokens[%d]'s: want another", i,
					e.Name, j))
			}
			if e.token == other.token && e.hasToken == other.hasToken && e.Certificate == other.Certificate {
				problems = append(problems, fmt.Errorf("tokens[%d].token: is also tokens[%d]'s: want another", i, j))
			}
		}
	}
	return problems
}

// find returns the entry that an identity matches. It compares all digests, each in constant time. An entry with a
// token and a certificate goes before one with a token alone, and that before one with a certificate alone.
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
		case certificate && !shown.hasToken: // a certificate does not make up for a wrong token
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
		return nil, wire.Errorf(wire.Unauthenticated,
			"authorization: token %q works only together with its client certificate", half)
	case shown.hasToken:
		return nil, wire.Errorf(wire.Unauthenticated,
			"authorization: unknown token: want one of the service's tokens file")
	case shown.certificate != "":
		return nil, wire.Errorf(wire.Unauthenticated,
			"authorization: no token, and no entry of the tokens file has certificate: %q", shown.certificate)
	}
	return nil, wire.Errorf(wire.Unauthenticated,
		"authorization: no token: send \"authorization: Bearer TOKEN\" with every call")
}

// matches reports whether any of the globs matches a table's name.
func matches(globs []string, table string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, table); ok && err == nil {
			return true
		}
	}
	return false
}
