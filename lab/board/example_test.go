package board_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/reprise-rl/reprise/lab/board"
)

// A board is a handler: serve it on loopback.
func Example() {
	runs, err := os.MkdirTemp("", "runs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(runs)
	b, err := board.Open(runs, board.Tables{})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	server := httptest.NewServer(b)
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	// Output: 200 OK
}
