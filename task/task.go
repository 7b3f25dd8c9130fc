package task

// Prompt is one problem that a policy is asked to answer, or the beginning of an episode.
type Prompt struct {
	ID     string // stable, unique within the task
	Text   string
	Image  []byte // PNG, shown before Text; nil: none
	Answer string // reference answer, in the form the task's Verify expects; may be empty
	State  string // of an Environment: the state that its episodes begin in, in a notation of its own
}

// Verdict is what a verifier says of one response.
type Verdict struct {
	Reward    float32
	Correct   bool
	Extracted string // the answer found in the response; empty: none found
}

// Task gives prompts. It is a [Verifier] too if one response answers a prompt, or an [Environment] if the policy acts for
// several turns; never both. Its methods are pure functions of the task's configuration and their arguments, and safe for
// concurrent use.
type Task interface {
	// Train returns the i-th training prompt; the sequence does not end.
	Train(i uint64) Prompt
	// HeldOut returns the evaluation prompts, disjoint from every training prompt.
	HeldOut() []Prompt
}

// Demonstrator is a task of one turn that can show how a prompt is answered, for supervised warm-up. Environments have an
// [Expert] instead.
type Demonstrator interface {
	// Demonstrate returns a response that earns the full reward, without the end-of-sequence token.
	Demonstrate(p Prompt) string
}

// Alphabet is a Task small enough to be written in a character vocabulary of its own.
type Alphabet interface {
	// Characters returns every character that prompts, answers and an environment's observations use, each once.
	Characters() string
}

// Seeing is a Task whose prompts, or observations, come with images.
type Seeing interface {
	// ImageSize returns the pixels of a side: all its images are squares of one size. 0: this configuration has no images.
	ImageSize() int
}
