package cluster

import (
	"strings"
	"testing"
)

func TestOptionsThatCannotWorkAreRefusedWithTheReason(t *testing.T) {
	peers := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	for want, o := range map[string]Options{
		"cluster.node: a b":                 {Node: "a b", Peers: peers, Data: "d"},
		"cluster.listen: a: want HOST:PORT": {Listen: "a", Peers: peers, Data: "d"},
		"HOST:PORT with a number as port":   {Listen: "127.0.0.1:http", Peers: peers, Data: "d"},
		"cluster.peers[3]":                  {Peers: append(peers[:3:3], "127.0.0.1:70000"), Data: "d"},
		"cluster.peers: 2":                  {Peers: peers[:2], Data: "d"},
		"cluster.peers: none":               {Data: "d"},
		"cluster.replicas: 2":               {Peers: peers, Replicas: 2, Data: "d"},
		"does not survive its node":         {Replicas: 1, Data: "d"},
		"cluster.secret_file":               {Listen: "10.0.0.1:6222", Peers: peers, Data: "d"},
		"tls.client_ca":                     {Listen: "10.0.0.1:6222", Peers: peers, Data: "d"},
		"the folder of the node's copies":   {Peers: peers},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	if err := (Options{Peers: peers, Data: "d"}).Validate(); err != nil {
		t.Error(err)
	}
}
