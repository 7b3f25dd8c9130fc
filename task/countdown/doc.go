// Package countdown is the game of reaching a number: from "3 5 5 7=24:" to an expression that is
// worth 24 and uses the given numbers, such as "(5-3)*(7+5)" from 3, 5, 5 and 7.
//
// [Settings] choose how many numbers there are, from which range, the operations and the targets, and whether every number
// has to be used. Problems are made from random expressions, so that each has a solution; the held-out ones are drawn once
// from a seed of their own and never given for training, in whatever order their numbers stand.
//
// A [Task] needs no data. It is a task.Demonstrator (the expression that the problem was made from, or else what [Solve]
// finds) and a task.Alphabet. The [Verifier] reads a response with a parser of its own ([Parse]), in exact arithmetic, and
// needs nothing but the answer of a prompt: an expression, whose numbers and value are the problem, or "3 5 5 7=24".
package countdown
