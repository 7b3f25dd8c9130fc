package service

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/reprise-rl/reprise/wire"
)

// action is one kind of DoAction.
type action struct {
	about string // for ListActions
	serve func(ctx context.Context, c *call, body []byte) (answer any, err error)
}

// act makes an action of what serves requests of a type. Table returns the name of the table that a request is about, and write
// tells whether it takes the right to write.
func act[R any](s *Service, about string, write bool, table func(*R) string, serve func(context.Context, *table, *R) (any, error)) action {
	about += ". Body: JSON with " + fieldNames(reflect.TypeFor[R]())
	return action{about, func(ctx context.Context, c *call, body []byte) (any, error) {
		var req R
		if err := readJSON("body", body, &req); err != nil {
			return nil, err
		}
		t, err := s.allowed(ctx, table(&req), write)
		if err != nil {
			return nil, err
		}
		c.about(t.Name)
		return serve(ctx, t, &req)
	}}
}

// actions returns every action by its type.
func (s *Service) actions() map[string]action {
	return map[string]action{
		wire.CreateTable:      {"make a table; one that is there with the same definition is left alone. Body: JSON with " + fieldNames(reflect.TypeFor[wire.Table]()), s.createTable},
		wire.DropTable:        {"end a table and remove its journal. Body: JSON with table", s.dropTable},
		wire.Advance:          act(s, "set the version before the weights of that version are published", true, func(r *wire.VersionRequest) string { return r.Table }, advance),
		wire.Rewind:           act(s, "set the version back; newer rollouts leave", true, func(r *wire.VersionRequest) string { return r.Table }, rewind),
		wire.UpdatePriorities: act(s, "give rollouts new priorities", true, func(r *wire.PriorityUpdate) string { return r.Table }, updatePriorities),
		wire.ReportDraws:      act(s, "tell what a trainer measured of its draws", true, func(r *wire.DrawReport) string { return r.Table }, reportDraws),
		wire.Acknowledge:      act(s, "count leased batches as used", false, func(r *wire.SettleRequest) string { return r.Table }, acknowledgeBatches),
		wire.Release:          act(s, "give leased batches back unused", false, func(r *wire.SettleRequest) string { return r.Table }, releaseBatches),
		wire.Statistics:       act(s, "what the table has counted", false, func(r *wire.TableRequest) string { return r.Table }, statistics),
		wire.Info:             act(s, "the table's definition, version and size", false, func(r *wire.TableRequest) string { return r.Table }, info),
		wire.Checkpoint:       act(s, "save everything of the table under a name", true, func(r *wire.CheckpointRequest) string { return r.Table }, s.checkpoint),
		wire.Restore:          act(s, "replace everything of the table by what was saved under a name", true, func(r *wire.CheckpointRequest) string { return r.Table }, s.restore),
		wire.Start:            act(s, "ask how many groups may be started now", true, func(r *wire.StartRequest) string { return r.Table }, start),
		wire.Abandon:          act(s, "give groups back that will not be inserted", true, func(r *wire.AbandonRequest) string { return r.Table }, abandon),
		wire.PromptsNext:      act(s, "take prompts to ask again", true, func(r *wire.PromptsRequest) string { return r.Table }, promptsNext),
		wire.PromptsReport:    act(s, "tell what came of prompts", true, func(r *wire.PromptResults) string { return r.Table }, promptsReport),
	}
}

// ListActions lists the actions.
func (s *Service) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) (err error) {
	c := s.begin(stream.Context(), "ListActions")
	defer c.end(&err)
	all := s.actions()
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if err := stream.Send(&flight.ActionType{Type: kind, Description: all[kind].about}); err != nil {
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
		return wire.Errorf(wire.NotFound, "action %q: there is none of that type: want one of %s", a.GetType(), strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	if err := s.work.begin(); err != nil {
		return err
	}
	defer s.work.end()
	give, err := s.admitJSON(ctx, a.GetBody())
	if err != nil {
		return err
	}
	defer give()
	answer, err := found.serve(ctx, c, a.GetBody())
	if err != nil || answer == nil {
		return err
	}
	text, err := writeJSON(answer)
	if err != nil {
		return err
	}
	return stream.Send(&flight.Result{Body: text})
}

func (s *Service) createTable(ctx context.Context, c *call, body []byte) (any, error) {
	var w wire.Table
	if err := readJSON("body", body, &w); err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, w.Name, true); err != nil {
		return nil, err
	}
	if n := len(s.list()); n >= s.options.MaxTables {
		if _, err := s.table(w.Name); err != nil {
			return nil, wire.Errorf(wire.Invalid, "table %q: there are %d tables already: drop some, or raise max_tables", w.Name, n)
		}
	}
	t, err := s.create(w)
	if err != nil {
		return nil, err
	}
	c.about(t.Name)
	return info(ctx, t, nil)
}

func (s *Service) dropTable(ctx context.Context, _ *call, body []byte) (any, error) {
	var req wire.TableRequest
	if err := readJSON("body", body, &req); err != nil {
		return nil, err
	}
	if _, err := s.allowed(ctx, req.Table, true); err != nil {
		return nil, err
	}
	return nil, s.drop(req.Table)
}

func info(_ context.Context, t *table, _ *wire.TableRequest) (any, error) {
	i := t.info()
	i.Definition = &t.Table
	return i, nil
}
