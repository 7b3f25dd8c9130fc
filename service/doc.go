// Package service puts tables of rollouts on the network: Arrow Flight in front, replay.Table behind, a journal beside.
//
// A [Service] holds many tables by name. [Service.Register] and [Service.GRPCOptions] put it on a grpc server, and
// [Service.Listener] watches the connections. Programs insert with DoPut, sample with DoGet or DoExchange, do everything else with DoAction
// (package wire has the requests and answers), and look around with ListFlights, GetFlightInfo, GetSchema and ListActions.
//
// # Who waits, and for what
//
// An insertion waits for room in a queue and for the table's [Limiter]; a sample waits for rollouts, for MinSize and for the
// limiter; a start waits for the [Gate]. All of them wait at most as long as the request or the call's deadline says, leave when the caller does,
// and are woken by what they wait for: nothing polls. Those who wait are woken together and in no strict order, so that a large batch may be
// overtaken by small ones.
//
// # Leases
//
// What a stream or a DoGet was handed is leased to it: acknowledged by the stream's next request, or once a DoGet's data has been written
// out, it becomes uses; otherwise it goes back, when the caller disconnects, when a reader takes nothing for Options.SendTimeout, or after
// the table's lease timeout (invariant 3).
//
// # Durability
//
// With Options.Data every table has a journal there. An insertion is answered when the journal's promise holds (invariant 6), and
// what a queue gave out is on disk before the next batch goes out. Checkpoints are files of their own.
//
// What it leaves to others: package access says who may do what, package watch shows an [Observation] over HTTP, and the command
// `reprise serve` ties them together.
package service
