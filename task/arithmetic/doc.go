// Package arithmetic is the smallest task: "12+7=" is answered by "19", exactly.
//
// [Settings] choose the operations and the range of the operands. A problem is an operation with
// its two operands in order (1+2 and 2+1 are two problems); all problems are equally likely. The
// held-out problems are drawn once from a seed of their own, so that every run with the same
// settings shares them whatever its seed, and are never given for training. Rewards can be left to chance, as a control.
//
// A [Task] needs no data. It is a task.Demonstrator (the answer is the demonstration) and a
// task.Alphabet (digits, the operators in use and "="), so that a character model can learn it from
// nothing.
package arithmetic
