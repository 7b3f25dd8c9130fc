package main

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
)

var (
	losses = flag.Int("losses", 2, "losses of power of TestAClusterSurvivesLossesOfPower; "+
		"TestHistoriesUnderLossesOfPower… makes a fifth; TestAClusterGoesOnBesideASlowDisk slows disks a quarter as often")
	unordered = flag.Bool("unordered", false, "those tests have disks that may lose the name of a file that is synced, "+
		"until its folder is, too: POSIX allows it")
)

// startOnDrives starts three nodes, each on a disk of its own that can lose its power.
func startOnDrives(t *testing.T) *nodes {
	t.Helper()
	// Disks in memory should not be reserved for long.
	config := tests.File(t, "serve.yaml", "disk_reserve_bytes: 8388608\nmax_message_bytes: 8388608\n")
	var drives []*drive
	for i := range uint64(3) {
		drives = append(drives, newDrive(t, *faultSeed, 10+i, !*unordered))
	}
	c := newNodes(t, len(drives), nil, "--config", config)
	c.drives = drives
	for i, d := range drives {
		c.arguments[i] = append(c.arguments[i], "--data", filepath.Join(d.dir, "data"))
		c.start(i)
	}
	return c
}

// losePower takes the power from nodes at the same moment, and gives it back after a time.
func (c *nodes) losePower(d time.Duration, which ...int) {
	var drives []*drive
	for _, i := range which {
		drives = append(drives, c.drives[i])
	}
	cut(drives, func() {
		for _, i := range which {
			_ = c.running[i].Process.Kill()
		}
	})
	for _, i := range which {
		c.kill(i)
	}
	time.Sleep(d)
	for _, i := range which {
		c.drives[i].restore()
		c.start(i)
	}
}

// powerFaults are what nodes on drives can suffer.
var powerFaults = []fault{
	{"and all others without power", func(c *nodes, _ int, d time.Duration) { c.losePower(d, 0, 1, 2) }},
	{"and the next without power", func(c *nodes, i int, d time.Duration) { c.losePower(d, i, (i+1)%len(c.running)) }},
	{"without power", func(c *nodes, i int, d time.Duration) { c.losePower(d, i) }},
}

// What was acknowledged is there, once, after one node, two or all at once lost their power, and with it what they had
// not synced.
func TestAClusterSurvivesLossesOfPower(t *testing.T) {
	tests.Long(t)
	random := rand.New(rand.NewPCG(*faultSeed, 3))
	startOnDrives(t).endure(*losses, random, func(k, owner int) (fault, int, time.Duration) {
		if k < len(powerFaults) {
			return powerFaults[k], owner, time.Second
		}
		return powerFaults[random.IntN(len(powerFaults))], random.IntN(3),
			time.Duration(random.IntN(12000)) * time.Millisecond
	})
}

// slowed has each sync of a node's disk take up to 2 s, until 20 groups and a time have passed.
var slowed = fault{"on a slow disk", func(c *nodes, i int, d time.Duration) {
	from, began := c.kept.count(), time.Now()
	c.drives[i].slow.Store(int64(2 * time.Second))
	defer c.drives[i].slow.Store(0)
	tests.Until(c.t, "20 insertions beside a slow disk", func() bool {
		return c.kept.count() >= from+20 && time.Since(began) > d
	})
	c.t.Logf("%d insertions in %v beside a slow disk", c.kept.count()-from, time.Since(began).Round(time.Second))
}}

// Insertions go on while each sync of one node takes up to 2 s.
func TestAClusterGoesOnBesideASlowDisk(t *testing.T) {
	tests.Long(t)
	if *losses < 4 {
		t.Skip("make cluster-power runs it")
	}
	random := rand.New(rand.NewPCG(*faultSeed, 4))
	startOnDrives(t).endure(*losses/4, random, func(k, owner int) (fault, int, time.Duration) {
		return slowed, (owner + k) % 3, 20 * time.Second
	})
}

// Histories stay linearizable when nodes lose their power.
func TestHistoriesUnderLossesOfPowerAreLinearizable(t *testing.T) {
	tests.Long(t)
	if *losses < 5 {
		t.Skip("make cluster-power runs it")
	}
	startOnDrives(t).chronicle(*losses/5, powerFaults)
}
