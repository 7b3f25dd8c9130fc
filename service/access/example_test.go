package access_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/reprise-rl/reprise/service/access"
	"github.com/reprise-rl/reprise/wire"
)

func Example() {
	folder, err := os.MkdirTemp("", "access")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	tokens := filepath.Join(folder, "tokens.yaml")
	token := rand.Text()
	if err := os.WriteFile(tokens, fmt.Appendf(nil, `
tokens:
  - name: generators
    token: %s
    write: ["math-*"]
`, token), 0o600); err != nil {
		log.Fatal(err)
	}
	policy, err := access.NewPolicy(access.Options{Tokens: tokens})
	if err != nil {
		log.Fatal(err)
	}

	request := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	ctx, err := policy.Authenticate(request)
	if err != nil {
		log.Fatal(err)
	}
	who, _ := access.From(ctx)
	fmt.Println(who.Name, "may write math-1:", policy.Authorize(ctx, "math-1", wire.ToWrite) == nil)
	fmt.Println(policy.Authorize(ctx, "math-1", wire.ToRead))

	_, err = access.Listen(context.Background(), "0.0.0.0:7447", false, true)
	fmt.Println(err)
	// Output:
	// generators may write math-1: true
	// table "math-1": token "generators" may not read it: its read globs are [], add one that matches to the tokens file
	// "0.0.0.0:7447" can be reached from other machines: add TLS (tls.certificate and tls.key), or listen on 127.0.0.1
}
