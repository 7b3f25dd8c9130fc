// Package gridworld is what small worlds of cells have in common, whose rules are a table of transitions (task.Transitions)
// and in which a player takes one of a few directions at each step: tasks frozenlake and cliffwalking.
//
// A [World] is one map: its table, its goal, and how a cell looks. A [Walk] is an episode in it. The player's texts are read
// and written by a [Protocol], either single letters for small models or words in tags for pretrained ones. A [Plan] is the best
// policy of a limited number of steps, found by value iteration: what experts advise, and the bound that reports draw.
// [Settings] are what such tasks have in common in their configuration.
//
// Everything here is a pure function of its arguments, but for a Walk, which draws its luck from the stream it was given.
package gridworld
