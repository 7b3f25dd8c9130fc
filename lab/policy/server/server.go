// Package server serves a policy of this project as an inference server: with the HTTP interfaces of vLLM, SGLang and
// llama.cpp, as far as package engine uses them, and one batch in which requests come and go.
package server

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"

	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Options configure a server. Zero fields have the defaults that their comments give.
type Options struct {
	Rows       int    // completions decoded at once [16]
	MaxWaiting int    // completions that wait for a row; more are refused with status 503 [1024]
	Seed       uint64 // of requests without one [0]
	Label      string // by which clients know the folder's weights ["default"]
	Template   string // of chats, in Jinja [the folder's]
}

func (o Options) withDefaults() Options {
	if o.Rows == 0 {
		o.Rows = 16
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 1024
	}
	if o.Label == "" {
		o.Label = "default"
	}
	return o
}

// Validate returns all problems, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p option.Problems
	p.Check(o.Rows >= 1 && o.Rows <= 4096, "rows", o.Rows, "1 to 4096")
	p.Check(o.MaxWaiting >= 1, "max_waiting", o.MaxWaiting, "1 or more")
	return p.Err()
}

// Server decodes completions in one batch. Its methods may be called concurrently.
type Server struct {
	options   Options
	folder    string // of the model
	name      string // in the ids of answers, which no other server gives
	chat      *hf.Dialogue
	noChat    error // why there is none
	model     *policy.Model
	tokenizer *hf.Tokenizer

	mu       sync.Mutex
	changed  sync.Cond
	weights  *policy.Weights // whose Version is an index of labels
	labels   []string        // of all weights so far, by which clients know them
	waiting  []*sequence
	active   []*sequence                // [Rows]; nil: free
	commands []func(*policy.Generation) // for the loop, between two positions
	paused   pause
	closed   bool
	failed   error // ended the loop
	count    uint64

	ended chan struct{}
}

// pause is why nothing is decoded, or nothing new is taken.
type pause int

const (
	running  pause = iota
	draining       // nothing new is taken
	frozen         // nothing is decoded
)

// sequence is one completion being decoded.
type sequence struct {
	ctx      context.Context
	prompt   []int32
	sampling policy.Sampling
	stream   *rand.Rand
	progress chan<- struct{} // see ask; nil: nobody looks
	row      policy.Row      // when it has ended, and with progress so far
	finish   string
	err      error
	done     chan struct{}
}

// How a completion ends.
const (
	stopped = "stop"
	length  = "length"
	aborted = "abort"
)

// Errors of requests that may come again.
var (
	errPaused = errors.New("the server is paused for a change of weights: ask again")
	errBusy   = errors.New("too many completions wait: ask again, or start more servers")
	errClosed = errors.New("the server is stopping")
)

// New serves the model of a Hugging Face folder.
func New(folder string, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	model, weights, tokenizer, err := policy.Load(folder)
	if err == nil && tokenizer == nil {
		err = fmt.Errorf("%s has no tokenizer.json: add the one that the model was trained with", folder)
	}
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Server{options: o, folder: folder, name: crand.Text()[:8], model: model, tokenizer: tokenizer, weights: weights,
		labels: []string{o.Label}, ended: make(chan struct{})}
	if o.Template == "" {
		s.chat, s.noChat = tokenizer.Chat()
	} else if s.chat, err = tokenizer.ChatBy(o.Template); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	s.changed.L = &s.mu
	s.active = make([]*sequence, s.options.Rows)
	go s.loop()
	return s, nil
}

// Close ends every request and the loop.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.ended
	if errors.Is(s.failed, errClosed) {
		return nil
	}
	return s.failed
}

// generate decodes what was asked for after a prompt, and returns it with the labels of the weights.
func (s *Server) generate(ctx context.Context, prompt []int32, a ask) ([]*sequence, []string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // if one cannot be decoded the others need not be
	list, err := s.start(ctx, prompt, a)
	if err != nil {
		return nil, nil, err
	}
	for _, q := range list {
		select {
		case <-q.done:
			if q.err != nil {
				return nil, nil, q.err
			}
		case <-ctx.Done():
			s.wake()
			return nil, nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return list, slices.Clone(s.labels), nil
}

// wake has the loop look for rows to free.
func (s *Server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// start begins to decode the completions of a prompt, whose streams are made of the seed.
func (s *Server) start(ctx context.Context, prompt []int32, a ask) ([]*sequence, error) {
	if !a.ignoreEOS {
		a.sampling.Stop = append(slices.Clone(a.sampling.Stop), s.tokenizer.EOS()...)
	}
	if err := s.check(prompt, a.n, a.sampling); err != nil {
		return nil, err
	}
	list := make([]*sequence, a.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.failed != nil:
		return nil, s.failed
	case s.paused == draining:
		return nil, errPaused
	case len(s.waiting)+a.n > s.options.MaxWaiting:
		return nil, errBusy
	}
	for i := range list {
		stream := rollout.Stream(s.options.Seed, "engine", s.count)
		if a.seed != nil {
			stream = rollout.Stream(uint64(*a.seed), "request", uint64(i))
		}
		s.count++
		list[i] = &sequence{ctx: ctx, prompt: prompt, sampling: a.sampling, stream: stream, progress: a.progress,
			done: make(chan struct{})}
	}
	s.waiting = append(s.waiting, list...)
	s.changed.Broadcast()
	return list, nil
}

// soFar returns what was generated of a sequence with progress, and whether it has ended.
func (s *Server) soFar(q *sequence) (tokens []int32, logprobs []float32, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-q.done:
		done, err = true, q.err
	default:
	}
	from := min(q.row.Prompt, len(q.row.Tokens))
	tokens, logprobs = q.row.Tokens[from:], q.row.Logprobs[from:]
	return tokens, logprobs, done, err
}

// end says that a sequence has ended. The mutex is held.
func (q *sequence) end() {
	close(q.done)
	q.tell()
}

// tell says that a sequence has more tokens, or has ended. The mutex is held.
func (q *sequence) tell() {
	if q.progress == nil {
		return
	}
	select {
	case q.progress <- struct{}{}:
	default: // nobody has looked since the last
	}
}

// check refuses what would fail in the middle of a batch.
func (s *Server) check(prompt []int32, n int, sampling policy.Sampling) error {
	c := s.model.Config()
	var p option.Problems
	p.Add(sampling.Validate())
	p.Check(n >= 1 && n <= s.options.MaxWaiting, "n", n, "1 to %d", s.options.MaxWaiting)
	p.Check(len(prompt) >= 1 && len(prompt) < c.MaxPositionEmbeddings, "prompt", fmt.Sprintf("%d tokens", len(prompt)),
		"1 to %d", c.MaxPositionEmbeddings-1)
	for i, t := range prompt {
		if t < 0 || int(t) >= c.VocabSize {
			p.Check(false, "prompt", fmt.Sprintf("token %d is %d", i, t), "0 to %d", c.VocabSize-1)
			break
		}
	}
	return p.Err()
}

// loop decodes, a position at a time, until the server closes.
func (s *Server) loop() {
	defer close(s.ended)
	g := s.model.StartIdle(s.options.Rows)
	defer g.Close()
	for {
		s.mu.Lock()
		for !s.closed && !s.work() {
			s.changed.Wait()
		}
		for _, command := range s.commands {
			command(g)
		}
		s.commands = nil
		err := s.place(g)
		if s.closed {
			err = errClosed
		}
		weights, paused := s.weights, s.paused
		s.mu.Unlock()
		if err == nil && paused != frozen {
			_, err = g.Continue(context.Background(), weights, 1)
		}
		s.mu.Lock()
		if err == nil {
			err = s.collect(g)
		}
		if err != nil {
			s.failed = err
			s.abort(g, err)
			s.mu.Unlock()
			return
		}
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

// do has the loop call a function between two positions, and waits for it.
func (s *Server) do(ctx context.Context, command func(*policy.Generation)) error {
	done := make(chan struct{})
	s.mu.Lock()
	s.commands = append(s.commands, func(g *policy.Generation) { command(g); close(done) })
	s.changed.Broadcast()
	s.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-s.ended:
		return s.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work reports whether there is something to decode, or a row to free.
func (s *Server) work() bool {
	if len(s.commands) > 0 {
		return true
	}
	for _, q := range s.active {
		if q != nil && (s.paused != frozen || q.ctx.Err() != nil) {
			return true
		}
	}
	return s.paused != frozen && len(s.waiting) > 0
}

// place frees the rows of requests that have ended and gives free rows to those that wait.
func (s *Server) place(g *policy.Generation) error {
	for i, q := range s.active {
		if q != nil && q.ctx.Err() != nil {
			if err := s.release(g, i, q, aborted, q.ctx.Err()); err != nil {
				return err
			}
		}
	}
	if s.paused == frozen {
		return nil
	}
	for i := range s.active {
		for s.active[i] == nil && len(s.waiting) > 0 {
			q := s.waiting[0]
			s.waiting = s.waiting[1:]
			err := q.ctx.Err()
			if err == nil {
				err = g.Replace(i, policy.Input{Tokens: q.prompt}, q.stream, q.sampling)
			}
			if err != nil {
				q.err = err
				q.end()
				continue
			}
			s.active[i] = q
		}
	}
	return nil
}

// collect answers the requests whose rows are done.
func (s *Server) collect(g *policy.Generation) error {
	for i, row := range g.Rows() {
		q := s.active[i]
		if q != nil && q.progress != nil {
			q.row = row
			q.tell()
		}
		if q == nil || !row.Done {
			continue
		}
		finish := stopped
		if row.Truncated {
			finish = length
		}
		q.row = row
		if err := s.release(g, i, q, finish, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) release(g *policy.Generation, row int, q *sequence, finish string, err error) error {
	q.finish, q.err = finish, err
	s.active[row] = nil
	q.end()
	return g.Release(row)
}

// abort ends all requests. Those in progress give what they have, unless there is an error.
func (s *Server) abort(g *policy.Generation, err error) error {
	for _, q := range s.waiting {
		q.finish, q.err = aborted, err
		q.end()
	}
	s.waiting = nil
	var all []error
	for i, q := range s.active {
		if q != nil {
			q.row = g.Rows()[i]
			all = append(all, s.release(g, i, q, aborted, err))
		}
	}
	return errors.Join(all...)
}

// Abort ends all requests, which answer with what they have so far.
func (s *Server) Abort(ctx context.Context) error {
	var failed error
	if err := s.do(ctx, func(g *policy.Generation) { failed = s.abort(g, nil) }); err != nil {
		return err // failed may still be written
	}
	return failed
}

// pauseFor pauses the server. With recompute, requests in progress compute their keys and values again when they go on.
func (s *Server) pauseFor(ctx context.Context, p pause, recompute bool) error {
	return s.do(ctx, func(g *policy.Generation) {
		if p != running && ctx.Err() != nil { // who asked is gone, and may have asked to go on since
			return
		}
		s.paused = p
		if recompute {
			g.Close()
		}
	})
}

// drain takes nothing new and waits until nothing is in progress.
func (s *Server) drain(ctx context.Context) error {
	if err := s.pauseFor(ctx, draining, false); err != nil {
		return err
	}
	for {
		idle := false
		if err := s.do(ctx, func(*policy.Generation) {
			idle = len(s.waiting) == 0 && !slices.ContainsFunc(s.active, func(q *sequence) bool { return q != nil })
		}); err != nil || idle {
			return err
		}
	}
}

// Load takes the weights of a folder, from the next position on, under a label. An empty label is that of the weights
// before.
func (s *Server) Load(ctx context.Context, folder, label string) error {
	read, err := hf.ReadFolder(folder)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(read.Config, s.model.Config()) {
		return fmt.Errorf("%s: its config.json is of another model than %s: want the same model's weights", folder,
			s.folder)
	}
	var flat [][]float32
	for _, spec := range read.Config.Specs() {
		flat = append(flat, read.Tensors[spec.Name].Data)
	}
	weights, err := s.model.NewWeights(0, flat)
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	return s.do(ctx, func(*policy.Generation) {
		if label == "" {
			label = s.label()
		}
		s.use(*weights, label)
	})
}

// Label names the weights from the next position on.
func (s *Server) Label(ctx context.Context, label string) error {
	return s.do(ctx, func(*policy.Generation) { s.use(*s.weights, label) })
}

func (s *Server) use(w policy.Weights, label string) {
	w.Version = rollout.Version(len(s.labels))
	s.weights, s.labels = &w, append(s.labels, label)
}

func (s *Server) label() string { return s.labels[len(s.labels)-1] }

// version returns the label of the weights now in use.
func (s *Server) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.label()
}
