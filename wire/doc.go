// Package wire is what the service and its clients say to each other: the Arrow schema of rollouts and its conversion, the
// JSON of requests and answers, and the codes of errors.
//
// Rollouts travel as Arrow record batches, one row each; everything else is small and travels as JSON, so that a program with a
// stock Arrow Flight client needs nothing of ours. [Rows] and [Groups] convert what is inserted, [Gatherer] and [Draws]
// what is sampled: each is the other's inverse. In the schemas' own types ([InsertSchema], [SampleSchema]) they copy whole slices and
// look at no value; of insertions [Groups] takes what pa.table makes by default, too, and much else that means the same.
//
// What comes from a network is not believed: Groups and Draws check every offset before they follow it, and answer
// with an error that names column, row, value and remedy. What the values mean is checked by rollout.Validate.
//
// A table may have columns of the user's own ([Column]). They travel through the table with their rollouts as bytes
// that only this package reads (rollout.Rollout.Extra).
package wire
