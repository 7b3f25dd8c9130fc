package cluster

import (
	"time"
	_ "unsafe" // for go:linkname
)

// The NATS server waits 4 to 9 s before it elects a leader in the place of a lost one, and up to 20 s before a leader
// that hears from nobody steps down, and has no options for that. The times are variables, which its own tests set, and
// so does this file, for all servers of the process. Safety does not depend on them: a group whose messages are late
// for longer than minElectionTimeout only elects a leader more often.

//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
var hbInterval time.Duration

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
var lostQuorumInterval time.Duration

//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
var lostQuorumCheck time.Duration

// serverTimes are the times that the server has by itself.
var serverTimes = []time.Duration{
	hbInterval, minElectionTimeout, maxElectionTimeout, lostQuorumInterval, lostQuorumCheck,
}

func init() {
	hbInterval = 500 * time.Millisecond // a leader's heartbeat
	minElectionTimeout, maxElectionTimeout = 2*time.Second, 4*time.Second
	lostQuorumInterval, lostQuorumCheck = 4*time.Second, time.Second
}
