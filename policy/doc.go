// Package policy is a Llama-family language model to train on: it generates, scores and learns.
//
// A [Model] is the compiled programs of one architecture (rotary embeddings, grouped-query attention, SwiGLU,
// RMSNorm; Llama, SmolLM2, TinyStories and Qwen2 checkpoints fit). [Weights] are immutable and passed to the programs as
// inputs: workers with different versions share one compilation per shape. [Model.Start] begins a [Generation], which
// decodes prompts of different lengths in one batch with a key-value cache, chunk by chunk if weights are to change on the
// way, and turn by turn where an environment answers ([Generation.Extend]): the cache stays, and only what is new is read. A
// model with a tower reads images among the tokens of an [Input]; one with a value head says what reward it expects.
// [Model.Score] gives log-probs and entropies; a [Learner] takes optimizer steps with a loss of package objective,
// for which it asks the critic, the policy at the start of the batch and a reference policy where [Learning] says so, and says
// what it [Measured] of each draw. [Load] and [Model.Save] read and write Hugging Face folders (package hf), and
// [Model.WithValueHead] gives a model that was loaded a critic.
//
// The same inputs give the same bits whatever GOMAXPROCS is: the backend runs each program's operations in sequence, and
// several programs at once. Everything about gomlx stays behind this package.
package policy
