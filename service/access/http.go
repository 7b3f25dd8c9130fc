package access

import (
	"context"
	"net/http"
)

// HTTP lets requests through to a handler whose callers it knows; others get 401, with the question for a name and a
// password, of which the password is the token and the name is not looked at.
func (p *Policy) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := p.Recognise(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="reprise: the password is a token", charset="UTF-8"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Recognise returns a context that knows who makes a request, or why it is not known.
func (p *Policy) Recognise(r *http.Request) (context.Context, error) {
	certificate := ""
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		certificate = r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	ctx, _, err := p.recognise(r.Context(), r.Header.Values("Authorization"), certificate)
	return ctx, err
}
