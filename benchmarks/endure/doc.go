// Command endure puts `reprise serve` under load for a long time, or kills it again and again, and tells whether it kept its
// promises. It ends with exit code 1 where it did not.
//
// endure soak has producers and trainers work on several durable tables through a proxy that cuts and throttles their
// connections, while others send what no client would. In the end memory must be flat, every goroutine of theirs gone, and the
// books must balance (invariant 11), also against what the producers were told.
//
// endure crash ends the serving process with kill -9 at random moments while clients insert and trainers consume, starts it
// again on the same port, and in the end looks for every rollout that was acknowledged (invariant 6): none may be missing, and
// none may be there twice.
//
// endure recovery measures how long a service takes to serve again after kill -9.
//
// Every choice comes from a stream of the seed; what the machine's scheduling adds to it is not repeatable.
package main
