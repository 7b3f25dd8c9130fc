// Package geometry asks questions about figures that stand in an image and nowhere else: the area and the perimeter of a
// rectangle on a grid, the length of a segment, the degrees of an angle, the area of a right triangle, the third angle of a
// triangle and the hypotenuse of a right one. It is a small relation of the question sets on which vision-language models train.
//
// [Settings] choose the questions, the size of the image and the size of the figures. Every answer is an integer that follows
// exactly from the figure, and the question ("area?") says nothing of it. A figure is a shape with its sizes, its place and its
// turn, shifted in its image by some pixels; held-out figures are drawn once from a seed of their own and are never trained on,
// by no question and with no shift.
//
// A [Task] is single-turn: it is a task.Demonstrator (the answer is the demonstration), a task.Alphabet and a task.Seeing, so that a
// character model with a small vision tower can learn it from nothing.
package geometry
