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
		"TestHistoriesUnderLossesOfPower… makes a fifth")
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

// Histories stay linearizable when nodes lose their power.
func TestHistoriesUnderLossesOfPowerAreLinearizable(t *testing.T) {
	tests.Long(t)
	if *losses < 5 {
		t.Skip("make cluster-power runs it")
	}
	startOnDrives(t).chronicle(*losses/5, powerFaults)
}
