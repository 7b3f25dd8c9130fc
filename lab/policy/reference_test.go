package policy

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math"

	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
)

// reference is the decoder again in plain float64 loops, one sequence at a time without a cache: an independent
// computation for the graph to agree with.
type reference struct {
	hf.Config
	weight map[string][]float32
}

func newReference(c hf.Config, w *Weights) (*reference, error) {
	flat, err := w.Flat()
	if err != nil {
		return nil, err
	}
	r := &reference{Config: c.WithDefaults(), weight: map[string][]float32{}}
	for i, p := range c.Specs() {
		r.weight[p.Name] = flat[i]
	}
	return r, nil
}

func (r *reference) linear(x []float64, name string) []float64 {
	w, b := r.weight[name+".weight"], r.weight[name+".bias"]
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += v * float64(w[o*len(x)+i])
		}
		if b != nil {
			y[o] += float64(b[o])
		}
	}
	return y
}

func (r *reference) norm(x []float64, name string) []float64 {
	var square float64
	for _, v := range x {
		square += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(square/float64(len(x))+r.RMSNormEps) * float64(r.weight[name][i])
	}
	return y
}

// project returns q or k of a normed state, before the rotary embedding.
func (r *reference) project(x []float64, at, part string) []float64 {
	y := r.linear(x, at+"self_attn."+part+"_proj")
	if r.ModelType == hf.Qwen3 {
		for h := 0; h < len(y); h += r.HeadDim {
			copy(y[h:], r.norm(y[h:h+r.HeadDim], at+"self_attn."+part+"_norm.weight"))
		}
	}
	return y
}

// wave returns the positions in which pair i of a head turns once: 2 pi theta^(2i/HeadDim), or Llama 3's of them.
func (r *reference) wave(i int) float64 {
	wave := 2 * math.Pi * math.Pow(r.RopeTheta, float64(2*i)/float64(r.HeadDim))
	s := r.RopeScaling
	if s.Factor == 0 {
		return wave
	}
	long := float64(s.OriginalMaxPositionEmbeddings) / s.LowFreqFactor
	short := float64(s.OriginalMaxPositionEmbeddings) / s.HighFreqFactor
	switch {
	case wave < short:
		return wave
	case wave > long:
		return wave * s.Factor
	}
	smooth := (float64(s.OriginalMaxPositionEmbeddings)/wave - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return 1 / ((1-smooth)/(wave*s.Factor) + smooth/wave)
}

// rotate turns the pairs (i, i + HeadDim/2) of every head by the angle of a position.
func (r *reference) rotate(x []float64, position int) []float64 {
	y, half := make([]float64, len(x)), r.HeadDim/2
	for h := 0; h < len(x); h += r.HeadDim {
		for i := range half {
			angle := 2 * math.Pi * float64(position) / r.wave(i)
			a, b := x[h+i], x[h+half+i]
			y[h+i] = a*math.Cos(angle) - b*math.Sin(angle)
			y[h+half+i] = b*math.Cos(angle) + a*math.Sin(angle)
		}
	}
	return y
}

// embed returns the embedding of a token.
func (r *reference) embed(token int32) []float64 {
	x := make([]float64, r.HiddenSize)
	for d := range x {
		x[d] = float64(r.weight["model.embed_tokens.weight"][int(token)*r.HiddenSize+d])
	}
	return x
}

// hidden returns the normed last states [L][Hidden].
func (r *reference) hidden(in Input) [][]float64 {
	states := r.embeddings(in)
	for l := range r.NumHiddenLayers {
		r.block(states, fmt.Sprintf("model.layers.%d.", l))
	}
	for i, x := range states {
		states[i] = r.norm(x, "model.norm.weight")
	}
	return states
}

// head returns the logits of a normed last state.
func (r *reference) head(x []float64) []float64 {
	if r.TieWordEmbeddings {
		return r.linear(x, "model.embed_tokens")
	}
	return r.linear(x, "lm_head")
}

// logits returns [L][Vocab].
func (r *reference) logits(tokens []int32) [][]float64 {
	var out [][]float64
	for _, x := range r.hidden(Input{Tokens: tokens}) {
		out = append(out, r.head(x))
	}
	return out
}

func (r *reference) block(states [][]float64, at string) {
	var keys, values [][]float64
	for t, x := range states {
		n := r.norm(x, at+"input_layernorm.weight")
		keys = append(keys, r.rotate(r.project(n, at, "k"), t))
		values = append(values, r.linear(n, at+"self_attn.v_proj"))
	}
	for t, x := range states {
		q := r.rotate(r.project(r.norm(x, at+"input_layernorm.weight"), at, "q"), t)
		mixed := make([]float64, len(q))
		for h := range r.NumAttentionHeads {
			r.attend(mixed[h*r.HeadDim:(h+1)*r.HeadDim], q[h*r.HeadDim:], keys[:t+1], values[:t+1],
				h/(r.NumAttentionHeads/r.NumKeyValueHeads))
		}
		for d, v := range r.linear(mixed, at+"self_attn.o_proj") {
			x[d] += v
		}
		n := r.norm(x, at+"post_attention_layernorm.weight")
		gate, up := r.linear(n, at+"mlp.gate_proj"), r.linear(n, at+"mlp.up_proj")
		for i, g := range gate {
			up[i] *= silu(g)
		}
		for d, v := range r.linear(up, at+"mlp.down_proj") {
			x[d] += v
		}
	}
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// attend adds the values of key head kv, weighted by the softmax of their scores, to out.
func (r *reference) attend(out, q []float64, keys, values [][]float64, kv int) {
	score := make([]float64, len(keys))
	var sum float64
	for s, k := range keys {
		for d := range r.HeadDim {
			score[s] += q[d] * k[kv*r.HeadDim+d]
		}
		score[s] = math.Exp(score[s] / math.Sqrt(float64(r.HeadDim)))
		sum += score[s]
	}
	for s, v := range values {
		for d := range r.HeadDim {
			out[d] += score[s] / sum * v[kv*r.HeadDim+d]
		}
	}
}

// score returns log-probs and entropies as Model.Score does.
func (r *reference) score(tokens []int32, mask rollout.IDLists, temperature float64) (logprobs, entropy []float64) {
	logprobs, entropy = []float64{0}, []float64{0}
	for i, logits := range r.logits(tokens)[:len(tokens)-1] {
		row := logits
		if mask.Len() > 0 && len(mask.At(i+1)) > 0 {
			row = nil
			for _, id := range mask.At(i + 1) {
				row = append(row, logits[id])
			}
		}
		var sum float64
		for _, l := range row {
			sum += math.Exp(l / temperature)
		}
		logprobs = append(logprobs, logits[tokens[i+1]]/temperature-math.Log(sum))
		var h float64
		for _, l := range row {
			lp := l/temperature - math.Log(sum)
			h -= math.Exp(lp) * lp
		}
		entropy = append(entropy, h)
	}
	return logprobs, entropy
}

// referenceCache decodes token by token in plain float64 loops. Every token may be passed through weights of its own;
// keys and values stay as the weights of their time made them.
type referenceCache struct {
	keys, values [][][]float64 // [layer][position]
}

// next appends a token under weights r and returns the logits that follow it.
func (c *referenceCache) next(r *reference, token int32) []float64 {
	return r.head(c.pass(r, r.embed(token)))
}

// pass appends an embedding, which it overwrites, under weights r and returns the normed last state.
func (c *referenceCache) pass(r *reference, x []float64) []float64 {
	if c.keys == nil {
		c.keys, c.values = make([][][]float64, r.NumHiddenLayers), make([][][]float64, r.NumHiddenLayers)
	}
	position := len(c.keys[0])
	for l := range r.NumHiddenLayers {
		c.layer(r, l, x, position)
	}
	return r.norm(x, "model.norm.weight")
}

// layer adds what block l makes of the position's state x to it.
func (c *referenceCache) layer(r *reference, l int, x []float64, position int) {
	at := fmt.Sprintf("model.layers.%d.", l)
	n := r.norm(x, at+"input_layernorm.weight")
	c.keys[l] = append(c.keys[l], r.rotate(r.project(n, at, "k"), position))
	c.values[l] = append(c.values[l], r.linear(n, at+"self_attn.v_proj"))
	q := r.rotate(r.project(n, at, "q"), position)
	mixed := make([]float64, len(q))
	for h := range r.NumAttentionHeads {
		r.attend(mixed[h*r.HeadDim:(h+1)*r.HeadDim], q[h*r.HeadDim:], c.keys[l], c.values[l],
			h/(r.NumAttentionHeads/r.NumKeyValueHeads))
	}
	for d, v := range r.linear(mixed, at+"self_attn.o_proj") {
		x[d] += v
	}
	n = r.norm(x, at+"post_attention_layernorm.weight")
	gate, up := r.linear(n, at+"mlp.gate_proj"), r.linear(n, at+"mlp.up_proj")
	for i, g := range gate {
		up[i] *= silu(g)
	}
	for d, v := range r.linear(up, at+"mlp.down_proj") {
		x[d] += v
	}
}

// embeddings returns those of tokens, image by image those of patches [L][Hidden].
func (r *reference) embeddings(in Input) [][]float64 {
	var list [][]float64
	shown := 0
	for i, t := range in.Tokens {
		if size := r.Vision.Tokens(); size > 0 && int(t) == r.Vision.ImageTokenID &&
			(in.Mask == nil || in.Mask[i] == 0) {
			list = append(list, r.look(in.Images[shown/size], shown%size))
			shown++
			continue
		}
		list = append(list, r.embed(t))
	}
	return list
}

// look returns the embedding of patch n of a picture.
func (r *reference) look(file []byte, n int) []float64 {
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		panic(err)
	}
	side := r.Vision.PatchSize
	across := r.Vision.ImageSize / side
	var x []float64
	for y := n / across * side; y < (n/across+1)*side; y++ {
		for left := n % across * side; left < (n%across+1)*side; left++ {
			red, green, blue, _ := picture.At(left, y).RGBA()
			for _, v := range []uint32{red, green, blue} {
				x = append(x, 2*float64(v)/0xffff-1)
			}
		}
	}
	x = r.linear(x, "vision_tower.patch_embedding")
	for d := range x {
		x[d] += float64(r.weight["vision_tower.position_embedding.weight"][n*len(x)+d])
	}
	x = r.linear(x, "multi_modal_projector.linear_1")
	for d, v := range x {
		x[d] = silu(v)
	}
	return r.linear(x, "multi_modal_projector.linear_2")
}

// picture returns a PNG, a square of random opaque pixels.
func picture(side int, random func() uint8) []byte {
	p := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range p.Pix {
		p.Pix[i] = random()
		if i%4 == 3 {
			p.Pix[i] = 255
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		panic(err)
	}
	return b.Bytes()
}
