// Package flightdata moves Arrow record batches over the gRPC streams of Arrow Flight, without copying them on the way out and
// with one copy on the way in.
//
// A stream whose server was made with [ServerOption], or whose call was made with [CallOption], takes the messages of [Writer] and
// [Reader]; all other messages of Flight travel on it as ever. What goes over the wire is what any implementation of
// Flight reads and writes: the other end may be stock.
//
// gRPC writes a message after SendMsg has returned. A Writer keeps the memory of a record batch until gRPC has let go of it, so
// that memory of a pool comes back to it then and not before.
//
// A Reader believes nothing: it checks the header of a message against its body before Arrow's own code sees it, bounds what
// schemas, dictionaries and compressed bodies may come to, and answers everything else with an error that wraps
// rollout.ErrInvalid or wire.ErrTooLarge. It does not look into arrays: whoever reads their values has to check their
// offsets, as wire.Groups and wire.Draws do.
package flightdata
