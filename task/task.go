package task

// Prompt is one problem that a policy is asked to answer.
type Prompt struct {
	ID     string // stable, unique within the task
	Text   string
	Answer string // reference answer, in the form the task's Verify expects; may be empty
}

// Verdict is what a verifier says of one response.
type Verdict struct {
	Reward    float32
	Correct   bool
	Extracted string // the answer found in the response; empty: none found
}

// Task gives prompts and rewards responses. Its methods are pure functions of the task's
// configuration and their arguments, and safe for concurrent use.
type Task interface {
	// Train returns the i-th training prompt; the sequence does not end.
	Train(i uint64) Prompt
	// HeldOut returns the evaluation prompts, disjoint from every training prompt.
	HeldOut() []Prompt
	// Verify rewards a response to a prompt.
	Verify(p Prompt, response string) Verdict
}

// Demonstrator is a Task that can show how a prompt is answered, for supervised warm-up.
type Demonstrator interface {
	// Demonstrate returns a response that earns the full reward, without the end-of-sequence token.
	Demonstrate(p Prompt) string
}

// Alphabet is a Task small enough to be written in a character vocabulary of its own.
type Alphabet interface {
	// Characters returns every character that prompts and answers use, each once.
	Characters() string
}
