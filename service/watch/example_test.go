package watch_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/watch"
)

// A service that stops is not well: whoever looks after it sees that by the status, and people by the words.
func Example() {
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	observe := func() service.Observation { // otherwise Service.Observe
		return service.Observation{At: started.Add(time.Minute), Started: started, Stopping: true}
	}
	w, err := watch.New(observe, watch.Options{})
	if err != nil {
		log.Fatal(err)
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 503 {"status":"stopping","reason":"the service is stopping","tables":0}
}
