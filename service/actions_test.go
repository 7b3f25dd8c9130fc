package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

func TestEveryActionIsListedAndNoOther(t *testing.T) {
	v := serve(t, Options{})
	stream, err := v.client.ListActions(v.ctx, &flight.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for {
		a, err := stream.Recv()
		if err != nil {
			break
		}
		listed = append(listed, a.Type)
		if !strings.Contains(a.Description, "table") && !strings.Contains(a.Description, "name") {
			t.Errorf("%s: description %q names no field", a.Type, a.Description)
		}
	}
	want := []string{
		wire.CreateTable, wire.DropTable, wire.Advance, wire.Rewind, wire.UpdatePriorities, wire.ReportDraws,
		wire.Acknowledge, wire.Release, wire.Statistics, wire.Info, wire.Checkpoint, wire.Restore,
		wire.ListCheckpoints, wire.DeleteCheckpoint, wire.Start, wire.Abandon, wire.PromptsNext, wire.PromptsReport,
		wire.ReadTotals, wire.Locate, wire.Scrub, wire.Rollouts, wire.ShowRollout, wire.Reward,
	}
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
	_, err = try[any](v, "no_such", "{}")
	checkRefusal(t, err, wire.NotFound, "no_such", wire.CreateTable)
}

func TestCreateFindsATableWithTheSameDefinitionOnly(t *testing.T) {
	v := serve(t, Options{})
	first := v.create(wire.Table{Name: "a"})
	if first.Definition == nil || first.Definition.Capacity != 4096 || first.Definition.Sampler != "distinct" ||
		first.Definition.LeaseSeconds != 60 {
		t.Errorf("definition %+v: want defaults filled in", first.Definition)
	}
	v.fill("a", alone(2, 0)...)
	if again := v.create(wire.Table{Name: "a",
		Options: replay.Options{Capacity: 4096}}); again.Present != 2 { // the default, said
		t.Errorf("made again it holds %d", again.Present)
	}
	if same := v.create(*first.Definition); same.Present != 2 {
		t.Errorf("with the definition that was answered it holds %d", same.Present)
	}
	_, err := try[any](v, wire.CreateTable, wire.Table{Name: "a", Options: replay.Options{Capacity: 8, MaxUses: 3},
		Gate: &wire.Gate{RolloutsPerUpdate: 8}})
	checkRefusal(t, err, wire.Exists, "capacity is 8, the table's is 4096", "max_uses is 3",
		"gate.rollouts_per_update is 8", "none")
	_, err = try[any](v, wire.CreateTable, wire.Table{Name: "a", Options: replay.Options{Sampler: replay.Prioritized}})
	checkRefusal(t, err, wire.Exists, `another definition: sampler is "prioritized", the table's is "distinct": use`)
	v.create(wire.Table{Name: "old", Options: replay.Options{MaxStaleness: 8}})
	_, err = try[any](v, wire.CreateTable, wire.Table{Name: "old", Options: replay.Options{Capacity: 4096}})
	checkRefusal(t, err, wire.Exists, "another definition: max_staleness was not given, the table's is 8: use")
}

func TestEveryProblemOfADefinitionIsReportedAtOnce(t *testing.T) {
	v := serve(t, Options{})
	_, err := try[any](v, wire.CreateTable, wire.Table{Name: "a", Options: replay.Options{Capacity: -1,
		Sampler: "prioritized", MaxTokens: -1, LeaseSeconds: -1, GroupSize: -1, PriorityBase: "nothing",
		ImportanceBeta: new(float64(2)), Draws: "odd"}, Limiter: &wire.Limiter{SamplesPerInsert: 8, ErrorBuffer: 1},
		Gate: &wire.Gate{}, Prompts: &prompts.Options{Fraction: 2},
		Columns: []wire.Column{{Name: "y", Type: "float32"}}})
	checkRefusal(t, err, wire.Invalid, `table "a"`, "capacity: -1", "max_tokens: -1", "lease_seconds: -1",
		"group_size: -1", "priority_base: nothing",
		"importance_beta: 2", "draws: odd", "limiter.error_buffer: 1", "samples_per_insert "+
			"8", "gate.rollouts_per_update: 0", "prompts.fraction: 2", "y")
	for body, want := range map[string]string{
		`{"name": "a", "capacity": "x", "samplr": "lifo", "positive_share": 2}`: `table "a": capacity: "x": want a whole ` +
			`number; samplr: unknown key: want sampler; positive_share: 2: want 0 to 1`,
		`{"name": "a", "capacity": 7.5, "min_size": 9, "group_size": 9, "gate": {"rollouts_per_update": 1}}`: `table "a": ` +
			`capacity: 7.5: want a whole number`,
		`{"name": "a", "limiter": {"samples_per_insert": "x", "error_bufer": 2}, "shards": 0.5, "capacity": 7}`: `table ` +
			`"a": limiter.error_bufer: unknown key: want limiter.error_buffer; limiter.samples_per_insert: "x": want a ` +
			`number; shards: 0.5: want a whole number`,
		`{"name": "a", "columns": [{"name": "x_a", "typ": "int8"}, {"nam": "x_b", "type": "int7"}]}`: `table "a": ` +
			`columns[0].typ: unknown key: want columns[0].type; columns[1].nam: unknown key: want columns[1].name; `,
		`{"name": "a", "max_stalenes": 3}`:             `table "a": max_stalenes: unknown key: want max_staleness`,
		`{"name": "a", "prompts": 3, "colour": "red"}`: `table "a": colour: unknown key: want one of name, capacity, `,
		`{"name": "a", "sampler": 3, "max_uses": 99999999999999999999}`: `table "a": max_uses: 1e+20: want a smaller ` +
			`number; sampler: 3: want lifo, fifo, uniform, distinct, epoch, unseen, least_used, ordered or prioritized`,
	} {
		_, err := try[any](v, wire.CreateTable, json.RawMessage(body))
		checkRefusal(t, err, wire.Invalid, want)
		if strings.Contains(err.Error(), want+"; ") {
			t.Errorf("%q tells more than %q", err, want)
		}
	}
	for _, c := range []struct {
		w    wire.Table
		want string
	}{
		{wire.Table{Name: "../a"}, "../a"},
		{wire.Table{Name: ""}, "name"},
		{wire.Table{Name: "a", Options: replay.Options{AgeDecay: 5}}, "age_decay: 5: want no value with sampler distinct"},
		{wire.Table{Name: "a", Options: replay.Options{MinSize: 100},
			Gate: &wire.Gate{RolloutsPerUpdate: 10, MaxStaleness: 1}}, "min_size"},
		{wire.Table{Name: "a", Options: replay.Options{GroupSize: 32},
			Gate: &wire.Gate{RolloutsPerUpdate: 10, MaxStaleness: 1}}, "group_size 32"},
	} {
		_, err := try[any](v, wire.CreateTable, c.w)
		checkRefusal(t, err, wire.Invalid, c.want)
	}
	_, err = try[any](v, wire.CreateTable, `{"name":"a","capasity":5}`)
	checkRefusal(t, err, wire.Invalid, "capasity", "capacity")
}

func TestADropEndsEveryWaitForTheTable(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a"})
	x := v.exchanger(v.client, "a")
	x.send(wire.SampleRequest{Size: 1})
	v.await("a sample waits", func(o TableView) bool { return o.SamplesWaiting == 1 })
	do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
	_, err := x.recv()
	checkRefusal(t, err, wire.NotFound, `"a"`)
	_, err = try[any](v, wire.Info, wire.TableRequest{Table: "a"})
	checkRefusal(t, err, wire.NotFound, `"a"`)
	if fresh := v.create(wire.Table{Name: "a", Options: replay.Options{Capacity: 8}}); fresh.Present != 0 {
		t.Errorf("a new table of that name holds %d", fresh.Present)
	}
}

func TestTotalsAreWhatAShardAddsToADrawOverManyServices(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "unseen", Shards: 2, Capacity: 64}})
	v.fill("a", alone(8, 0)...) // by turns to the two shards
	do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 3})
	if _, err := v.get(wire.SampleRequest{Table: "a", Size: 3, Shard: 1}); err != nil {
		t.Fatal(err)
	}
	for shard, unused := range []int{4, 1} {
		x := do[wire.Totals](v, wire.ReadTotals, wire.TotalsRequest{Table: "a", Shard: shard})
		want := wire.Totals{Table: "a"}
		want.Version, want.Units, want.Unused, want.Fresh = 3, 4, unused, 4
		if x != want {
			t.Errorf("shard %d has %+v, want %+v", shard, x, want)
		}
	}
	_, err := try[any](v, wire.ReadTotals, wire.TotalsRequest{Table: "a", Shard: 2})
	checkRefusal(t, err, wire.Invalid, "shard: 2", "0 to 1")
}

func TestAServiceByItselfLocatesItsTablesHere(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	l := do[wire.Location](v, wire.Locate, wire.TableRequest{Table: "a"})
	if len(l.Parts) != 1 || l.Parts[0] != (wire.Part{Table: "a"}) {
		t.Errorf("table a is at %+v", l)
	}
	_, err := try[any](v, wire.Locate, wire.TableRequest{Table: "b"})
	checkRefusal(t, err, wire.NotFound, `"b"`)
}

func TestVersionsGoUpByAdvanceAndDownByRewind(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	if i := do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 3}); i.Version != 3 {
		t.Errorf("version %d", i.Version)
	}
	if i := do[wire.TableInfo](v, wire.Advance, wire.VersionRequest{Table: "a", Version: 2}); i.Version != 3 {
		t.Errorf("an advance to an older version made it %d", i.Version)
	}
	v.fill("a", alone(2, 3)...)
	v.fill("a", alone(2, 1)...)
	if i := do[wire.TableInfo](v, wire.Rewind, wire.VersionRequest{Table: "a", Version: 2}); i.Version != 2 ||
		i.Present != 2 {
		t.Errorf("rewound to %d with %d rollouts", i.Version, i.Present)
	}
	_, err := try[any](v, wire.Rewind, wire.VersionRequest{Table: "a", Version: 9})
	checkRefusal(t, err, wire.Invalid, "9")
	_, err = try[any](v, wire.Advance, wire.VersionRequest{Table: "a", Version: -1})
	checkRefusal(t, err, wire.Invalid, "-1")
}

func TestPrioritiesAndReportsReachTheSampler(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{Sampler: "prioritized"}})
	v.fill("a", alone(4, 0)...)
	do[any](v, wire.UpdatePriorities, wire.PriorityUpdate{Table: "a", IDs: []uint64{1, 2, 3, 4},
		Priorities: []float64{0, 0, 0, 1e12}})
	b, err := v.get(wire.SampleRequest{Table: "a", Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range b.draws {
		if d.ID != 4 || d.Probability < 0.999 {
			t.Errorf("drew %d with probability %v", d.ID, d.Probability)
		}
	}
	big := 1e12
	do[any](v, wire.ReportDraws, wire.DrawReport{Table: "a", Draws: []wire.DrawFacts{
		{ID: 1, Advantage: &big}, {ID: 4, Advantage: new(float64), Tokens: 10, RatioSum: 10, RatioSquares: 20},
	}})
	s := v.stats("a")
	if len(s.ESSByAge) != 1 || s.ESSByAge[0].ESS != 0.5 || len(s.Ages) != 1 || s.AgeDecay != 500 {
		t.Errorf("ess %+v, ages %+v, decay %v", s.ESSByAge, s.Ages, s.AgeDecay)
	}
	if b, err = v.get(wire.SampleRequest{Table: "a", Size: 1}); err != nil || b.draws[0].ID != 1 {
		t.Errorf("after a report rollout %d is drawn, %v", b.draws[0].ID, err)
	}
	for body, want := range map[string]string{
		`{"table":"a","ids":[1,2],"priorities":[1]}`: "priorities is 1 for 2 ids",
		`{"table":"a","ids":[9],"priorities":[1]}`:   "id is 9",
		`{"table":"a","ids":[1],"priorities":[-1]}`:  "priority is -1",
		`{"table":"a","ids":[-1],"priorities":[1]}`:  "ids",
	} {
		_, err := try[any](v, wire.UpdatePriorities, body)
		checkRefusal(t, err, wire.Invalid, want)
	}
}

func TestBatchesAreSettledByActionsAllOrNone(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(8, 0)...)
	x := v.exchanger(v.client, "a")
	first := v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0), RequestID: "1"})
	for _, list := range [][]uint64{{first.Batch, 77}, {first.Batch, first.Batch}, {0}} {
		if _, err := try[any](v, wire.Acknowledge, wire.SettleRequest{Table: "a", Batches: list}); err == nil {
			t.Errorf("%v was acknowledged", list)
		}
	}
	if s := v.stats("a"); s.Acknowledged != 0 || s.OnLease != 2 {
		t.Errorf("acknowledged %d, on lease %d", s.Acknowledged, s.OnLease)
	}
	do[any](v, wire.Release, wire.SettleRequest{Table: "a", Batches: []uint64{first.Batch}})
	if s := v.stats("a"); s.Returned != 2 || s.OnLease != 0 {
		t.Errorf("returned %d, on lease %d", s.Returned, s.OnLease)
	}
}

// as is the service with a client of that name, which [named] finds.
func (v *served) as(name string) *served {
	other := *v
	other.ctx = metadata.AppendToOutgoingContext(v.ctx, "name", name)
	return &other
}

// named returns the name of a call's client.
func named(ctx context.Context) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "name"), " ")
}

func TestAttackNobodySettlesTheLeaseOfAnotherCaller(t *testing.T) {
	v := serve(t, Options{Caller: named})
	v.create(wire.Table{Name: "a"})
	v.fill("a", alone(16, 0)...)
	alice, bob := v.as("alice"), v.as("bob")
	x, y := alice.exchanger(v.client, "a"), bob.exchanger(v.client, "a")
	b := v.mustSample(x, wire.SampleRequest{Size: 2, Prefetch: count(0), RequestID: "1"})
	body := wire.SettleRequest{Table: "a", Batches: []uint64{b.Batch}}
	for _, kind := range []string{wire.Acknowledge, wire.Release} {
		if _, err := try[any](bob, kind, body); !errors.Is(err, wire.ErrDenied) {
			t.Errorf("%s by another caller: %v", kind, err)
		}
		if _, err := try[any](v, kind, body); !errors.Is(err, wire.ErrDenied) {
			t.Errorf("%s by a caller without a name: %v", kind, err)
		}
	}
	// Nor does another caller get the batch by the id of the request, and with it the lease.
	if stolen := v.mustSample(y, wire.SampleRequest{Size: 2, Prefetch: count(0),
		RequestID: "1"}); stolen.Batch == b.Batch {
		t.Error("another caller's request of the same id got the batch")
	}
	if _, err := y.sample(wire.SampleRequest{Acknowledge: body.Batches}); !errors.Is(err, wire.ErrDenied) {
		t.Errorf("settled on another caller's stream: %v", err)
	}
	v.awaitCounts("a", 4, 0, 2) // the end of that stream returned its own batch
	do[any](alice, wire.Acknowledge, body)
	v.awaitCounts("a", 4, 2, 2)
}

func TestStatisticsHoldTheTablesCounts(t *testing.T) {
	v := serve(t, Options{Data: t.TempDir()})
	v.create(wire.Table{Name: "a", Options: replay.Options{MaxUses: 1},
		Limiter: &wire.Limiter{SamplesPerInsert: 1, ErrorBuffer: 16}, Gate: &wire.Gate{RolloutsPerUpdate: 8,
			MaxStaleness: 1}})
	v.fill("a", group(4, 0), group(4, 0))
	if _, err := v.get(wire.SampleRequest{Table: "a", Size: 4}); err != nil {
		t.Fatal(err)
	}
	s := v.stats("a")
	want, err := v.service.table("a")
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(s.Stats())
	direct, _ := json.Marshal(statsOf(want.rollouts))
	if string(got) != string(direct) {
		t.Errorf("over the wire\n%s, of the table\n%s", got, direct)
	}
	if s.Evicted[rollout.EvictedByUses] != 4 || s.NeverUsedShare != 1 {
		t.Errorf("evicted %v, never used %v", s.Evicted, s.NeverUsedShare)
	}
	if s.Limiter == nil || s.Limiter.Balance != 4 || s.Limiter.Max != 16 || s.Gate == nil || s.Gate.Started != 8 ||
		s.Gate.Allowed != 16 {
		t.Errorf("limiter %+v, gate %+v", s.Limiter, s.Gate)
	}
	if s.Journal == nil || s.Journal.Sync != "always" || s.Journal.Commits == 0 || s.Journal.Bytes == 0 {
		t.Errorf("journal %+v", s.Journal)
	}
}

func TestGroupsAreStartedInsertedAndAbandoned(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Options: replay.Options{GroupSize: 4},
		Gate: &wire.Gate{RolloutsPerUpdate: 8, MaxStaleness: 1}})
	got := do[wire.StartAnswer](v, wire.Start, wire.StartRequest{Table: "a", Groups: 9})
	if got.Groups != 4 || got.Grant == 0 || got.ExpiresSeconds != 600 {
		t.Fatalf("granted %+v", got)
	}
	if more := do[wire.StartAnswer](v, wire.Start, wire.StartRequest{Table: "a", Groups: 1}); more.Groups != 0 ||
		more.Grant != 0 {
		t.Errorf("granted %+v beyond the gate", more)
	}
	if _, err := v.insert("a", wire.InsertRequest{Grant: got.Grant, BatchID: "x"}, group(4, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.insert("a", wire.InsertRequest{Grant: got.Grant, BatchID: "x"}, group(4, 0)); err != nil {
		t.Fatal(err)
	}
	if s := v.stats("a").Gate; s.Started != 16 || s.Outstanding != 12 {
		t.Errorf("after one group, sent twice: %+v", s)
	}
	do[any](v, wire.Abandon, wire.AbandonRequest{Table: "a", Grant: got.Grant, Groups: 2})
	if s := v.stats("a").Gate; s.Started != 8 || s.Outstanding != 4 {
		t.Errorf("after two were abandoned: %+v", s)
	}
	_, err := try[any](v, wire.Abandon, wire.AbandonRequest{Table: "a", Grant: got.Grant})
	checkRefusal(t, err, wire.Invalid, "groups: 0")
}

func TestPromptsAreReportedAndReplayed(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Prompts: &prompts.Options{Fraction: 0.5, Band: 0.5, MaxReuse: 3}})
	v.create(wire.Table{Name: "b"})
	do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{
		{Prompt: wire.Prompt{ID: "half", Ref: 5}, Correct: 2, Total: 4},
		{Prompt: wire.Prompt{ID: "never"}, Correct: 0, Total: 4},
	}})
	got := do[wire.PromptsAnswer](v, wire.PromptsNext, wire.PromptsRequest{Table: "a", Batch: 4})
	if len(got.Prompts) != 1 || got.Prompts[0] != (wire.Prompt{ID: "half", Ref: 5}) {
		t.Errorf("prompts %+v", got)
	}
	if s := v.stats("a").Prompts; s == nil || s.Reported != 2 || s.Replayed != 1 {
		t.Errorf("statistics %+v", s)
	}
	_, err := try[any](v, wire.PromptsNext, wire.PromptsRequest{Table: "b", Batch: 4})
	checkRefusal(t, err, wire.Invalid, `"b"`, "prompts")
	_, err = try[any](v, wire.PromptsNext, wire.PromptsRequest{Table: "a"})
	checkRefusal(t, err, wire.Invalid, "batch: 0")
	_, err = try[any](v, wire.PromptsReport, `{"table":"a","results":[{"id":"x","correct":5,"total":4}]}`)
	checkRefusal(t, err, wire.Invalid, "correct is 5")
}

// A data set is registered before anything was asked, and comes by its difficulty.
func TestPromptsAreScheduledByTheExpressionsOfATable(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Prompts: &prompts.Options{Fraction: 1, MaxReuse: 9, Keep: "tries == 0 || pass_rate < 1",
		Score: "tries == 0 ? -difficulty : -1"}})
	do[any](v, wire.PromptsReport,
		`{"table":"a","results":[{"id":"hard","difficulty":0.9},{"id":"easy","difficulty":0.2}]}`)
	for _, want := range []string{"easy", "hard"} {
		got := do[wire.PromptsAnswer](v, wire.PromptsNext, wire.PromptsRequest{Table: "a", Batch: 1})
		if len(got.Prompts) != 1 || got.Prompts[0].ID != want {
			t.Fatalf("prompts %+v, want %s", got, want)
		}
		do[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{
			{Prompt: got.Prompts[0], Correct: 1, Total: 4, Replayed: true}}})
	}
	_, err := try[any](v, wire.PromptsReport, `{"table":"a","results":[{"id":"x"}]}`)
	checkRefusal(t, err, wire.Invalid, "total is 0")
	_, err = try[any](v, wire.CreateTable, `{"name":"b","prompts":{"score":"reward","skip":"0.5"}}`)
	checkRefusal(t, err, wire.Invalid, "prompts.score: reward: want an expression over a prompt",
		"there is no column reward",
		"prompts.skip: 0.5: want none: a generator passes over its fresh prompts by itself")
}

// rights allows what it lists: "read a", "write a", "label a".
type rights []string

func (r rights) Authorize(_ context.Context, table string, right wire.Right) error {
	asked := string(right) + " " + table
	if slices.Contains(r, asked) {
		return nil
	}
	return wire.Errorf(wire.Denied, "may not %s", asked)
}

func TestEveryCallNeedsItsRight(t *testing.T) {
	all := map[string]string{ // by action, the right and a body
		wire.CreateTable: `write {"name":"a"}`, wire.DropTable: `write {"table":"a"}`,
		wire.Advance: `write {"table":"a"}`, wire.Rewind: `write {"table":"a"}`,
		wire.UpdatePriorities: `write {"table":"a"}`, wire.ReportDraws: `write {"table":"a"}`,
		wire.Acknowledge: `read {"table":"a"}`, wire.Release: `read {"table":"a"}`,
		wire.Statistics: `read {"table":"a"}`, wire.Info: `read {"table":"a"}`,
		wire.Checkpoint: `write {"table":"a"}`, wire.Restore: `write {"table":"a"}`,
		wire.ListCheckpoints: `read {"table":"a"}`, wire.DeleteCheckpoint: `write {"table":"a"}`,
		wire.Scrub: `write {"table":"a"}`,
		wire.Start: `write {"table":"a"}`, wire.Abandon: `write {"table":"a"}`,
		wire.PromptsNext: `write {"table":"a"}`, wire.PromptsReport: `write {"table":"a"}`,
		wire.ReadTotals: `read {"table":"a"}`, wire.Locate: `read {"table":"a"}`,
		wire.Rollouts: `read {"table":"a"}`, wire.ShowRollout: `read {"table":"a","id":1}`,
		wire.Reward: `label {"table":"a","ids":[1],"rewards":[1]}`,
	}
	for _, may := range []string{"read", "write", "label"} {
		v := serve(t, Options{Access: rights{may + " a"}, Tables: []wire.Table{{Name: "a"}, {Name: "b"}}})
		if len(all) != len(v.service.actions()) {
			t.Fatalf("%d of %d actions are listed here", len(all), len(v.service.actions()))
		}
		kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(k string) bool { return k == wire.DropTable })
		for _, kind := range append(kinds, wire.DropTable) {
			right, body, _ := strings.Cut(all[kind], " ")
			_, err := try[any](v, kind, body)
			if denied := errors.Is(err, wire.ErrDenied); denied != (right != may) {
				t.Errorf("with the right to %s, %s: %v", may, kind, err)
			}
			_, err = try[any](v, kind, strings.ReplaceAll(body, `"a"`, `"b"`))
			if !errors.Is(err, wire.ErrDenied) {
				t.Errorf("with no right on b, %s: %v", kind, err)
			}
		}
	}
	for _, may := range []string{"read", "write"} {
		v := serve(t, Options{Access: rights{may + " a"}, Tables: []wire.Table{{Name: "a"}, {Name: "b"}}})
		_, put := v.insert("a", wire.InsertRequest{}, alone(1, 0)...)
		_, get := v.get(wire.SampleRequest{Table: "a", Size: 1, TimeoutMS: ms(0)})
		_, export := v.get(wire.SampleRequest{Table: "a", Export: true})
		_, exchange := v.exchanger(v.client, "a").sample(wire.SampleRequest{Size: 1, TimeoutMS: ms(0)})
		_, info := v.client.GetFlightInfo(v.ctx, path("a"))
		_, schema := v.client.GetSchema(v.ctx, path("a"))
		for what, err := range map[string]error{"get": get, "export": export, "exchange": exchange,
			"info": wire.FromGRPC(info), "schema": wire.FromGRPC(schema)} {
			if errors.Is(err, wire.ErrDenied) != (may == "write") {
				t.Errorf("with the right to %s, %s: %v", may, what, err)
			}
		}
		if errors.Is(put, wire.ErrDenied) != (may == "read") {
			t.Errorf("with the right to %s, put: %v", may, put)
		}
		stream, err := v.client.ListFlights(v.ctx, &flight.Criteria{})
		if err != nil {
			t.Fatal(err)
		}
		listed := 0
		for {
			if _, err := stream.Recv(); err != nil {
				break
			}
			listed++
		}
		if want := map[string]int{"read": 1, "write": 0}[may]; listed != want {
			t.Errorf("with the right to %s a, %d tables are listed, want %d", may, listed, want)
		}
	}
}

func TestIDsThatWouldFillTheMemoryAreRefused(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a", Prompts: new(prompts.Defaults())})
	longest, long := strings.Repeat("x", maxIDBytes), strings.Repeat("x", maxIDBytes+1)
	if _, err := v.insert("a", wire.InsertRequest{BatchID: longest}, alone(2, 0)...); err != nil {
		t.Errorf("a batch id of %d bytes: %v", maxIDBytes, err)
	}
	_, err := v.insert("a", wire.InsertRequest{BatchID: long}, alone(2, 0)...)
	checkRefusal(t, err, wire.Invalid, "batch_id: ", "1025 bytes", "at most 1024")
	_, err = v.get(wire.SampleRequest{Table: "a", Size: 1, RequestID: long})
	checkRefusal(t, err, wire.Invalid, "request_id: ", "1025 bytes", "at most 1024")
	_, err = try[any](v, wire.ReportDraws, wire.DrawReport{Table: "a", RequestID: long})
	checkRefusal(t, err, wire.Invalid, "request_id: ", "1025 bytes", "at most 1024")
	half := wire.PromptResult{Prompt: wire.Prompt{ID: "half"}, Correct: 2, Total: 4}
	named := half
	named.ID = long
	_, err = try[any](v, wire.PromptsReport, wire.PromptResults{Table: "a", Results: []wire.PromptResult{half, named}})
	checkRefusal(t, err, wire.Invalid, "results[1].id: ", "1025 bytes", "at most 1024")
	if s := v.stats("a"); s.Present != 2 || s.Prompts.Held != 0 {
		t.Errorf("%d rollouts, %d prompts: nothing of a refused request is kept", s.Present, s.Prompts.Held)
	}
}

// A status travels in a header; many clients take 8 KB of headers in all.
func TestErrorsQuoteOnlyTheBeginningOfLongInput(t *testing.T) {
	v := serve(t, Options{})
	long := strings.Repeat("é", 1<<20)
	_, err := try[any](v, long, wire.TableRequest{})
	checkRefusal(t, err, wire.NotFound, "action", "stats")
	if n := len(err.Error()); n > 3000 {
		t.Errorf("the error has %d bytes", n)
	}
	_, err = v.get(wire.SampleRequest{Table: long[:1<<19], Size: 1})
	checkRefusal(t, err, wire.NotFound, "there is none of that name", "one of the tables listed")
	_, err = v.client.GetFlightInfo(v.ctx, path(long, "b"))
	checkRefusal(t, wire.FromGRPC(err), wire.Invalid, "descriptor", "want a path of one name")
}

func TestClientsCreateAtMostMaxTables(t *testing.T) {
	v := serve(t, Options{MaxTables: 2, Tables: []wire.Table{{Name: "a"}}})
	v.create(wire.Table{Name: "b"})
	_, err := try[any](v, wire.CreateTable, wire.Table{Name: "c"})
	checkRefusal(t, err, wire.Invalid, `"c"`, "2 tables", "max_tables")
	v.create(wire.Table{Name: "b"}) // is there already
	do[any](v, wire.DropTable, wire.TableRequest{Table: "a"})
	v.create(wire.Table{Name: "c"})
}

func TestListsOfMillionsAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	var r wire.DrawReport
	text := []byte(`{"table":"a","draws":[` + strings.Repeat("{},", maxRequestValues) + `{}]}`)
	err := decodeJSON("body", text, &r)
	checkRefusal(t, err, wire.TooLarge, "values", "several requests")
	if r.Draws != nil {
		t.Errorf("%d were read", len(r.Draws))
	}
}

func TestLargeActionsWaitForMemory(t *testing.T) {
	v := serve(t, Options{})
	v.create(wire.Table{Name: "a"})
	const left = 1 // byte, which only a request that waits in line keeps others from
	taken, err := v.service.incoming.all.acquire(v.ctx, v.service.options.MaxInFlightBytes-left)
	if err != nil {
		t.Fatal(err)
	}
	call := func(pad int) error {
		stream, err := v.client.DoAction(v.ctx, &flight.Action{Type: wire.Info,
			Body: []byte(`{"table":"a"}` + strings.Repeat(" ", pad))})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	if err := call(0); err != nil {
		t.Errorf("a small action: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- call(largeRequest) }()
	for v.service.incoming.all.free.TryAcquire(left) {
		v.service.incoming.all.free.Release(left)
		select {
		case err := <-ended:
			t.Fatalf("a large action did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	v.service.incoming.all.release(taken)
	if err := <-ended; err != nil {
		t.Errorf("a large action, with memory: %v", err)
	}
	for v.service.incoming.all.used.Load() != 0 { // released after the answer; a leak runs into the test's timeout
		time.Sleep(time.Millisecond)
	}
	err = decodeJSON("body", append([]byte("{}"), bytes.Repeat([]byte(" "), maxRequestBytes)...),
		new(wire.TableRequest))
	checkRefusal(t, err, wire.TooLarge, "want at most")
}

func TestARepeatedReportCountsOnceWhileItIsRemembered(t *testing.T) {
	var r reportIDs
	counted := make(map[string]int)
	report := func(id string) error {
		return r.once(id, func() error { counted[id]++; return nil })
	}
	for i := range 3 * maxReportIDs {
		for _, id := range []string{fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint(max(i-maxReportIDs+1, 0)), ""} {
			if err := report(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, n := range counted {
		if id != "" && n != 1 {
			t.Fatalf("report %s was counted %d times", id, n)
		}
	}
	if counted[""] != 3*maxReportIDs || len(counted) != 3*maxReportIDs+1 || len(r.known) != maxReportIDs {
		t.Errorf("%d reports without an id, %d ids, %d remembered", counted[""], len(counted)-1, len(r.known))
	}
	if report("0"); counted["0"] != 2 {
		t.Errorf("the oldest report, long forgotten, was counted %d times", counted["0"])
	}
}

func TestAReportThatFailedMayBeRepeated(t *testing.T) {
	var r reportIDs
	failed, n := errors.New("failed"), 0
	if err := r.once("a", func() error { return failed }); err != failed {
		t.Fatal(err)
	}
	if err := r.once("a", func() error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%v after %d", err, n)
	}
}

// statsOf returns a table's statistics.
func statsOf(table *replay.Table) rollout.Stats {
	stats, err := table.Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return stats
}
