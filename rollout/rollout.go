package rollout

// ID names a rollout within its table. IDs are given at insertion, start at 1 and are never reused.
type ID uint64

// Version counts the optimizer updates applied to the weights; 0 is the initial policy ([ER] §2).
type Version int32

// NoVersion marks the tokens that no policy produced: prompt, tool and environment tokens.
const NoVersion Version = -1

// Rollout is one sampled trajectory with everything that learning from it again needs.
//
// The per-token slices have one length L, the number of tokens with the prompt included; entry i
// speaks of token i. A rollout is immutable once it has been inserted into a table: tables,
// batches and snapshots share it by reference.
type Rollout struct {
	PromptID    string    // stable name of the prompt
	Tokens      []int32   // [L] prompt and completion(s)
	Mask        []uint8   // [L] 1 where the policy produced the token
	Logprobs    []float32 // [L] behaviour log-prob, natural log of softmax(logits/temperature) before top-p; 0 where Mask is 0
	Versions    []Version // [L] version that produced the token; NoVersion where Mask is 0
	Temperature float32   // of the sampling, > 0
	TopP        float32   // of the sampling, in (0, 1]
	Reward      float32
	Truncated   bool   // stopped by length, not by the policy
	Turns       []Turn // multi-turn rollouts; empty for a single turn

	Advantage   *float32  // given by the producer; nil: computed from the group at insertion
	Advantages  []float32 // [L] per token, optional
	Values      []float32 // [L] of a critic, optional
	RefLogprobs []float32 // [L] of a reference policy, optional
	Images      [][]byte
	Text        string // the completion as text, optional
	Meta        map[string]string

	// Extra is what the columns of the user's own hold for this rollout, as package wire writes it; opaque to everyone else.
	Extra []byte
}

// Turn is one exchange of a multi-turn rollout: tokens [Start, End) of it.
type Turn struct {
	Start, End int32
	Reward     float32
	Done       bool
}

// Group is the rollouts of one prompt that enter a table together; group-relative advantages are
// taken over them.
type Group struct {
	Rollouts []*Rollout
	Size     int // declared group size; 0: not declared. Another number of rollouts is refused (invariant 8).
}

// Version returns the least version among the tokens that the policy produced ([ER] §2), NoVersion
// if there are none.
func (r *Rollout) Version() Version { return r.Span().Least }

// Bytes returns the size of the payload: the contents of every field, without headers, pointers or
// the allocator's rounding. Capacities in bytes count it.
func (r *Rollout) Bytes() int64 {
	n := len(r.PromptID) + len(r.Text) + len(r.Extra) + len(r.Mask) + turnBytes*len(r.Turns) + scalarBytes
	n += 4 * (len(r.Tokens) + len(r.Logprobs) + len(r.Versions))
	n += 4 * (len(r.Advantages) + len(r.Values) + len(r.RefLogprobs))
	if r.Advantage != nil {
		n += 4
	}
	for _, image := range r.Images {
		n += len(image)
	}
	for k, v := range r.Meta {
		n += len(k) + len(v)
	}
	return int64(n)
}

const (
	scalarBytes = 4 + 4 + 4 + 1 // temperature, top_p, reward, truncated
	turnBytes   = 4 + 4 + 4 + 1 // start, end, reward, done
)
