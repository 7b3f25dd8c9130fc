package policy

import (
	"bytes"
	"context"
	"image"
	"image/gif"
	"image/png"
	"math"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/reprise-rl/reprise/advantage"
	"github.com/reprise-rl/reprise/lab/objective"
	"github.com/reprise-rl/reprise/rollout"
)

func TestScoresOfImagesAgreeWithThePlainComputation(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 141)
	ref, err := newReference(c, w)
	if err != nil {
		t.Fatal(err)
	}
	rng := rollout.Stream(142, "test", 0)
	sequences := []Input{randomInput(c, rng, 7, 2), randomInput(c, rng, 9, 0), randomInput(c, rng, 2, 1)}
	own := randomInput(c, rng, 3, 1) // behind which the policy itself writes the token of a patch
	own.Tokens = append(own.Tokens, int32(c.Vision.ImageTokenID), 5)
	own.Mask = make([]uint8, len(own.Tokens))
	own.Mask[len(own.Tokens)-2] = 1
	sequences = append(sequences, own)
	scores, err := m.Score(context.Background(), w, sequences, 0.7)
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range sequences {
		hidden := ref.hidden(in)
		for j := 1; j < len(in.Tokens); j++ {
			near(t, "log-prob", scores[i].Logprobs[j], logSoftmax(ref.head(hidden[j-1]), 0.7)[in.Tokens[j]], 2e-5)
			near(t, "value", scores[i].Values[j], ref.linear(hidden[j-1], "v_head.summary")[0], 2e-5)
		}
		if scores[i].Values[0] != 0 {
			t.Errorf("the value before the first token is %v, want 0", scores[i].Values[0])
		}
	}
}

func TestAnotherImageGivesOtherLogprobs(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 143)
	rng := rollout.Stream(144, "test", 0)
	one := randomInput(c, rng, 4, 2)
	other, swapped := one, one
	other.Images = [][]byte{one.Images[0], picture(6, func() uint8 { return 77 })}
	swapped.Images = [][]byte{one.Images[1], one.Images[0]}
	scores, err := m.Score(context.Background(), w, []Input{one, other, swapped, one}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, differs := range []bool{false, true, true, false} {
		worst := 0.0
		for j, l := range scores[i].Logprobs {
			worst = max(worst, math.Abs(float64(l-scores[0].Logprobs[j])))
		}
		if (worst > 1e-3) != differs {
			t.Errorf("sequence %d: log-probs are within %g of the first one's", i, worst)
		}
	}
	for j := range 5 { // the first image's tokens and what follows the first patch of the second see no difference yet
		if scores[1].Logprobs[j] != scores[0].Logprobs[j] {
			t.Errorf("token %d sees a later picture", j)
		}
	}
}

// Paletted, grey and opaque pictures of the same colours are the same patches.
func TestPatchesDependOnColoursNotOnThePNGFormat(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	square := image.NewRGBA(image.Rect(0, 0, 6, 6))
	grey := image.NewGray(image.Rect(0, 0, 6, 6))
	for i := range grey.Pix {
		grey.Pix[i] = uint8(7 * i)
		square.Pix[4*i], square.Pix[4*i+1], square.Pix[4*i+2], square.Pix[4*i+3] = grey.Pix[i], grey.Pix[i],
			grey.Pix[i], 255
	}
	var patches [2][]float32
	for i, p := range []image.Image{square, grey} {
		s := m.newImageInputs(1, 6)
		if err := s.add(0, 1, []int32{22, 22, 22, 22, 3}, nil, [][]byte{encoded(t, p)}); err != nil {
			t.Fatal(err)
		}
		patches[i] = s.patches
		for at, want := range []int32{-1, 0, 1, 2, 3, -1} {
			if s.patch[at] != want {
				t.Errorf("place %d is %d, want %d", at, s.patch[at], want)
			}
		}
	}
	width := c.Vision.PatchValues()
	for i, v := range patches[0] {
		if patches[1][i] != v {
			t.Fatalf("value %d is %v of a coloured and %v of a grey picture", i, v, patches[1][i])
		}
	}
	// The second patch is the right half of the upper half: its second pixel is at (4, 0), its fourth at (3, 1).
	for pixel, at := range map[int]int{0: 3, 1: 4, 3: 9, 8: 17} {
		if got, want := patches[0][2*width+3*pixel], float32(7*at)/127.5-1; got != want {
			t.Errorf("pixel %d of the second patch is %v, want %v", pixel, got, want)
		}
	}
}

func encoded(t *testing.T, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImagesThatDoNotFitAreRefused(t *testing.T) {
	m, blind := newTestModel(t, withTower()), newTestModel(t, architectures()["llama"])
	w := randomWeights(t, m, 145)
	good, wide := picture(6, func() uint8 { return 9 }), encoded(t, image.NewGray(image.Rect(0, 0, 7, 6)))
	var animated bytes.Buffer
	if err := gif.Encode(&animated, image.NewGray(image.Rect(0, 0, 6, 6)), nil); err != nil {
		t.Fatal(err)
	}
	run := []int32{1, 22, 22, 22, 22, 2}
	for _, tc := range []struct {
		m    *Model
		in   Input
		want string
	}{
		{m, Input{Tokens: run}, "row 0: 4 image tokens for 0 images: want 4 for each"},
		{m, Input{Tokens: run, Images: [][]byte{good, good}}, "4 image tokens for 2 images: want 4 for each"},
		{m, Input{Tokens: run[:4], Images: [][]byte{good}}, "3 image tokens for 1 images: want 4 for each"},
		{m, Input{Tokens: run, Images: [][]byte{wide}}, "image 0: 7 x 6 pixels: want 6 x 6, the tower's image_size"},
		{m, Input{Tokens: run, Images: [][]byte{animated.Bytes()}}, "image 0: want a PNG"},
		{m, Input{Tokens: run, Images: [][]byte{nil}}, "image 0: want a PNG"},
		{blind, Input{Tokens: []int32{1, 2}, Images: [][]byte{good}}, "1 images for a model without a vision tower: " +
			"give it policy.vision, or a task without images"},
		// the header alone is well
		{m, Input{Tokens: run, Images: [][]byte{good[:len(good)-30]}}, "image 0: want a PNG"},
	} {
		_, scored := tc.m.Score(context.Background(), w, []Input{tc.in}, 1)
		g, generated := tc.m.Start([]Input{tc.in}, nil, Sampling{MaxTokens: 2})
		if generated == nil {
			_, generated = g.Continue(context.Background(), w, 0)
		}
		for _, err := range []error{scored, generated} {
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "row 0") {
				t.Errorf("%v: want %q of row 0", err, tc.want)
			}
		}
	}
	masked := Input{Tokens: []int32{1, 2}, Mask: []uint8{0}}
	if _, err := m.Score(context.Background(), w, []Input{masked}, 1); err == nil ||
		!strings.Contains(err.Error(), "a mask of 1 for 2 tokens") {
		t.Errorf("a mask too short: %v", err)
	}
}

// The gradient of a sequence's log-prob reaches every parameter of the tower, and is that of finite differences of the
// plain computation.
func TestGradientsReachTheTower(t *testing.T) {
	c := withTower()
	m := newTestModel(t, c)
	w := randomWeights(t, m, 147)
	ref, err := newReference(c, w)
	if err != nil {
		t.Fatal(err)
	}
	rng := rollout.Stream(148, "test", 0)
	in := randomInput(c, rng, 5, 2)
	seen := m.newImageInputs(1, len(in.Tokens))
	if err := seen.add(0, 0, in.Tokens, nil, in.Images); err != nil {
		t.Fatal(err)
	}
	specs := c.Specs()
	gradient, err := m.newProgram("test", func(nodes []*Node) []*Node {
		d, rest := m.split(nodes)
		return Gradient(ReduceAllSum(d.score(rest[0], rest[1], rest[2:]).logprobs),
			nodes[:len(specs)]...)
	})
	if err != nil {
		t.Fatal(err)
	}
	args := w.args([][]int32{in.Tokens}, []float32{1})
	out, err := gradient.call(dims{rows: 1, length: len(in.Tokens)}, append(args, seen.args()...))
	if err != nil {
		t.Fatal(err)
	}
	grads, err := copyAll(out)
	if err != nil {
		t.Fatal(err)
	}
	total := func() float64 {
		var sum float64
		hidden := ref.hidden(in)
		for j := 1; j < len(in.Tokens); j++ {
			sum += logSoftmax(ref.head(hidden[j-1]), 1)[in.Tokens[j]]
		}
		return sum
	}
	checked := 0
	for i, s := range specs {
		if !strings.HasPrefix(s.Name, "vision_tower.") && !strings.HasPrefix(s.Name, "multi_modal_projector.") {
			continue
		}
		checked++
		largest := 0.0
		for range 6 {
			at, values := rng.IntN(size(s.Shape)), ref.weight[s.Name]
			kept := values[at]
			const h = 1.0 / 1024
			values[at] = kept + h
			up, upper := values[at], total()
			values[at] = kept - h
			down, lower := values[at], total()
			values[at] = kept
			want := (upper - lower) / float64(up-down)
			near(t, s.Name, grads[i][at], want, 2e-3*max(1, math.Abs(want)))
			largest = max(largest, math.Abs(want))
		}
		if largest < 1e-3 {
			t.Errorf("%s: gradients up to %g only: the test shows nothing", s.Name, largest)
		}
	}
	if checked != 7 {
		t.Errorf("%d parameters of the tower were checked, want 7", checked)
	}
}

// FuzzImages checks that no file panics, and that what is taken becomes patches.
func FuzzImages(f *testing.F) {
	m, err := NewModel(withTower())
	if err != nil {
		f.Fatal(err)
	}
	good := picture(6, func() uint8 { return 9 })
	f.Add(good)
	f.Add(picture(7, func() uint8 { return 9 }))
	f.Add(good[:40])
	f.Add([]byte("GIF89a"))
	f.Fuzz(func(t *testing.T, file []byte) {
		tower := m.config.Vision
		patches, err := m.newImageInputs(1, tower.Tokens()).decode(file)
		if err != nil {
			return
		}
		if checkHeader(file, tower.ImageSize) != nil || len(patches) != tower.Tokens()*tower.PatchValues() {
			t.Fatalf("%d values of a picture that another check refuses, or of another size", len(patches))
		}
		for _, v := range patches {
			if !(v >= -1 && v <= 1) {
				t.Fatalf("a value is %v", v)
			}
		}
	})
}

// imageBatch makes rollouts of images, text and four tokens of the policy, the second of which may be the token that
// stands for a patch.
func imageBatch(m *Model, seed uint64, n int) *rollout.Batch {
	rng, b := rollout.Stream(seed, "test/images", 0), &rollout.Batch{}
	for i := range n {
		in := randomInput(m.config, rng, 1+rng.IntN(4), 1+i%2)
		r := &rollout.Rollout{Tokens: in.Tokens, Images: in.Images, Temperature: 1.1, Reward: rng.Float32()}
		r.Mask = make([]uint8, len(in.Tokens), len(in.Tokens)+4)
		r.Logprobs = make([]float32, len(in.Tokens), len(in.Tokens)+4)
		for k := range 4 {
			token := rng.Int32N(int32(m.config.VocabSize))
			if k == 1 && i == 0 {
				token = int32(m.config.Vision.ImageTokenID)
			}
			r.Tokens, r.Mask, r.Logprobs = append(r.Tokens, token), append(r.Mask, 1),
				append(r.Logprobs, -2-rng.Float32())
		}
		b.Draws = append(b.Draws, rollout.Draw{Rollout: r, Weight: 0.5 + rng.Float32(), Advantage: 2*rng.Float32() - 1,
			GroupStd: 1})
	}
	return b
}

// The losses of all kinds of learners, so that forward passes before the gradient see the images too.
func TestALearnersGradientsReachTheTower(t *testing.T) {
	m := newTestModel(t, withTower())
	w := randomWeights(t, m, 40)
	for name, o := range map[string]Learning{
		"grpo": {Objective: objective.GRPO{}},
		"ppo": {Objective: objective.PPO{}, Advantage: advantage.Critic,
			PassElements: 2 * 16 * m.config.VocabSize},
		"grpo_off": {Objective: objective.OffPolicyGRPO{RPrime: objective.RPrimeExact, KLCoef: 0.3}, Updates: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o.Optimizer = Adam{LearningRate: 2e-3, ClipNorm: -1}
			l := newTestLearner(t, m, w, o)
			step(t, l, imageBatch(m, 41, 5))
			batch := imageBatch(m, 41, 5)
			shards, before := mustPrepare(t, l, []*rollout.Batch{batch}), state(t, l)
			ref, err := newReference(m.config, l.Weights())
			if err != nil {
				t.Fatal(err)
			}
			near(t, "loss", float32(step(t, l, batch)["loss"]), plainLoss(ref, o.Objective, shards), 1e-4)
			after, rng, largest := state(t, l), rollout.Stream(42, "test/differences", 0), 0.0
			for i, s := range m.config.Specs() {
				if !strings.HasPrefix(s.Name, "vision_tower.") && !strings.HasPrefix(s.Name, "multi_modal_projector.") {
					continue
				}
				at, values := rng.IntN(size(s.Shape)), ref.weight[s.Name]
				kept := values[at]
				const h = 1.0 / 65536
				values[at] = kept + h
				up, high := plainLoss(ref, o.Objective, shards), values[at]
				values[at] = kept - h
				down, low := plainLoss(ref, o.Objective, shards), values[at]
				values[at] = kept
				want := (up - down) / (float64(high) - float64(low))
				got := (float64(after.First[i][at]) - 0.9*float64(before.First[i][at])) / 0.1
				if math.Abs(got-want) > 3e-3*max(math.Abs(want), 0.02) {
					t.Errorf("%s[%d]: gradient %v, finite differences say %v", s.Name, at, got, want)
				}
				largest = max(largest, math.Abs(want))
			}
			if largest < 1e-3 {
				t.Errorf("the largest gradient of the tower is %g: nothing was tested", largest)
			}
		})
	}
}

// Two pictures, a token for each: without withTower them nothing is better than a guess, log 2.
func TestALearnerLearnsFromImages(t *testing.T) {
	m := newTestModel(t, withTower())
	w, err := m.Initial(43)
	if err != nil {
		t.Fatal(err)
	}
	batch := &rollout.Batch{}
	for i := range 8 {
		shown := uint8(250 * (i % 2))
		r := &rollout.Rollout{Temperature: 1,
			Images: [][]byte{picture(m.config.Vision.ImageSize, func() uint8 { return shown })}}
		for range m.config.Vision.Tokens() {
			r.Tokens = append(r.Tokens, int32(m.config.Vision.ImageTokenID))
		}
		r.Tokens = append(r.Tokens, 3, int32(5+i%2))
		r.Mask = make([]uint8, len(r.Tokens))
		r.Mask[len(r.Tokens)-1] = 1
		r.Logprobs = make([]float32, len(r.Tokens))
		batch.Draws = append(batch.Draws, rollout.Draw{Rollout: r, Weight: 1})
	}
	l := newTestLearner(t, m, w, Learning{Objective: objective.SFT{}})
	var nll float64
	for range 60 {
		nll = step(t, l, batch)["nll"]
	}
	if nll > 0.1*math.Ln2 {
		t.Errorf("-log pi of the pictures' tokens is %v, want less than a tenth of log 2", nll)
	}
}

func TestARolloutWhoseImagesDoNotFitIsRefusedByItsID(t *testing.T) {
	m := newTestModel(t, withTower())
	w := randomWeights(t, m, 44)
	l := newTestLearner(t, m, w, Learning{Objective: objective.GRPO{}})
	batch := imageBatch(m, 45, 3)
	batch.Draws[2].ID = 77
	batch.Draws[2].Rollout.Images = nil
	if _, err := l.Step(context.Background(), []*rollout.Batch{batch}); err == nil ||
		!strings.Contains(err.Error(), "rollout 77: token 0 is an image's") {
		t.Errorf("error %v", err)
	}
}

// The softmax of a token with a list is over its ids.
func TestScoresOfASamplingMaskAreOverItsIDs(t *testing.T) {
	c := architectures()["tied"]
	m := newTestModel(t, c)
	w := randomWeights(t, m, 51)
	rng := rollout.Stream(52, "test", 0)
	masked, plain := Input{Tokens: randomTokens(rng, 12, c.VocabSize)}, Input{Tokens: randomTokens(rng, 7, c.VocabSize)}
	masked.SamplingMask = randomMask(c, 53, masked.Tokens)
	scores, err := m.Score(context.Background(), w, []Input{masked, plain, {Tokens: masked.Tokens}}, 0.8)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := newReference(c, w)
	if err != nil {
		t.Fatal(err)
	}
	want, entropy := ref.score(masked.Tokens, masked.SamplingMask, 0.8)
	whole, _ := ref.score(masked.Tokens, rollout.IDLists{}, 0.8)
	for j := range masked.Tokens {
		near(t, "log-prob", scores[0].Logprobs[j], want[j], 2e-5)
		near(t, "entropy", scores[0].Entropy[j], entropy[j], 2e-5)
		near(t, "log-prob without a mask", scores[2].Logprobs[j], whole[j], 2e-5)
	}
	for j, alone := range logprobs(t, m, w, plain.Tokens, 0.8) {
		near(t, "log-prob beside a masked row", scores[1].Logprobs[j], float64(alone), 1e-5)
	}
	for want, lists := range map[string]rollout.IDLists{
		"a sampling mask of 1 lists for 7 tokens": {Ends: []int32{1}, IDs: []int32{1}},
		"token 6 has id 9999: the vocabulary is":  {Ends: []int32{0, 0, 0, 0, 0, 0, 1}, IDs: []int32{9999}},
	} {
		bad := plain
		bad.SamplingMask = lists
		if _, err := m.Score(context.Background(), w, []Input{bad}, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
