package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reprise-rl/reprise/engine"
)

// answering opens an engine of the dialect openai whose server is a function, and asks it for one completion.
func answering(t *testing.T, serve http.HandlerFunc) error {
	t.Helper()
	return answeringAtLength(t, 4, serve)
}

func answeringAtLength(t *testing.T, maxTokens int, serve http.HandlerFunc) error {
	t.Helper()
	web := httptest.NewServer(serve)
	defer web.Close()
	e, err := engine.Open(engine.Options{Dialect: engine.OpenAI, Address: web.URL, Token: "secret", Vocabulary: 100})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Generate(context.Background(), engine.Request{Prompt: []int32{1}, N: 1,
		Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: maxTokens}})
	return err
}

func completion(id int, logprob float64) string {
	return fmt.Sprintf(`{"choices": [{"index": 0, "finish_reason": "stop", "token_ids": [%d], "logprobs": `+
		`{"tokens": ["token_id:%d"], "token_logprobs": [%g]}}]}`, id, id, logprob)
}

func TestTokensThatNoModelOfThatVocabularyDrawsAreRefused(t *testing.T) {
	for _, c := range []struct {
		id      int
		logprob float64
		want    string
	}{
		{99, -3, ""}, {100, -3, "id 100: want 0 to 99"}, {-1, -3, "id -1: want 0 or more"},
		{5, -9999, "log-prob -9999: want -1000 to 0"}, {5, -1e30, "want -1000 to 0"}, {5, 0.1, "log-prob 0.1"},
	} {
		err := answering(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, completion(c.id, c.logprob)) })
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("token %d with log-prob %g: %v, want %q", c.id, c.logprob, err, c.want)
		}
	}
}

func TestRedirectsOfAnEngineAreNotFollowed(t *testing.T) {
	var reached atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		fmt.Fprint(w, completion(5, -1))
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 307, 308} {
		err := answering(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		})
		if err == nil || !strings.Contains(err.Error(), "redirects to") || !strings.Contains(err.Error(), elsewhere.URL) {
			t.Errorf("%d: %v", status, err)
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d prompts went elsewhere", n)
	}
}

func TestAnEnginesErrorCannotWriteToTheTerminal(t *testing.T) {
	err := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "{\"message\": \"red \\u001b[31m\\u0007\\u009b2J and\\na line\"}")
	})
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\a\u009b\n") ||
		!strings.Contains(err.Error(), "red \ufffd[31m\ufffd\ufffd2J and a line") {
		t.Errorf("%q", err)
	}
}

// An answer is read no further than its request can need: 16 MiB beside its tokens.
func TestAnAnswerWithoutEndIsLeftEarly(t *testing.T) {
	for status, most := range map[int]int64{http.StatusOK: 20 << 20, http.StatusInternalServerError: 4 << 20} {
		var sent atomic.Int64
		err := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			for block := make([]byte, 64<<10); ; {
				n, err := w.Write(block)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		if n := sent.Load(); err == nil || n > most+16<<20 { // what sockets hold
			t.Errorf("status %d: %d bytes were taken, error %v", status, n, err)
		}
	}
}

// A group of long completions has more values than any other answer, and is taken.
func TestALargeGroupIsTaken(t *testing.T) {
	const n, tokens = 8, 60_000
	list := func(value string) string { return "[" + strings.Repeat(value+",", tokens-1) + value + "]" }
	choice := fmt.Sprintf(`"text":"","finish_reason":"length","token_ids":%s,"logprobs":{"tokens":%s,"token_logprobs":%s,`+
		`"text_offset":%s,"top_logprobs":%s},"weight_versions":[{"start":0,"end":%d,"version":"0"}]`, list("5"), list(`"token_id:5"`), list("-1.25"), list("0"),
		list(`{"token_id:5":-1.25}`), tokens)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"choices":[`)
		for i := range n {
			fmt.Fprintf(w, `%s{"index":%d,%s}`, strings.Repeat(",", min(i, 1)), i, choice)
		}
		fmt.Fprint(w, `]}`)
	}))
	defer web.Close()
	e, err := engine.Open(engine.Options{Dialect: engine.VLLM, Address: web.URL, Vocabulary: 100})
	if err != nil {
		t.Fatal(err)
	}
	completions, err := e.Generate(context.Background(), engine.Request{Prompt: []int32{1}, N: n,
		Sampling: engine.Sampling{Temperature: 1, TopP: 1, MaxTokens: tokens}})
	if err != nil || len(completions) != n || len(completions[n-1].Tokens) != tokens {
		t.Errorf("%d completions, %v", len(completions), err)
	}
}

// What an answer takes is bounded by what is read of it, 256 MiB for a request of 100,000 tokens, whatever is in it.
func TestALongRequestsAnswerTakesNoMoreThanTwiceItsBound(t *testing.T) {
	for name, c := range map[string]struct{ begin, repeated, end string }{
		"nothing":               {"", " ", ""},
		"a string without end":  {`{"x": "`, "a", ""},
		"commas in a string":    {`{"x": "`, strings.Repeat("a", 1000) + ",", ""},
		"quotes in a string":    {`{"x": "`, `\"`, ""},
		"choices without end":   {`{"choices": [{}`, ",{}", ""},
		"empty choices":         {`{"choices": [{}`, ",{}", "]}"},
		"empty tokens":          {`{"choices": [{"logprobs": {"tokens": [""`, `,""`, "]}}]}"},
		"log-probs without end": {`{"choices": [{"logprobs": {"token_logprobs": [1`, ",1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			block := []byte(strings.Repeat(c.repeated, 64<<10/len(c.repeated)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := answeringAtLength(t, 100_000, func(w http.ResponseWriter, _ *http.Request) {
				_, err := fmt.Fprint(w, c.begin)
				for n := 0; err == nil && (c.end == "" || n < 16<<20); n += len(block) {
					_, err = w.Write(block)
				}
				fmt.Fprint(w, c.end)
			})
			runtime.ReadMemStats(&after)
			took := after.TotalAlloc - before.TotalAlloc // with what was freed again: no less than the peak
			t.Logf("%d MiB, %v", took>>20, err)
			if err == nil || !strings.Contains(err.Error(), "ask for fewer or shorter completions") || took > 512<<20 {
				t.Errorf("%d bytes were allocated, error %v", took, err)
			}
		})
	}
}
