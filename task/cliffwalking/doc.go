// Package cliffwalking is CliffWalking, by the rules of Gymnasium's CliffWalking-v1 to the letter (after example 6.6 of Sutton
// and Barto): a player walks from one end of a cliff to the other and pays 1 for every step. A step over the edge costs 100
// and leads back to the start.
//
// [Settings] choose whether the ground is slippery, the limits, and how the player sees and acts. A [Task] is a
// task.Environment, whose episodes are task.Experts (value iteration) and task.Actors; it is task.Tabular (its rules as a
// table) and a task.Alphabet. What grid worlds share is in task/gridworld.
//
// There is one map with one start, so nothing can be held out: evaluation prompts are the same as the training prompt, and
// differ in luck. With random_start they begin in cells that training never begins in; the start of the original is always trained.
package cliffwalking
