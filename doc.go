// Package reprise is experience replay for reinforcement learning of language models.
//
// The packages below it are the product: replay keeps rollouts and decides which to learn from again, pipeline says
// which worker and trainer does what when, policy is a Llama-family model to try it on, run ties them into one
// configured training run, and cmd/reprise is the command. ARCHITECTURE.md shows the whole house; this package holds
// only the test that keeps its walls standing.
package reprise
