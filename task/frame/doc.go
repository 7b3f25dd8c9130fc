// Package frame draws what a board of tiles looks like as a small PNG, for tasks whose observations are images.
//
// A [Sprite] is a tile of 8 x 8 points, painted from rows of letters by [Paint]; a [Painter] lays sprites out as a board and
// scales every tile to the wanted number of pixels. The same board gives the same bytes.
package frame
