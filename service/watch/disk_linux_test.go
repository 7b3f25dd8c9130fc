package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service"
	"github.com/reprise-rl/reprise/service/watch"
	"github.com/reprise-rl/reprise/wire"
)

// diskFolder is the data folder of a child process, which may make its files as small as it likes.
const diskFolder = "REPRISE_WATCH_DISK"

// The limit on the size of files holds for a whole process: so it is one of its own.
func TestAFullDiskIsReportedAndNothingIsAcknowledged(t *testing.T) {
	if folder := os.Getenv(diskFolder); folder != "" {
		fillDisk(t, folder)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), diskFolder+"="+t.TempDir())
	text, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS: "+t.Name()) {
		t.Fatalf("the child: %v\n%s", err, text)
	}
}

func fillDisk(t *testing.T, folder string) {
	signal.Ignore(syscall.SIGXFSZ) // what is left is the error
	o := service.Options{Data: folder, Logger: slog.New(slog.DiscardHandler), Tables: []wire.Table{{Name: "a"}}}
	d := serveDisk(t, o)
	if err := d.insert("before"); err != nil {
		t.Fatal(err)
	}
	d.healthy(http.StatusOK, "ok", "")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := limit
	full.Cur = 1 // byte from the beginning of a file
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		err := d.insert("full")
		if wire.CodeOf(err) != wire.Failed || !strings.Contains(err.Error(), "file too large") {
			t.Errorf("insertion %d into a full disk: %v", i, err)
		}
		d.healthy(http.StatusServiceUnavailable, "failed", `table "a": journal: `)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	// nobody knows what the file has: it has to be read again
	if err := d.insert("after"); wire.CodeOf(err) != wire.Failed {
		t.Errorf("an insertion once there is room again: %v", err)
	}
	// Of those that were refused one may be in memory, whose write failed; those that came after it did not enter.
	if n := d.service.Observe().Tables[0].Stats.Present; n > 2 {
		t.Errorf("%d rollouts are in the table, of which 1 was acknowledged and 1 may be in doubt", n)
	}
	if _, err := d.service.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "file too large") {
		t.Errorf("stopping says %v", err)
	}

	again := serveDisk(t, o)
	again.healthy(http.StatusOK, "ok", "")
	if n := again.service.Observe().Tables[0].Stats.Present; n != 1 {
		t.Errorf("a restart finds %d rollouts, 1 was acknowledged", n)
	}
	if err := again.insert("again"); err != nil {
		t.Error(err)
	}
	if _, err := again.service.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// disk is a service with a client.
type disk struct {
	t       *testing.T
	service *service.Service
	client  flight.Client
}

func serveDisk(t *testing.T, o service.Options) *disk {
	t.Helper()
	s, err := service.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(s.GRPCOptions(nil)...)
	s.Register(server)
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.Listener(l)) }()
	client, err := flight.NewClientWithMiddleware("unix://"+path, nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(client.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return &disk{t, s, client}
}

// insert inserts one rollout and returns what the service says.
func (d *disk) insert(batch string) error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	rec, err := wire.Rows([]rollout.Group{{Rollouts: []*rollout.Rollout{{
		PromptID: "p", Tokens: []int32{1}, Mask: []uint8{1}, Logprobs: []float32{-1}, Versions: []rollout.Version{0},
		Temperature: 1, TopP: 1,
	}}}}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer rec.Release()
	stream, err := d.client.DoPut(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(rec.Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"a"}})
	if err := w.WriteWithAppMetadata(rec, []byte(`{"batch_id":"`+batch+`"}`)); err != nil {
		return err
	}
	_, err = stream.Recv()
	return wire.FromGRPC(err)
}

// healthy checks /healthz of a watch that looks now.
func (d *disk) healthy(code int, status, reason string) {
	d.t.Helper()
	w, err := watch.New(d.service.Observe, watch.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	answer := get(w, "/healthz", "")
	var h watch.Health
	if err := json.Unmarshal(answer.Body.Bytes(), &h); err != nil {
		d.t.Fatal(err)
	}
	if answer.Code != code || h.Status != status || !strings.HasPrefix(h.Reason, reason) ||
		(reason == "") != (h.Reason == "") {
		d.t.Errorf("/healthz: %d %s; want %d %s %s", answer.Code, answer.Body, code, status, reason)
	}
}
