// Package transcript plays episodes of a task and records what happened, turn by turn.
//
// [Play] lets a [Player] act in one episode. It returns a [Transcript], which `reprise play --json` prints, and writes
// the same in words as the episode goes on. The players here are the task's own [Expert], [Random] actions, and a
// [Keyboard]; a model that plays belongs to package run.
package transcript
