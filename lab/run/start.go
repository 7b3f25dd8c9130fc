package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/reprise-rl/reprise/internal/limits"
	"github.com/reprise-rl/reprise/lab/policy"
	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Start is where a run begins: a policy, its tokenizer and its weights. The arms of a comparison share one.
type Start struct {
	textModel
	weights *policy.Weights
	done    func() error // ends the use of the task that began with the warm-up, once; nil: there was none
}

// Close ends the program that gives the rewards, unless a run uses it. Further calls do nothing. Runs may still begin
// from the start.
func (s *Start) Close() error {
	if s.done == nil {
		return nil
	}
	return s.done()
}

// Begin makes the policy of a valid configuration, from a folder or from scratch, and warms it up. If a program gives
// the rewards, it may keep running until [Train] has ended or the caller calls [Start.Close].
func Begin(ctx context.Context, c Config, report func(step int, loss float64)) (*Start, error) {
	c.Seed = c.startSeed()
	t, err := c.newTask()
	if err != nil {
		return nil, err
	}
	var s *Start
	if c.Policy.Init != "" {
		if s, err = loadStart(c.Policy.Init, t); err != nil {
			err = fmt.Errorf("policy.init: %w", err)
		}
	} else {
		s, err = newStart(c, t)
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkImages(t); err != nil {
		return nil, fmt.Errorf("policy.init: %s: %w", c.Policy.Init, err)
	}
	if t, _, err = s.fit(c, t); err != nil {
		return nil, err
	}
	if c.needsCritic() {
		if s.model, s.weights, err = s.model.WithValueHead(s.weights); err != nil {
			return nil, err
		}
	}
	if c.Warmup.Steps == 0 {
		return s, nil
	}
	s.done = sync.OnceValue(task.Open(t))
	if err := s.warmUp(ctx, c, t, report); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// startSeed returns the seed of all that [Begin] makes.
func (c Config) startSeed() uint64 { return cmp.Or(uint64(c.Warmup.Seed), c.Seed) }

// loadStart reads a model folder for a task.
func loadStart(dir string, t task.Task) (*Start, error) {
	model, weights, tokenizer, err := policy.Load(dir)
	if err == nil && tokenizer == nil {
		err = fmt.Errorf("%s has no tokenizer.json: add the one the model was trained with", dir)
	}
	if err != nil {
		return nil, err
	}
	m, err := newTextModel(model, tokenizer, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Start{m, weights, nil}, nil
}

// newStart makes random weights for a task with its own characters. A task with images gets an image token and a vision
// tower.
func newStart(c Config, t task.Task) (*Start, error) {
	var special []string
	size := imageSize(t)
	if size > 0 {
		special = []string{hf.ImageToken}
	}
	tokenizer, err := hf.NewCharTokenizer(t.(task.Alphabet).Characters(), special...)
	if err != nil {
		return nil, err
	}
	p := c.Policy
	shape := hf.Config{
		ModelType: hf.Llama, VocabSize: tokenizer.VocabSize(), HiddenSize: p.Hidden, IntermediateSize: p.Intermediate,
		NumHiddenLayers: p.Layers, NumAttentionHeads: p.Heads, NumKeyValueHeads: p.KVHeads,
		MaxPositionEmbeddings: p.Positions,
		TieWordEmbeddings:     p.Tied, BOSTokenID: tokenizer.BOS(), PadTokenID: tokenizer.Pad(),
	}
	if size > 0 {
		shape.Vision = hf.Vision{ // the image token is the last of the vocabulary
			ImageSize: size, PatchSize: p.Vision.Patch, HiddenSize: p.Vision.Hidden,
			ImageTokenID: tokenizer.VocabSize() - 1,
		}
	}
	for _, id := range tokenizer.EOS() {
		shape.EOSTokenIDs = append(shape.EOSTokenIDs, int(id))
	}
	model, err := policy.NewModel(shape)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	weights, err := model.Initial(c.Seed)
	if err != nil {
		return nil, err
	}
	m, err := newTextModel(model, tokenizer, t)
	return &Start{m, weights, nil}, err
}

// needsCritic reports whether the objective learns from a value head.
func (c Config) needsCritic() bool { return c.Learner.Objective == "ppo" }

// checkImages refuses a policy whose vision tower does not fit the task's images.
func (s *Start) checkImages(t task.Task) error {
	if have, want := s.model.Config().Vision.ImageSize, imageSize(t); want > 0 && have != want {
		return fmt.Errorf("want a model with a vision tower for images of %d pixels a side, as the task has; "+
			"its tower is for %d (0: it has none)", want, have)
	}
	return nil
}

// imageSize returns the pixels of a side of a task's images, 0 if it has none.
func imageSize(t task.Task) int {
	if s, ok := t.(task.Seeing); ok {
		return s.ImageSize()
	}
	return 0
}

// validate checks the shape of a new policy. A folder brings its own.
func (p Policy) validate() error {
	var found option.Problems
	if p.Init != "" {
		found.Check(p.Vision.Patch == 0, "policy.vision.patch", p.Vision.Patch,
			"0 with policy.init, whose folder brings its tower")
		return found.Err()
	}
	for _, f := range []struct {
		key   string
		value int
	}{
		{"hidden", p.Hidden}, {"intermediate", p.Intermediate}, {"layers", p.Layers}, {"heads", p.Heads}, {"kv_heads",
			p.KVHeads},
	} {
		found.Check(f.value >= 1, "policy."+f.key, f.value, "1 or more")
	}
	found.Check(p.Positions >= 2, "policy.positions", p.Positions, "2 or more: room for a prompt and a completion")
	if p.Heads >= 1 {
		found.Check(p.Hidden%p.Heads == 0 && p.Hidden/p.Heads%2 == 0, "policy.heads", p.Heads,
			"a divisor of policy.hidden (%d) that leaves each head an even width", p.Hidden)
		found.Check(p.KVHeads < 1 || p.Heads%p.KVHeads == 0, "policy.kv_heads", p.KVHeads,
			"a divisor of policy.heads (%d)",
			p.Heads)
	}
	if len(found) == 0 {
		parameters, most := p.parameters(), float64(limits.Memory())
		found.Check(16*parameters <= most, "policy.hidden", p.Hidden, "a policy that fits into %.1f GB: this one has "+
			"%.3g parameters, which take %.3g GB with their gradients and Adam's moments",
			most/1e9, parameters, 16*parameters/1e9)
	}
	return found.Err()
}

// parameters returns about how many parameters the blocks have; a float64 does not overflow.
func (p Policy) parameters() float64 {
	hidden, kv := float64(p.Hidden), float64(p.Hidden/p.Heads*p.KVHeads)
	return float64(p.Layers) * hidden * (2*hidden + 2*kv + 3*float64(p.Intermediate))
}

// validateFor checks a new policy against the task's alphabet and images.
func (p Policy) validateFor(t task.Task, name string) error {
	var found option.Problems
	size, v := imageSize(t), p.Vision
	found.Check(!task.Chats(t) || size == 0, "task.format", task.Chat,
		"%s: there is no chat template for the images of task %s", task.Words, name)
	if p.Init != "" {
		return found.Err()
	}
	if f, ok := t.(task.FewShot); ok {
		found.Check(f.Examples() == 0, "task.examples", f.Examples(), "0: a policy with random weights has learned no "+
			"texts to continue; or set policy.init to the folder of a pretrained model")
	}
	found.Check(!task.Chats(t), "task.format", task.Chat, "%s or %s: a policy with random weights has no chat template; "+
		"or set policy.init to the folder of an instruct model", task.Terse, task.Words)
	_, hasAlphabet := t.(task.Alphabet)
	found.Check(hasAlphabet, "policy.init", "empty", "the folder of a pretrained model: task %s has no small alphabet",
		name)
	if size == 0 {
		found.Check(v.Patch == 0, "policy.vision.patch", v.Patch, "0: task %s has no images", name)
		return found.Err()
	}
	found.Check(v.Patch >= 1 && size%v.Patch == 0, "policy.vision.patch", v.Patch,
		"a divisor of %d, the pixels of a side of the images of task %s", size, name)
	found.Check(v.Hidden >= 1, "policy.vision.hidden", v.Hidden, "1 or more")
	return found.Err()
}

// Starts shares warm starts among runs that begin alike: the first to ask makes the start, the others wait for it. A
// start is dropped when all runs that were expected to use it have been released. The zero value is ready to use. It is
// safe for concurrent use.
type Starts struct {
	mu     sync.Mutex
	shared map[string]*sharedStart // by startKey
}

// sharedStart is the start of all runs with one key.
type sharedStart struct {
	runs  int           // expected and not released
	token chan struct{} // held by whoever makes the start
	start *Start        // nil: not made yet
}

// Expect announces a run of a valid configuration. It may ask for its start and ends with [Starts.Release].
func (s *Starts) Expect(c Config) error {
	key, err := c.startKey()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		s.shared = make(map[string]*sharedStart)
	}
	k := s.shared[key]
	if k == nil {
		k = &sharedStart{token: make(chan struct{}, 1)}
		k.token <- struct{}{}
		s.shared[key] = k
	}
	k.runs++
	return nil
}

// Release ends an expected run. The start is dropped with the last.
func (s *Starts) Release(c Config) error {
	key, err := c.startKey()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.shared[key]; k != nil {
		if k.runs--; k.runs <= 0 {
			delete(s.shared, key)
		}
	}
	return nil
}

// Begin is [Begin] for an expected run: runs that begin alike get the same start. The caller that makes it reports its
// warm-up. After an error the next caller tries again.
func (s *Starts) Begin(ctx context.Context, c Config, report func(step int, loss float64)) (*Start, error) {
	key, err := c.startKey()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	k := s.shared[key]
	s.mu.Unlock()
	if k == nil {
		return Begin(ctx, c, report)
	}
	select {
	case <-k.token:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { k.token <- struct{}{} }()
	if k.start == nil {
		if k.start, err = Begin(ctx, c, report); err != nil {
			k.start = nil
		}
	}
	return k.start, err
}

// startKey returns a text that is the same for configurations whose runs begin alike: all that [Begin] reads.
func (c Config) startKey() (string, error) {
	resolved, err := c.resolved()
	if err != nil {
		return "", err
	}
	read := struct {
		Seed      uint64
		Task      map[string]any
		Own       uintptr // identifies one of the program's own tasks; 0: a task of the catalog
		Policy    Policy
		Critic    bool
		Warmup    Warmup
		MaxTokens int
	}{c.startSeed(), resolved.Task, 0, c.Policy, c.needsCritic(), c.Warmup, c.Generate.MaxTokens}
	if c.own != nil {
		read.Own = reflect.ValueOf(c.tasks).Pointer()
	}
	read.Warmup.Seed = 0 // it is in Seed
	text, err := json.Marshal(read)
	if err != nil {
		return "", fmt.Errorf("task: %w", err)
	}
	return string(text), nil
}
