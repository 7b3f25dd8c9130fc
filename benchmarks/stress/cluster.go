package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/reprise-rl/reprise/benchmarks/process"
	"github.com/reprise-rl/reprise/client"
	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
)

// ClusterSettings configure a demonstration of a cluster that loses a node.
type ClusterSettings struct {
	Program string        `required:"" type:"existingfile" help:"The reprise program."`
	Dir     string        `default:"runs/scale" help:"Folder of the nodes, removed first, and of the dashboard's picture."`
	Load    time.Duration `default:"5s" help:"How long to insert before the kill, and after the table is served again."`
}

// Run starts three nodes, inserts, kills the owner of a part, and looks for everything that was acknowledged.
func (s *ClusterSettings) Run(ctx context.Context) error {
	if err := os.RemoveAll(s.Dir); err != nil {
		return err
	}
	c, err := startCluster(ctx, s.Program, s.Dir)
	defer c.stop()
	if err != nil {
		return err
	}
	fmt.Printf("three nodes serve %v\n", c.addresses)
	table, err := c.table(ctx)
	if err != nil {
		return err
	}
	defer c.services.Close()
	kept, worst, err := insertFor(ctx, table, 0, s.Load)
	if err != nil {
		return err
	}
	fmt.Printf("%d groups inserted in %v, each within %v\n", kept, s.Load, worst.Round(time.Millisecond))
	killed, err := c.killOwner(ctx, "lab.0")
	if err != nil {
		return err
	}
	fmt.Printf("kill -9 of node %s, which owned lab.0\n", c.names[killed])
	more, worst, err := insertFor(ctx, table, kept, s.Load+20*time.Second)
	if err != nil {
		return err
	}
	fmt.Printf("%d more groups inserted; the longest insertion took %v\n", more, worst.Round(time.Millisecond))
	if err := c.start(ctx, killed); err != nil {
		return err
	}
	fmt.Printf("node %s is back\n", c.names[killed])
	found := make(map[string]int)
	if err := table.Scan(ctx, 256, func(draws []rollout.Draw) error {
		for i := range draws {
			found[draws[i].Rollout.PromptID]++
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range kept + more {
		if n := found[fmt.Sprint(i)]; n != demoGroup {
			return fmt.Errorf("group %d was acknowledged and has %d rollouts of %d", i, n, demoGroup)
		}
	}
	fmt.Printf("all %d groups are there, each once\n", kept+more)
	return c.picture(ctx, killed)
}

// demoGroup is the number of rollouts in a group.
const demoGroup = 4

// insertFor inserts groups, numbered from first on, and returns how many and how long the slowest took.
func insertFor(
	ctx context.Context, to *client.PartedTable, first int, d time.Duration,
) (n int, worst time.Duration, err error) {
	for began := time.Now(); time.Since(began) < d; n++ {
		prompt, at := fmt.Sprint(first+n), time.Now()
		var g rollout.Group
		for range demoGroup {
			g.Rollouts = append(g.Rollouts, rollout.New(prompt, make([]int32, 64), rollout.Completion{
				Tokens: make([]int32, 1024), Logprobs: make([]float32, 1024)}))
		}
		if _, err := to.InsertOnce(ctx, prompt, g); err != nil {
			return n, worst, err
		}
		worst = max(worst, time.Since(at))
	}
	return n, worst, nil
}

// demoCluster is three nodes on this machine.
type demoCluster struct {
	program, dir            string
	names, addresses, pages []string
	arguments               [][]string
	nodes                   []*process.Process
	services                *client.Services
}

func startCluster(ctx context.Context, program, dir string) (*demoCluster, error) {
	c := &demoCluster{program: program, dir: dir, nodes: make([]*process.Process, 3)}
	var peers []string
	for i := range c.nodes {
		var at [3]string
		for j := range at {
			var err error
			if at[j], err = process.FreeAddress(); err != nil {
				return c, err
			}
		}
		c.names = append(c.names, string(rune('a'+i)))
		c.addresses, c.pages, peers = append(c.addresses, "grpc://"+at[0]), append(c.pages, "http://"+at[1]),
			append(peers, at[2])
		c.arguments = append(c.arguments, []string{"serve", "--listen", at[0], "--http", at[1], "--node", c.names[i],
			"--node-listen", at[2], "--domain", "rack-" + c.names[i], "--data", filepath.Join(dir, c.names[i])})
	}
	for i := range c.nodes {
		for _, p := range peers {
			c.arguments[i] = append(c.arguments[i], "--peer", p)
		}
		var err error
		if c.nodes[i], err = process.Start("node "+c.names[i], nil, program, c.arguments[i]...); err != nil {
			return c, err
		}
	}
	for i := range c.nodes {
		if err := c.await(ctx, i); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *demoCluster) start(ctx context.Context, i int) (err error) {
	if c.nodes[i], err = process.Start("node "+c.names[i], nil, c.program, c.arguments[i]...); err != nil {
		return err
	}
	return c.await(ctx, i)
}

func (c *demoCluster) await(ctx context.Context, i int) error {
	return c.nodes[i].AwaitReady(ctx, func(ctx context.Context) error {
		one, err := client.Dial(ctx, c.addresses[i], client.Options{RetryFor: -1})
		if err == nil {
			err = one.Close()
		}
		return err
	})
}

func (c *demoCluster) stop() {
	for _, n := range c.nodes {
		if n != nil && n.Alive() {
			n.Kill() // nothing is kept
		}
	}
}

// table creates a table in three parts.
func (c *demoCluster) table(ctx context.Context) (_ *client.PartedTable, err error) {
	o := client.AllOptions{Options: client.Options{RetryFor: time.Minute}, Scope: client.AllParts}
	if c.services, err = client.DialAll(ctx, c.addresses, o); err != nil {
		return nil, err
	}
	_, err = c.services.Create(ctx, wire.Table{Name: "lab", Options: replay.Options{Capacity: 1 << 20}})
	return c.services.Table("lab"), err
}

// killOwner kills the node that owns a table, and returns its number.
func (c *demoCluster) killOwner(ctx context.Context, table string) (int, error) {
	for i := range c.nodes {
		one, err := client.Dial(ctx, c.addresses[i], client.Options{})
		if err != nil {
			return 0, err
		}
		_, err = one.Table(table).Info(ctx)
		if err = errors.Join(err, one.Close()); err == nil {
			c.nodes[i].Kill()
			return i, nil
		}
	}
	return 0, fmt.Errorf("no node owns %s", table)
}

// picture takes one of the dashboard of a node, if Chromium is there.
func (c *demoCluster) picture(ctx context.Context, i int) error {
	chromium := slices.IndexFunc(browsers(), func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if chromium < 0 {
		fmt.Println("no picture of the dashboard: Chromium is not installed")
		return nil
	}
	path, err := filepath.Abs(filepath.Join(c.dir, "dashboard.png"))
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, browsers()[chromium], "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-background-networking", "--window-size=1200,1900", "--screenshot="+path, c.pages[i]).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taking a picture of the dashboard: %w: %s", err, out)
	}
	fmt.Printf("the dashboard of node %s: %s\n", c.names[i], path)
	return nil
}

func browsers() []string { return []string{"chromium", "chromium-browser", "google-chrome"} }
