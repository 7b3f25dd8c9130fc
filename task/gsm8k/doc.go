// Package gsm8k is the task of word problems with one number for an answer: any file of JSON lines
// with "question" and "answer", the answer a solution that ends in "#### " and the number.
//
// A [Task] shuffles the training questions anew every epoch and keeps the held-out ones apart, be
// they a file of their own or a share of the one file. It is a task.Demonstrator: the solutions of
// the file are the demonstrations.
//
// [Verifier] works without any file. It takes the last "#### n" of a response, else the last
// "\boxed{n}", else the last number, and compares exactly, as rational numbers. It reads thousands
// separators (1,234 and LaTeX's 1{,}234 and 1\,234), decimals, fractions (3/4, 3 1/2, ½,
// \frac{3}{4}), signs, currency ($, €, £, ¥, ₹, before or after), scientific notation (1.5e3, 1.5 \times
// 10^3), words of scale (5 million) and LaTeX spacing and text, and leaves out percent signs and
// units: "12%" is 12, not 0.12.
//
// Where an answer stands but is not one plain number, nothing is extracted and nothing taken from
// elsewhere, because a reward given by accident is learnt: expressions (3 + 4, 5x, 5\pi), ranges,
// dates, times, "1,2", "1.2.3", "1/0", two numbers after ####, a box that was cut off, numbers of
// more than 300 digits or powers beyond 10^300. An equation counts by its right side.
package gsm8k
