package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/lab/results"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/service/server"
)

// releases has a folder of small files for each release, written by its program: docs/upgrades.md promises that later
// ones read them. This writes the folder of the next before its tag. That of a release that is out stays as it is.
//
//	go test ./cmd/reprise -run TestFilesOfEarlierReleasesAreRead -write-release 0.2.0
const releases = "testdata/releases"

var writeRelease = flag.String("write-release", "", "write testdata/releases of this version")

// Files of such a folder.
const (
	releasedTable  = "table.arrow"            // what the table held: every field of 18 rollouts, 4 of them used
	journalFolder  = "math.journal"           // its journal
	checkpointFile = "saved.table"            // its checkpoint: a snapshot
	parquetFolder  = "parquet"                // the same as a dataset
	jsonlFolder    = "jsonl"                  // likewise
	messagesFile   = "messages.json"          // what its client and its service said to one another
	serviceFile    = "serve.yaml"             // a configuration of the service
	runFolder      = "run"                    // of a run: its configuration with every key, and its measurements
	studyFile      = "off-policiness.json.gz" // the archive of a study
)

const releasedDefinition = "name=math,capacity=64,sampler=prioritized,max_staleness=8,seed=3"

func TestFilesOfEarlierReleasesAreRead(t *testing.T) {
	if *writeRelease != "" {
		write(t, filepath.Join(releases, *writeRelease))
	}
	folders, err := filepath.Glob(filepath.Join(releases, "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no folder in %s, %v", releases, err)
	}
	for _, from := range folders {
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			want := filepath.Join(from, releasedTable)
			same := func(t *testing.T, s *served, table string) {
				t.Helper()
				now := filepath.Join(t.TempDir(), "now.arrow")
				succeeds(t, "", "export", s.at.GRPC+"/"+table, "--out", now)
				then, rows := rowsOf(t, want), rowsOf(t, now)
				if len(then) != 1 || len(rows) != 1 {
					t.Fatalf("%d and %d record batches, want one each", len(then), len(rows))
				}
				for i, column := range then[0].Columns() { // rows may have further ones
					at := rows[0].Schema().FieldIndices(then[0].ColumnName(i))
					// Probabilities differ by rounding: a table that is read adds weights in another order.
					if len(at) != 1 || !array.ApproxEqual(column, rows[0].Column(at[0]), array.WithAbsTolerance(1e-12)) {
						t.Errorf("column %s was %v, and the table is\n%v", then[0].ColumnName(i), column, rows[0])
					}
				}
			}
			data := t.TempDir()
			copyFolder(t, filepath.Join(from, journalFolder), filepath.Join(data, "tables", journalFolder))
			copyFile(t, filepath.Join(from, checkpointFile), filepath.Join(data, "checkpoints", "math", checkpointFile))
			s := startServe(t, "--data", data, "--table", "name=arrow", "--table", "name=parquet", "--table", "name=jsonl",
				"--table", "name=again,capacity=64,sampler=prioritized")
			t.Run("a journal", func(t *testing.T) { same(t, s, "math") })
			t.Run("a checkpoint", func(t *testing.T) {
				c := s.dial(s.at.GRPC, client.Options{})
				if err := c.Table("math").Rewind(t.Context(), 0); err != nil { // most rollouts leave
					t.Fatal(err)
				}
				if _, err := c.Table("math").Restore(t.Context(), "saved"); err != nil {
					t.Fatal(err)
				}
				same(t, s, "math")
			})
			exports := map[string]string{"arrow": releasedTable, "parquet": parquetFolder, "jsonl": jsonlFolder}
			for table, path := range exports {
				t.Run("an export, "+table, func(t *testing.T) {
					said := succeeds(t, "", "import", filepath.Join(from, path), s.at.GRPC+"/"+table, "--advance")
					if !strings.Contains(said, "it holds 18 rollouts, before it held 0") {
						t.Errorf("import said %q", said)
					}
				})
			}
			t.Run("its client's messages", func(t *testing.T) {
				anew := startServe(t, "--data", filepath.Join(t.TempDir(), "data"))
				repeat(t, anew.at.GRPC, filepath.Join(from, messagesFile))
				same(t, anew, "math")
			})
			t.Run("configurations", func(t *testing.T) {
				config, err := server.Read(filepath.Join(from, serviceFile))
				if err := errors.Join(err, config.Validate()); err != nil {
					t.Error(err)
				}
				text, err := os.ReadFile(filepath.Join(from, runFolder, results.ConfigFile))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := run.Parse(text, nil); err != nil {
					t.Errorf("a run's: %v", err)
				}
			})
			t.Run("a run and a study", func(t *testing.T) {
				page := filepath.Join(t.TempDir(), "page.html")
				succeeds(t, "", "report", "then="+filepath.Join(from, runFolder), "--out", page)
				succeeds(t, "", "report", filepath.Join(from, studyFile), "--out", page)
				if read, err := results.ReadArchive(filepath.Join(from, studyFile)); err != nil || len(read.Runs) < 10 {
					t.Errorf("%v, want the runs of a study", err)
				}
			})
		})
	}
}

// write writes the files of a release.
func write(t *testing.T, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	s := startServe(t, "--data", data)
	heard := record(t, s.at.GRPC)
	through := &served{t: t, at: s.at}
	through.at.GRPC = heard.address
	through.converse()
	heard.save(filepath.Join(to, messagesFile))
	if _, err := s.dial(s.at.GRPC, client.Options{}).Table("math").Checkpoint(t.Context(), "saved"); err != nil {
		t.Fatal(err)
	}
	address := s.at.GRPC + "/math"
	succeeds(t, "", "export", address, "--out", filepath.Join(to, releasedTable))
	succeeds(t, "", "export", address, "--out", filepath.Join(to, parquetFolder), "--format", "parquet")
	succeeds(t, "", "export", address, "--out", filepath.Join(to, jsonlFolder), "--format", "jsonl")
	s.stop()
	copyFile(t, filepath.Join(data, "checkpoints", "math", checkpointFile), filepath.Join(to, checkpointFile))
	copyFolder(t, filepath.Join(data, "tables", journalFolder), filepath.Join(to, journalFolder))

	guide, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(guide), "# serve.yaml\n")
	config, _, _ = strings.Cut(config, "```\n")
	if err := os.WriteFile(filepath.Join(to, serviceFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	trained := filepath.Join(t.TempDir(), "run")
	got := call(t, "", "train", "-q", "--out", trained, "--set", "warmup.steps=2", "--set", "warmup.until=0",
		"--set", "evaluate.every=1", "--set", "budget.compute=0", "--set", "budget.updates=2")
	if got.code != 0 {
		t.Fatal(got.stderr)
	}
	for _, name := range []string{results.ConfigFile, results.MetricsFile, results.EvalFile, results.SummaryFile} {
		copyFile(t, filepath.Join(trained, name), filepath.Join(to, runFolder, name))
	}
	study, err := results.ReadArchive(filepath.Join("../../docs/studies", studyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := results.WriteArchive(filepath.Join(to, studyFile), study); err != nil {
		t.Fatal(err)
	}
}

// converse is what a client says to a service that holds nothing yet: every rollout's fields, a draw and feedback.
func (s *served) converse() {
	s.t.Helper()
	c := s.dial(s.at.GRPC, client.Options{})
	definition, err := server.ParseTable(releasedDefinition)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Create(s.t.Context(), definition); err != nil {
		s.t.Fatal(err)
	}
	s.fill(s.t, "math", 6)
	table := c.Table("math")
	batch, err := table.Sample(s.t.Context(), rollout.Request{Size: 4, ID: "first"})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := table.Update(s.t.Context(), []rollout.ID{batch.Draws[0].ID}, []float64{0.25}); err != nil {
		s.t.Fatal(err)
	}
	if err := table.Advance(s.t.Context(), 5); err != nil {
		s.t.Fatal(err)
	}
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// spoken is one call as it went over the wire: the messages of the client, and how many the service answered with.
type spoken struct {
	Method   string              `json:"method"`
	Metadata map[string][]string `json:"metadata,omitempty"` // of Reprise alone
	Sent     [][]byte            `json:"sent"`
	Answers  int                 `json:"answers"`
}

// conversation records the calls that go through a proxy.
type conversation struct {
	t       *testing.T
	address string
	server  *grpc.Server
	mu      sync.Mutex
	calls   []*spoken
}

// verbatim passes messages on as they are.
type verbatim struct{}

func (verbatim) Name() string { return "proto" }

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (verbatim) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// plainly connects to a service for messages as they are.
func plainly(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(strings.TrimPrefix(address, "grpc://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(verbatim{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var bothWays = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// record starts a proxy before a service.
func record(t *testing.T, service string) *conversation {
	t.Helper()
	to := plainly(t, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{t: t, address: "grpc://" + listener.Addr().String()}
	c.server = grpc.NewServer(grpc.ForceServerCodecV2(verbatim{}), grpc.UnknownServiceHandler(
		func(_ any, from grpc.ServerStream) error { return c.pass(from, to) }))
	go func() { _ = c.server.Serve(listener) }()
	t.Cleanup(c.server.Stop)
	return c
}

// pass makes the call of a client to the service, and records it.
func (c *conversation) pass(from grpc.ServerStream, to *grpc.ClientConn) error {
	method, _ := grpc.MethodFromServerStream(from)
	call := &spoken{Method: method, Metadata: ofReprise(from.Context())}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	ctx := from.Context()
	for key, values := range call.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, key, values[0])
	}
	service, err := to.NewStream(ctx, bothWays, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if from.RecvMsg(&message) != nil {
				_ = service.CloseSend()
				return
			}
			c.mu.Lock()
			call.Sent = append(call.Sent, message)
			c.mu.Unlock()
			_ = service.SendMsg(&message)
		}
	}()
	for {
		var message []byte
		if err := service.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		c.mu.Lock()
		call.Answers++
		c.mu.Unlock()
		if err := from.SendMsg(&message); err != nil {
			return err
		}
	}
}

// ofReprise returns the metadata of a call that Reprise's clients send.
func ofReprise(ctx context.Context) map[string][]string {
	all, _ := metadata.FromIncomingContext(ctx)
	maps.DeleteFunc(all, func(key string, _ []string) bool { return !strings.HasPrefix(key, "reprise") })
	return all
}

// save writes the calls.
func (c *conversation) save(path string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.MarshalIndent(c.calls, "", " ")
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// repeat says to a service what a client of a release said, and expects as many answers.
func repeat(t *testing.T, service, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var calls []spoken
	if err := json.Unmarshal(text, &calls); err != nil {
		t.Fatal(err)
	}
	inserts := func(c spoken) bool { return strings.HasSuffix(c.Method, "/DoPut") }
	if len(calls) < 5 || !slices.ContainsFunc(calls, inserts) {
		t.Fatalf("%d calls: want a conversation with an insertion", len(calls))
	}
	to := plainly(t, service)
	for i, call := range calls {
		if err := call.again(t.Context(), to); err != nil {
			t.Fatalf("call %d, %s: %v", i, call.Method, err)
		}
	}
}

// again makes a call anew.
func (c spoken) again(ctx context.Context, to *grpc.ClientConn) error {
	for key, values := range c.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, key, values[0])
	}
	stream, err := to.NewStream(ctx, bothWays, c.Method)
	if err != nil {
		return err
	}
	for _, message := range c.Sent {
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for answers := 0; ; answers++ {
		var message []byte
		if err := stream.RecvMsg(&message); errors.Is(err, io.EOF) {
			if answers < c.Answers { // a later release may list more actions
				return fmt.Errorf("%d answers, want %d at least", answers, c.Answers)
			}
			return nil
		} else if err != nil {
			return err
		}
	}
}
