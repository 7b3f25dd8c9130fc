// Package frozenlake is FrozenLake, by the rules of Gymnasium's FrozenLake-v1 to the letter: a player crosses a frozen lake from
// S to G over frozen tiles F and ends in a hole H if careless, or unlucky, as the ice is slippery.
//
// [Settings] choose the map (Gymnasium's 4x4 and 8x8, one of your own, or a new random one for every prompt), how slippery the
// ice is, the rewards and limits, and how the player sees and acts: as text or as pictures, one action in a turn or several.
// A [Task] is a task.Environment, whose episodes are task.Experts (value iteration) and task.Actors; it is task.Tabular (its
// rules as a table), a task.Alphabet and task.Seeing. What grid worlds share is in task/gridworld.
//
// On a random map the held-out prompts are maps that are never trained on. A fixed map with one start has nothing to hold out:
// evaluation prompts are that map, and differ in luck; with random_start they begin in cells that training never begins in.
package frozenlake
