package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/internal/settings"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/replay/prompts"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/wire"
)

// action is one kind of DoAction.
type action struct {
	description string // for ListActions
	serve       func(ctx context.Context, c *call, body []byte) (answer any, err error)
}

// actions returns every action by its type.
func (s *Service) actions() map[string]action {
	return map[string]action{
		wire.CreateTable:      {"create a table, or find the same one" + bodyFields[wire.Table](), s.createTable},
		wire.DropTable:        {"drop a table and its journal" + bodyFields[wire.TableRequest](), s.dropTable},
		wire.Advance:          actOn(s, "set the version, before its weights are published", toWrite, advance),
		wire.Rewind:           actOn(s, "set the version back; newer rollouts leave", toWrite, rewind),
		wire.UpdatePriorities: actOn(s, "give rollouts new priorities", toWrite, updatePriorities),
		wire.ReportDraws:      actOn(s, "report what a trainer measured of its draws", toWrite, reportDraws),
		wire.Reward:           actOn(s, "give rollouts rewards that come late", toLabel, giveRewards),
		wire.Acknowledge:      actOn(s, "count leased batches as used", toRead, acknowledgeBatches),
		wire.Release:          actOn(s, "return leased batches unused", toRead, releaseBatches),
		wire.Statistics:       actOn(s, "return what the table has counted", toRead, statistics),
		wire.Info:             actOn(s, "return the table's definition, version and size", toRead, info),
		wire.Checkpoint:       actOn(s, "save the whole table under a name", toWrite, s.checkpoint),
		wire.Restore:          actOn(s, "replace the whole table by what was saved under a name", toWrite, s.restore),
		wire.ListCheckpoints:  {"list a table's checkpoints" + bodyFields[wire.TableRequest](), s.listCheckpoints},
		wire.DeleteCheckpoint: {"delete a checkpoint" + bodyFields[wire.CheckpointRequest](), s.deleteCheckpoint},
		wire.Scrub:            actOn(s, "read all of a table's journal and check it, in a cluster every copy", toWrite, s.scrub),
		wire.Start:            actOn(s, "ask how many groups may be started now", toWrite, start),
		wire.Abandon:          actOn(s, "give back groups that will not be inserted", toWrite, abandon),
		wire.PromptsNext:      actOn(s, "take prompts to ask again", toWrite, nextPrompts),
		wire.PromptsReport:    actOn(s, "report the results of prompts", toWrite, reportPrompts),
		wire.ReadTotals:       actOn(s, "return what draws over many services are divided by", toRead, totals),
		wire.Rollouts:         actOn(s, "find rollouts by an expression, an order and a text", toRead, findRollouts),
		wire.ShowRollout:      actOn(s, "return all that is known of a rollout", toRead, showRollout),
		wire.Locate:           {"say which services have a table" + bodyFields[wire.TableRequest](), s.locate},
	}
}

// The right that an action needs.
const (
	toRead  = wire.ToRead
	toWrite = wire.ToWrite
	toLabel = wire.ToLabel
)

func bodyFields[R any]() string { return ". Body: JSON with " + fieldNames(reflect.TypeFor[R]()) }

// actOn makes an action from a function that serves requests of type R, whose field Table names the table.
func actOn[R any](
	s *Service, description string, right wire.Right, serve func(context.Context, *table, *R) (any, error),
) action {
	return action{description + bodyFields[R](), func(ctx context.Context, c *call, body []byte) (any, error) {
		var req R
		if err := decodeJSON("body", body, &req); err != nil {
			return nil, err
		}
		t, err := s.allowed(ctx, reflect.ValueOf(req).FieldByName("Table").String(), right)
		if err != nil {
			return nil, err
		}
		c.uses(t.Name)
		answer, err := serve(ctx, t, &req)
		if err == nil && right == toRead {
			err = s.checkLease() // it may have ended since the table was read
		}
		return answer, err
	}}
}

// ListActions lists the actions.
func (s *Service) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) (err error) {
	c := s.begin(stream.Context(), "ListActions")
	defer c.end(&err)
	all := s.actions()
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if err := stream.Send(&flight.ActionType{Type: kind, Description: all[kind].description}); err != nil {
			return err
		}
	}
	return nil
}

// DoAction carries out one action and answers with one result.
func (s *Service) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) (err error) {
	ctx := stream.Context()
	c := s.begin(ctx, "DoAction")
	defer c.end(&err)
	all := s.actions()
	found, ok := all[a.GetType()]
	if !ok {
		return wire.Errorf(wire.NotFound, "action %q: there is none of that type: want one of %s", a.GetType(),
			strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if err := s.requests.begin(); err != nil {
		return err
	}
	defer s.requests.end()
	leave, err := s.admitJSON(ctx, a.GetBody())
	if err != nil {
		return err
	}
	defer leave()
	answer, err := found.serve(ctx, c, a.GetBody())
	if err != nil || answer == nil {
		return err
	}
	text, err := encodeJSON(answer)
	if err != nil {
		return err
	}
	return stream.Send(&flight.Result{Body: text})
}

func (s *Service) createTable(ctx context.Context, c *call, body []byte) (any, error) {
	var w wire.Table
	if err := decodeJSON("body", body, &w); err != nil {
		return nil, definitionError(body, err)
	}
	if err := s.authorize(ctx, w.Name, toWrite); err != nil {
		return nil, err
	}
	t, err := s.createAnywhere(ctx, w)
	if err != nil {
		return nil, err
	}
	c.uses(t.Name)
	return info(ctx, t, nil)
}

// definitionError returns all that is wrong with a definition that could not be read.
func definitionError(body []byte, err error) error {
	var w wire.Table
	read := settings.Reader{}.JSON(body, &w)
	if !errors.As(read, new(*option.Error)) || wire.CodeOf(err) != wire.Invalid {
		return err
	}
	_, err = define(w, read)
	return err
}

func (s *Service) dropTable(ctx context.Context, _ *call, body []byte) (any, error) {
	var req wire.TableRequest
	if err := decodeJSON("body", body, &req); err != nil {
		return nil, err
	}
	if s.options.Cluster != nil {
		if err := s.authorize(ctx, req.Table, toWrite); err != nil {
			return nil, err
		}
		return nil, s.options.Cluster.Drop(ctx, req.Table)
	}
	if _, err := s.allowed(ctx, req.Table, toWrite); err != nil {
		return nil, err
	}
	return nil, s.drop(req.Table)
}

func info(_ context.Context, t *table, _ *wire.TableRequest) (any, error) {
	i := t.info()
	i.Definition = &t.Table
	return i, nil
}

// committed answers an operation that changed the table, once the journal has committed it.
func (t *table) committed(ctx context.Context, err error) (any, error) {
	t.notifyAll()
	if err == nil {
		err = t.commit(ctx)
	}
	return t.answer(err)
}

// answer returns the table's state, or the error. Priorities and prompts, whose changes go with the journal's next
// cut (invariant 6), are answered so at once.
func (t *table) answer(err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return t.info(), nil
}

func advance(ctx context.Context, t *table, r *wire.VersionRequest) (any, error) {
	err := t.unlessDropped(func() error { return t.rollouts.Advance(ctx, rollout.Version(r.Version)) })
	answer, err := t.committed(ctx, err)
	if i, ok := answer.(wire.TableInfo); ok && i.Version > r.Version {
		i.Note = fmt.Sprintf("version: %d: the table stays at version %d, because advance only goes forward: a run "+
			"that begins anew or resumes a checkpoint first rewinds the table to its version (rewind), or takes "+
			"another",
			r.Version, i.Version)
		return i, err
	}
	return answer, err
}

// rewind sets the version back. The gate lets generators start again what the undone updates took and what leaves.
func rewind(ctx context.Context, t *table, r *wire.VersionRequest) (any, error) {
	return t.committed(ctx, t.rewind(ctx, rollout.Version(r.Version)))
}

func (t *table) rewind(ctx context.Context, v rollout.Version) error {
	t.life.Lock() // nothing else may move the version or the counts meanwhile
	defer t.life.Unlock()
	if err := t.gone(); err != nil {
		return err
	}
	from, before := t.version(), t.rollouts.ServiceView().Flow().Rewound
	if err := t.rollouts.Rewind(ctx, v); err != nil {
		return err
	}
	t.gate.Load().Rewind(int(from-v), t.rollouts.ServiceView().Flow().Rewound-before)
	return nil
}

func updatePriorities(ctx context.Context, t *table, r *wire.PriorityUpdate) (any, error) {
	ids := make([]rollout.ID, len(r.IDs))
	for i, id := range r.IDs {
		ids[i] = rollout.ID(id)
	}
	return t.thenAdvance(ctx, r.Version, t.unlessDropped(func() error {
		return t.rollouts.Update(t.named(ctx), ids, r.Priorities)
	}))
}

// thenAdvance advances the table after feedback that came with a version, and answers both.
func (t *table) thenAdvance(ctx context.Context, version *int32, err error) (any, error) {
	if err != nil || version == nil {
		return t.answer(err)
	}
	return advance(ctx, t, &wire.VersionRequest{Version: *version})
}

func reportDraws(ctx context.Context, t *table, r *wire.DrawReport) (any, error) {
	if err := checkID("request_id", r.RequestID); err != nil {
		return nil, err
	}
	list := make([]rollout.Feedback, len(r.Draws))
	for i, d := range r.Draws {
		list[i] = rollout.Feedback{
			ID: rollout.ID(d.ID), Staleness: d.Staleness,
			Advantage: measurement(d.Advantage), TDError: measurement(d.TDError), GradNorm: measurement(d.GradNorm),
			Tokens: d.Tokens, RatioSum: d.RatioSum, RatioSquares: d.RatioSquares,
		}
	}
	return t.thenAdvance(ctx, r.Version, t.unlessDropped(func() error {
		return t.reports.once(r.RequestID, func() error { return t.rollouts.Report(t.named(ctx), list...) })
	}))
}

func measurement(x *float64) rollout.Measurement {
	if x == nil {
		return rollout.Measurement{}
	}
	return rollout.Measured(*x)
}

// maxReportIDs is how many request ids of reports a table remembers.
const maxReportIDs = 1000

// reportIDs remembers the request ids of a table's reports, so that a report repeated because its answer got lost
// counts once. The zero value is ready.
type reportIDs struct {
	mu    sync.Mutex
	known map[string]bool
	bytes atomic.Int64
	order []string // of the known, a ring once it is full
	next  int      // in order, the oldest of a full ring
}

// once carries out a report unless one with its id was carried out before; "" is no id.
func (r *reportIDs) once(id string, report func() error) error {
	if id == "" {
		return report()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[id] {
		return nil
	}
	if err := report(); err != nil {
		return err
	}
	if r.known == nil {
		r.known = make(map[string]bool)
	}
	r.known[id] = true
	r.bytes.Add(int64(len(id)) + reportOverhead)
	if len(r.order) < maxReportIDs {
		r.order = append(r.order, id)
		return nil
	}
	delete(r.known, r.order[r.next])
	r.bytes.Add(-int64(len(r.order[r.next])) - reportOverhead)
	r.order[r.next] = id
	r.next = (r.next + 1) % maxReportIDs
	return nil
}

// forget forgets all ids, when the table goes back to a state from before the reports.
func (r *reportIDs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.order, r.next = nil, nil, 0
	r.bytes.Store(0)
}

func acknowledgeBatches(ctx context.Context, t *table, r *wire.SettleRequest) (any, error) {
	err := t.settleAll(r.Batches, nil, t.anyCallOf(ctx))
	if err == nil {
		err = t.flushConsumed(ctx)
	}
	return t.answer(err)
}

func releaseBatches(ctx context.Context, t *table, r *wire.SettleRequest) (any, error) {
	return t.answer(t.settleAll(nil, r.Batches, t.anyCallOf(ctx)))
}

// anyCallOf stands for every call of a caller: an action settles what the caller's streams drew.
func (t *table) anyCallOf(ctx context.Context) *holder {
	return &holder{caller: t.service.callerOf(ctx), any: true}
}

// start grants groups, after waiting for the first.
func start(ctx context.Context, t *table, r *wire.StartRequest) (any, error) {
	timeout, err := timeoutOf(&r.TimeoutMS)
	if err != nil {
		return nil, err
	}
	size := r.GroupSize
	if size == 0 {
		size = t.GroupSize
	}
	var answer wire.StartAnswer
	var short error // of memory, at the last try
	w := wait{
		place: startPlace, waiting: &t.meter.startsWaiting, timeout: timeout, now: t.now,
		next: func() (time.Time, bool) { return t.gate.Load().NextExpiry(t.now()) },
	}
	err = t.retry(ctx, w, func() error {
		return t.unlessDropped(func() error {
			if short = t.service.tableMemory.charge(grantOverhead, "a grant"); short != nil {
				return short
			}
			defer t.service.tableMemory.add(-grantOverhead) // recount charges it
			v, gate := t.version(), t.gate.Load()
			number, groups, err := gate.Start(t.now(), r.Groups, size, v, t.room(size))
			if err != nil {
				return err
			}
			answer = wire.StartAnswer{Grant: number, Groups: groups, Version: int32(v)}
			if groups == 0 {
				return rollout.ErrFull
			}
			answer.ExpiresSeconds = gate.lasts.Seconds()
			t.recount()
			return nil
		})
	})
	if mayPass(err) && short == nil && ctx.Err() == nil {
		err = nil // no grant is an answer too
	}
	return answer, err
}

// room returns how many rollouts may start, in groups of a size, for a queue to have room for what enters of them;
// other tables evict.
func (t *table) room(size int) int64 {
	if !t.Sampler.Consumes() {
		return math.MaxInt64
	}
	room := int64(t.Capacity - t.present())
	if each := t.PerGroup(size); each < size && size <= math.MaxInt32 {
		return room / int64(each) * int64(size)
	}
	return room
}

func abandon(_ context.Context, t *table, r *wire.AbandonRequest) (any, error) {
	if r.Groups < 1 {
		return nil, wire.Errorf(wire.Invalid, "groups: %d: want at least 1", r.Groups)
	}
	t.gate.Load().Abandon(t.now(), r.Grant, r.Groups)
	t.lines.roomChanged()
	return t.info(), nil
}

func nextPrompts(_ context.Context, t *table, r *wire.PromptsRequest) (any, error) {
	if r.Batch < 1 || r.Batch > math.MaxInt32 {
		return nil, wire.Errorf(wire.Invalid, "batch: %d: want the prompts of a batch, 1 to %d", r.Batch, math.MaxInt32)
	}
	answer := wire.PromptsAnswer{Prompts: []wire.Prompt{}}
	err := t.withPrompts(func() error {
		v := t.version()
		answer.Version = int32(v)
		for _, p := range t.prompts.Next(v, r.Batch) {
			answer.Prompts = append(answer.Prompts, wire.Prompt{ID: p.ID, Ref: p.Ref})
		}
		return nil
	})
	return answer, err
}

func reportPrompts(_ context.Context, t *table, r *wire.PromptResults) (any, error) {
	results, bytes := make([]prompts.Result, len(r.Results)), int64(0)
	for i, x := range r.Results {
		if err := checkID(fmt.Sprintf("results[%d].id", i), x.ID); err != nil {
			return nil, err
		}
		results[i] = prompts.Result{Prompt: prompts.Prompt{ID: x.ID, Ref: x.Ref}, Correct: x.Correct, Total: x.Total,
			Replayed: x.Replayed, Difficulty: x.Difficulty}
		bytes += prompts.EntryBytes(x.ID)
	}
	if err := t.service.tableMemory.charge(bytes, "reporting %d prompts", len(results)); err != nil {
		return nil, err
	}
	defer t.service.tableMemory.add(-bytes) // info recounts
	return t.answer(t.withPrompts(func() error { return t.prompts.Report(t.version(), results...) }))
}

// withPrompts runs an operation on a table that has prompt replay.
func (t *table) withPrompts(operation func() error) error {
	return t.unlessDropped(func() error {
		if t.prompts == nil {
			return wire.Errorf(wire.Invalid, "table %q has no prompt replay: want prompts in its definition", t.Name)
		}
		return operation()
	})
}

// totals answers wire.ReadTotals.
func totals(_ context.Context, t *table, r *wire.TotalsRequest) (any, error) {
	if r.Shard < 0 || r.Shard >= t.Shards {
		return nil, wire.Errorf(wire.Invalid, "shard: %d: want 0 to %d", r.Shard, t.Shards-1)
	}
	return wire.Totals{Table: t.Name, Totals: t.rollouts.ServiceView().Totals(r.Shard)}, nil
}

// locate answers wire.Locate. Without a cluster the answer is this service itself.
func (s *Service) locate(ctx context.Context, c *call, body []byte) (any, error) {
	var req wire.TableRequest
	if err := decodeJSON("body", body, &req); err != nil {
		return nil, err
	}
	if s.options.Cluster == nil {
		t, err := s.allowed(ctx, req.Table, toRead)
		if err != nil {
			return nil, err
		}
		c.uses(t.Name)
		return wire.Location{Parts: []wire.Part{{Table: t.Name}}}, nil
	}
	if err := s.authorize(ctx, req.Table, toRead); err != nil {
		return nil, err
	}
	parts, err := s.options.Cluster.Locate(ctx, req.Table)
	return wire.Location{Parts: parts, Cluster: true}, err
}

// statistics answers wire.Statistics.
func statistics(_ context.Context, t *table, _ *wire.TableRequest) (any, error) {
	v := t.view()
	s := v.Stats
	answer := wire.TableStatistics{
		TableInfo:      wire.TableInfo{Table: t.Name, Version: int32(s.Version), Present: s.Present, Bytes: s.PresentBytes},
		WaitingRewards: s.Waiting,
		Inserted:       s.Inserted, InsertedGroups: s.InsertedGroups, Evicted: s.Evicted, Refused: s.Refused,
		Drawn: s.Drawn, Acknowledged: s.Acknowledged, Returned: s.Returned, OnLease: v.OnLease,
		UpdatesIgnored: s.UpdatesIgnored, NeverUsed: s.NeverUsed,
		Staleness: s.Staleness, MeanStaleness: s.MeanStaleness, UsesAtEviction: s.UsesAtEviction,
		UsesPresent: s.UsesPresent, SinceLastUse: s.SinceLastUse,
		NeverUsedShare: v.NeverUsed, AgeDecay: replay.Versions(v.AgeDecay),
		Limiter: v.Limiter, Gate: v.Gate, Waiting: wire.Waiting{Inserts: v.InsertsWaiting, Samples: v.SamplesWaiting,
			Starts: v.StartsWaiting},
	}
	for _, a := range v.ByAge {
		answer.Ages = append(answer.Ages, wire.AgeShare{Age: a.Age, Units: a.Units, Base: a.Base,
			Probability: a.Probability})
	}
	for _, e := range v.ESSByAge {
		answer.ESSByAge = append(answer.ESSByAge, wire.AgeESS{First: e.First, Last: e.Last, ESS: e.ESS,
			Tokens: e.Tokens})
	}
	if p := v.Prompts; p != nil {
		answer.Prompts = &wire.PromptsState{
			Held: p.Held, Eligible: p.Eligible, Spent: p.Spent, Reported: p.Reported, ZeroVariance: p.ZeroVariance,
			Replayed: p.Replayed,
			Reuses:   p.Reuses, PassRates: p.PassRates,
		}
	}
	if j := v.Journal; j != nil {
		answer.Journal = &wire.JournalStatistics{Sync: string(j.Sync), Commits: j.Stats.Commits,
			Bytes: j.Stats.LogBytes, Seconds: j.Stats.WriteTime.Seconds(),
			VerifiedAge: time.Since(j.Stats.Verified).Seconds(), Damage: len(j.Stats.Damage)}
		if j.Err != nil {
			answer.Journal.Error = j.Err.Error()
		}
	}
	return answer, nil
}
