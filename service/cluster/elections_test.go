package cluster

import (
	"slices"
	"testing"
)

// If the server no longer has one of these variables, that of this package is a new one, which is 0 and sets nothing.
func TestTheServerHasTheTimesThatThisPackageSets(t *testing.T) {
	if slices.Contains(serverTimes, 0) {
		t.Errorf("of hbInterval, minElectionTimeout and so on the server has %v", serverTimes)
	}
	t.Log(serverTimes)
}
