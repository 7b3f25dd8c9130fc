// Package maths is the task named math: problems of the kind of MATH and AIME, from public files, whose answers are numbers,
// expressions, intervals, sets, points, matrices, equations or words.
//
// A [Task] reads JSON lines or JSON arrays, gzipped or not, in the field names that public files have, shuffles the training
// problems anew every epoch and keeps the held-out ones apart. It is a task.Demonstrator: it shows the solution where the file has
// one, and the answer in a box.
//
// [Verifier] works without any file. It finds the answer of a response (the last \boxed, else what follows "answer is", else the
// last line) and lets package answer decide whether it says what the reference says. Like gsm8k's it gives no reward by
// accident: an answer that hedges ("4 or 5"), a box that was cut off, or writing that can be read in two ways earns nothing.
package maths
