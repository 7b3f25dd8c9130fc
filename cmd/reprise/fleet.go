package main

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/rollout/option"
	"github.com/reprise-rl/reprise/service"
)

// fleetGroup is the group of these flags in the help.
const fleetGroup = "Services for a fleet"

// fleetFlags are the demand and the machines of --fleet: [design.Demand] and [design.Machine].
type fleetFlags struct {
	On              bool     `name:"fleet" help:"Instead work out the services for a fleet: how many, their parts and replicas, what each link and disk carries, what a lost node costs. Takes --gpus, --batch, --group and --capacity besides those below."`
	TokensPerSecond float64  `default:"2000" help:"Completion tokens a second that a GPU generates."`
	Prompt          int      `default:"512" help:"Mean tokens of a prompt."`
	Completion      int      `default:"2048" help:"Mean tokens of a completion, or of all turns of an episode."`
	Uses            float64  `default:"4" help:"Times that a rollout is drawn on average: the replay ratio."`
	MaxStaleness    int      `default:"8" help:"Versions for which rollouts are kept, unless --capacity says how many."`
	Columns         []string `help:"What rollouts carry besides: advantages, values, ref_logprobs; routed_experts=EXPERTS or sampling_mask=IDS of a token; text=, images=, meta= or x_NAME=BYTES of a rollout."`
	Replicas        int      `help:"Copies of each part's log: 1, 3 or 5; by default 1 up to 8 GPUs, which are one machine, and 3 above."`
	Services        int      `help:"Show the load with this number of services; by default as few as suffice."`
	NodeMemory      byteSize `default:"64GB" help:"Memory of a service's node."`
	NodeLink        float64  `default:"25" help:"Its link, in Gb/s each way."`
	NodeDisk        byteSize `default:"1GB" help:"What its disk writes in a second."`
}

// misplaced refuses what --fleet does not use, and without it the flags that only it uses.
func (f fleetFlags) misplaced(call *kong.Context) error {
	if !f.On {
		return refuseFlags(call, func(f *kong.Flag) bool { return inGroup(f, fleetGroup) }, "this only with --fleet")
	}
	takes := []string{"gpus", "batch", "group", "capacity", "json"}
	return refuseFlags(call, func(f *kong.Flag) bool { return !inGroup(f, fleetGroup) && !slices.Contains(takes, f.Name) },
		"this without --fleet")
}

// printTopology prints the services for the fleet.
func (c *designCommand) printTopology() error {
	base, _, err := c.base()
	if err != nil {
		return err
	}
	f, fleet := c.Fleet, c.fleet(base)
	d := design.Demand{
		GPUs: fleet.GPUs, Batch: fleet.Batch, Group: fleet.Group, Capacity: valueOr(c.Sim.Capacity, 0),
		TokensPerSecond: f.TokensPerSecond, Prompt: f.Prompt, Completion: f.Completion, Uses: f.Uses,
		MaxStaleness: f.MaxStaleness, Replicas: f.Replicas, Services: f.Services,
	}
	if d.Replicas == 0 {
		d.Replicas = 1
		if d.GPUs > 8 {
			d.Replicas = 3
		}
	}
	var problems option.Problems
	for _, text := range f.Columns {
		column, err := design.ParseColumn(text)
		problems.Add(err)
		d.Columns = append(d.Columns, column)
	}
	if err := problems.Err(); err != nil {
		return err
	}
	t, err := d.Topology(design.Machine{
		Memory: float64(f.NodeMemory), Tables: float64(service.DefaultTableBytes(int64(f.NodeMemory))),
		Link: f.NodeLink * 1e9 / 8, Disk: float64(f.NodeDisk),
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(t)
	}
	fmt.Print(t.Text())
	return nil
}
