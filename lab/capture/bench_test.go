package capture_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/lab/capture"
	engines "github.com/reprise-rl/reprise/lab/policy/server"
)

// BenchmarkOverhead measures what a call through capture takes beyond what the engine takes for the same call, on disk
// and in memory: at the median, and at the 99th percentile. The engine alone, called directly, is measured in between.
func BenchmarkOverhead(b *testing.B) {
	folder, _, _ := makeModel(b)
	s, err := engines.New(folder, engines.Options{Rows: 8, Template: template})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	handler, took := s.Handler(), atomic.Int64{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		handler.ServeHTTP(w, r)
		took.Store(int64(time.Since(began)))
	}))
	defer web.Close()
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprint("stream=", stream), func(b *testing.B) {
			o := usual()
			o.Data, o.Memory = b.TempDir(), 8<<30
			a, _ := start(b, o, web.URL, serveTable(b, nil))
			body := fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}], "max_tokens": 16, "stream": %v}`,
				strings.Repeat("1+2 ", 40), stream)
			var through, alone, whole []time.Duration
			sessions := 0
			for b.Loop() {
				sessions++
				began := time.Now()
				status, text := send(b, a.url+"/v1/chat/completions", body, fmt.Sprint("s", sessions))
				total := time.Since(began)
				if status != 200 {
					b.Fatalf("%d: %s", status, text)
				}
				whole, through = append(whole, total), append(through, total-time.Duration(took.Load()))
				began = time.Now()
				send(b, web.URL+"/v1/chat/completions", body, "")
				alone = append(alone, time.Since(began)-time.Duration(took.Load()))
			}
			b.ReportMetric(at(through, 0.5), "overhead-p50-ms")
			b.ReportMetric(at(through, 0.99), "overhead-p99-ms")
			b.ReportMetric(at(alone, 0.5), "direct-p50-ms")
			b.ReportMetric(at(alone, 0.99), "direct-p99-ms")
			b.ReportMetric(at(whole, 0.5), "call-p50-ms")
		})
	}
}

func send(b *testing.B, url, body, session string) (int, string) {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(capture.SessionHeader, session)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// at returns a quantile in milliseconds.
func at(list []time.Duration, q float64) float64 {
	slices.Sort(list)
	return float64(list[int(q*float64(len(list)-1))]) / 1e6
}
