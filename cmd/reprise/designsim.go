package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/reprise-rl/reprise/pipeline"
	"github.com/reprise-rl/reprise/sim"
	"github.com/reprise-rl/reprise/task"
)

// simFlags are what `reprise design --sim` is told beside the flags of the calculator.
type simFlags struct {
	On             bool    `name:"sim" help:"Run the schedule without a model too: both queues and the buffer side by side. The flags below are its."`
	Workers        *int    `help:"Inference GPUs; the configuration's if not given."`
	Trainers       *int    `help:"Trainer GPUs, which divide the batch; the configuration's if not given."`
	Capacity       *int    `help:"Rollouts in the buffer; the configuration's if not given, or with other GPUs, what keeps its staleness horizon."`
	Rollouts       int     `default:"1000000" help:"Rollouts that are generated for each of queues and buffer."`
	Lengths        string  `default:"1000,1,16384" help:"Lengths of responses in tokens, lognormal and cut: median, sigma of the logarithm, greatest."`
	Batching       string  `default:"continuous" help:"continuous: the next group takes the places that short responses leave free. static: a group holds its worker until its longest has ended."`
	Stragglers     string  `default:"0,1" help:"Share of the workers that are slow, and how many times as long they take."`
	RewardLatency  string  `default:"0,0" help:"Time until a group is rewarded, in units of training on one rollout: its mean, and sigma of its logarithm, 0 if it is always the same."`
	WeightTransfer float64 `default:"0" help:"Time that weights take to the workers, in the same units."`
	WeightSync     string  `default:"group" help:"group: workers take weights up when they begin a group. token: in its midst, 16 times."`
	InFlight       int     `default:"0" help:"The most updates under way at a time, each from its beginning until workers may take up its weights. 1: trainers wait for every transfer; 2: they take the next batch meanwhile; 0: no limit."`
	Seed           uint64  `default:"1" help:"Of every draw."`
}

// Ranges of the flags.
const (
	leastSimRollouts = 1000
	mostSimRollouts  = 1_000_000_000
	mostSimTime      = 1e9
	mostSimUses      = 5e9 // draws of the buffer's trainers, ten minutes of a core and more
)

// simPlan is the configuration that a schedule begins with.
type simPlan struct {
	RolloutCost       float64 // mu
	Workers, Trainers int
	Batch, Group      int
	Capacity          int     // N
	Horizon           float64 // N/R of it: where flags name other GPUs, the buffer keeps it
}

// validate reports every flag with a wrong value at once, and without --sim every one that is given.
func (f simFlags) validate() error {
	if !f.On {
		return f.alone()
	}
	var errs []error
	check := func(ok bool, flag string, value any, want string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s: %v: want %s", flag, value, fmt.Sprintf(want, args...)))
		}
	}
	given := func(flag string, v *int, most int) {
		if v != nil {
			check(*v >= 1 && *v <= most, flag, *v, "1 to %d", most)
		}
	}
	given("workers", f.Workers, mostGPUs)
	given("trainers", f.Trainers, 1<<16)
	given("capacity", f.Capacity, math.MaxInt32)
	check(f.Rollouts >= leastSimRollouts && f.Rollouts <= mostSimRollouts, "rollouts", f.Rollouts, "%d to %d", leastSimRollouts, mostSimRollouts)
	_, err := f.lengths()
	errs = append(errs, err)
	check(f.Batching == string(sim.Continuous) || f.Batching == string(sim.Static), "batching", f.Batching, "%s or %s", sim.Continuous, sim.Static)
	_, _, err = f.stragglers()
	errs = append(errs, err)
	_, err = f.rewards()
	errs = append(errs, err)
	check(f.WeightTransfer >= 0 && f.WeightTransfer <= mostSimTime, "weight-transfer", f.WeightTransfer, "0 to %g units of training on one rollout", mostSimTime)
	check(f.WeightSync == string(pipeline.ByGroup) || f.WeightSync == string(pipeline.ByToken), "weight-sync", f.WeightSync, "%s or %s", pipeline.ByGroup, pipeline.ByToken)
	check(f.InFlight >= 0, "in-flight", f.InFlight, "1 update or more, or 0 for no limit")
	return errors.Join(errs...)
}

// alone reports the flags that say something of a schedule which nobody has asked for, with --workers 6 perhaps in the belief that it
// settles the configuration.
func (f simFlags) alone() error {
	var errs []error
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		switch {
		case field.Name == "On" || value.Kind() == reflect.Pointer && value.IsNil() || fmt.Sprint(value) == field.Tag.Get("default"):
			continue
		case value.Kind() == reflect.Pointer:
			value = value.Elem()
		}
		errs = append(errs, fmt.Errorf("--%s: %v: want it beside --sim, whose schedule it is for", flagName(field.Name), value))
	}
	return errors.Join(errs...)
}

// flagName is how a field is called on the command line: --reward-latency for RewardLatency.
func flagName(field string) string {
	var name strings.Builder
	for i, c := range field {
		if i > 0 && unicode.IsUpper(c) {
			name.WriteByte('-')
		}
		name.WriteRune(unicode.ToLower(c))
	}
	return name.String()
}

// lengths returns the distribution of lengths.
func (f simFlags) lengths() (sim.Lognormal, error) {
	const want = "MEDIAN,SIGMA,MAX: a median of 1 token or more, a sigma of 0 (all alike) to 4, and the greatest length, from the median to 1048576; such as 1000,1,16384"
	v, ok := numberList(f.Lengths, 3)
	if !ok || !(v[0] >= 1) || !(v[1] >= 0 && v[1] <= 4) || !(v[2] >= v[0] && v[2] <= 1<<20) || v[2] != math.Trunc(v[2]) {
		return sim.Lognormal{}, fmt.Errorf("--lengths: %s: want %s", f.Lengths, want)
	}
	return sim.Lognormal{Median: v[0], Sigma: v[1], Max: int(v[2])}, nil
}

// stragglers returns the share of the slow workers and their slowness.
func (f simFlags) stragglers() (share, factor float64, err error) {
	v, ok := numberList(f.Stragglers, 2)
	if !ok || !(v[0] >= 0 && v[0] <= 1) || !(v[1] >= 1 && v[1] <= 1e6) {
		return 0, 0, fmt.Errorf("--stragglers: %s: want SHARE,FACTOR: a share of 0 to 1, and how many times as long they take, 1 to 1e6; such as 0.02,3", f.Stragglers)
	}
	return v[0], v[1], nil
}

// rewards returns the latency of rewards.
func (f simFlags) rewards() (task.Latency, error) {
	v, ok := numberList(f.RewardLatency, 2)
	if !ok || !(v[0] >= 0 && v[0] <= mostSimTime) || !(v[1] >= 0 && v[1] <= 4) {
		return task.Latency{}, fmt.Errorf("--reward-latency: %s: want MEAN,SIGMA: a mean of 0 to %g units, and a sigma of 0 (always the same) to 4; such as 20,1", f.RewardLatency, mostSimTime)
	}
	if v[1] == 0 {
		return task.Latency{Distribution: task.Constant, Mean: v[0]}, nil
	}
	return task.Latency{Distribution: task.Lognormal, Mean: v[0], Sigma: v[1]}, nil
}

// numberList reads so many numbers with commas between them.
func numberList(list string, n int) ([]float64, bool) {
	parts := strings.Split(list, ",")
	if len(parts) != n {
		return nil, false
	}
	values := make([]float64, n)
	for i, p := range parts {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil {
			return nil, false
		}
		values[i] = v
	}
	return values, true
}
