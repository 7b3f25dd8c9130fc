package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/lab/design"
	"github.com/reprise-rl/reprise/lab/pipeline"
	"github.com/reprise-rl/reprise/lab/run"
	"github.com/reprise-rl/reprise/lab/sim"
	"github.com/reprise-rl/reprise/lab/study"
)

// designedBy returns the JSON of reprise design.
func designedBy(t *testing.T, args ...string) (d struct {
	design.Document
	Schedule *sim.Comparison `json:"schedule"`
}) {
	t.Helper()
	got := call(t, "", append([]string{"design", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil {
		t.Fatalf("%v in:\n%s\n%s", err, got.stdout, got.stderr)
	}
	if reliable := got.code == 0; reliable != (d.Reliable || d.Schedule != nil) ||
		!reliable && !strings.Contains(got.stderr, "no configuration is recommended") {
		t.Errorf("design %v: exit code %d, reliable %v, %q", args, got.code, d.Reliable, got.stderr)
	}
	return d
}

// profiled writes a profile into a file.
func profiled(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func said(sentences []string, want string) bool {
	return slices.ContainsFunc(sentences, func(s string) bool { return strings.Contains(s, want) })
}

func TestDesignRefusesEveryWrongFlagAtOnce(t *testing.T) {
	fails(t, call(t, "", "design", "--rollout-cost=0", "--correlation=1.5", "--noise-exponent=-1", "--gpus=1",
		"--batch=0", "--group=-8", "--most-capacity=0", "--bound-gap=-1", "--sim", "--rollouts=3"),
		"--rollout-cost: 0: want 0.001 to 100000", "--correlation: 1.5: want 0 to 1",
		"--noise-exponent: -1: want 1e-06 to 10, or 0 for", "--gpus: 1: want 2 to",
		"--batch: 0: want 1 to", "--group: -8: want 1 to", "--most-capacity: 0: want 1 to",
		"--bound-gap: -1: want a finite number above 0",
		"--bound-smoothness: 0: want", "--bound-updates: 0: want", "--rollouts: 3: want")
	fails(t, call(t, "", "design", "--rollout-cost=NaN", "--correlation=NaN", "--noise-exponent=NaN",
		"--bound-bias=NaN", "--bound-learning-rate=Inf"),
		"--rollout-cost: NaN", "--correlation: NaN", "--noise-exponent: NaN", "--bound-bias: NaN",
		"--bound-learning-rate: +Inf")
	fails(t, call(t, "", "design", "--batch=4", "--group=8", "--most-capacity=3"),
		"--group: 8: want 1 to 4 rollouts, the batch", "--most-capacity: 3: want 4 to")
	fails(t, call(t, "", "design", "--noise-exponent=0.2", "--profile="+profiled(t, "1\n2")),
		"--noise-exponent: 0.2: want either this or --profile")
	fails(t, call(t, "", "design", "--profile=/nowhere/at/all"), "--profile: open /nowhere/at/all")
	fails(t, call(t, "", "design", "--profile="+profiled(t, "1\n-2")), "--profile ",
		"line 2, staleness 1: -2: want a variance")
	fails(t, call(t, "", "design", "--html=/nowhere/at/all.html"), "--html: ", "/nowhere/at/all")
	fails(t, call(t, "", "design", "--from="+t.TempDir()), "config.yaml")
	fails(t, call(t, "", "design", "--bound-gap=2", "--bound-smoothness=4", "--bound-updates=50",
		"--bound-learning-rate=0.2"), "--bound-learning-rate: 0.2: want at most 0.125")
	fails(t, call(t, "", "design", "--sim", "--workers", "7168"),
		"--workers: 7168: want --trainers or --gpus with it: the configuration is for 8 GPUs")
}

func TestDesignAdvisesATrainingLoopByItsFigures(t *testing.T) {
	t.Parallel()
	figures := `{"batches": 20, "batch": 64, "group": 8, "generate_seconds": 5, "update_seconds": 1, "groups": 160,
		"flat_groups": 40, "right": null, "asked": null, "ess": [], "gradients": {"part": 16, "whole": 64, "squares":
		[[1.2, 1.05], [1.22, 1.06], [1.19, 1.05]]}}`
	got := call(t, figures, "design", "--loop=/dev/stdin")
	for _, want := range []string{"after 20 batches of 64 rollouts: reuse pays: ", "25% of 160 groups without a signal"} {
		if text := strings.Join(strings.Fields(got.stdout), " "); got.code != 0 || !strings.Contains(text, want) {
			t.Errorf("exit code %d, %s%s: want %q", got.code, got.stdout, got.stderr, want)
		}
	}
	var advice design.LoopAdvice
	got = call(t, figures, "design", "--loop=/dev/stdin", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &advice); err != nil {
		t.Fatal(err)
	}
	if advice.Reuse.Answer != design.Pays || advice.Table.Answer != design.DoesNotPay || advice.Line == "" {
		t.Errorf("%+v", advice)
	}
	fails(t, call(t, `{"btch": 64}`, "design", "--loop=/dev/stdin"), "--loop: btch: unknown key: want batch")
	fails(t, call(t, `{"batches": 20, "batch": 64}`, "design", "--loop=/dev/stdin"), "--loop: group: 0: want 1 to")
	fails(t, call(t, figures, "design", "--loop=/dev/stdin", "--gpus=8"), "--gpus: 8: want this without --loop")
	fails(t, call(t, "", "design", "--loop=/nowhere/at/all"), "--loop: open /nowhere/at/all")
}

func TestDesignLeadsWithWhatIsNotReliable(t *testing.T) {
	t.Parallel()
	got := call(t, "", "design")
	if got.code == 0 || !strings.HasPrefix(got.stdout, "not reliable: nobody measured the noise scale") ||
		strings.Contains(got.stdout, "\nrun it\n") || !strings.Contains(got.stderr, "no configuration is recommended") {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	if d := designedBy(t); d.Reliable || d.Recommended != nil || d.Command != "" || len(d.Reasons) != 1 {
		t.Errorf("%+v", d)
	}
	d := designedBy(t, "--noise-scale=1900", "--coherence=0.9")
	if !d.Reliable || d.Recommended == nil || d.Recommended.Way != design.Queue || *d.NoiseScale != 1900 ||
		d.Coherence != 0.9 || d.Command == "" {
		t.Errorf("with a noise scale: %+v", d)
	}
	fails(t, call(t, "", "design", "--noise-scale=0"), "--noise-scale: 0: want more than 0")
	fails(t, call(t, "", "design", "--coherence=2"), "--coherence: 2: want 0 to 1")
}

func TestAScheduleNeedsABufferThatRuns(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string][]string{
		"most_capacity: 65536: want 102400 or more": {"--rollout-cost", "0.01"},
		"a longer profile":                          {"--profile=" + profiled(t, "1")},
	} {
		got := call(t, "", append([]string{"design", "--batch", "1024", "--sim", "--rollouts", "30000"}, flags...)...)
		if got.code == 0 || !strings.Contains(got.stderr, "no configuration for 8 GPUs, batches of 1024") ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("design --sim %v: exit code %d\n%swant %q", flags, got.code, got.stderr, want)
		}
	}
}

func TestAScheduleWithItsOwnGPUsGetsTheConfigurationForThem(t *testing.T) {
	t.Parallel()
	text := succeeds(t, "", "design", "--sim", "--workers", "12", "--trainers", "4", "--batch", "64",
		"--rollouts", "30000")
	if !strings.Contains(text, "16 GPUs, batches of 64") {
		t.Errorf("the configuration is not for 12 + 4 GPUs:\n%s", text)
	}
}

func TestDesignRefusesWrongFlagsOfASchedule(t *testing.T) {
	fails(t, call(t, "", "design", "--sim", "--workers", "0", "--trainers=-1", "--capacity", "0", "--rollouts", "5",
		"--lengths", "10,x", "--batching", "none",
		"--stragglers", "2,1", "--reward-latency", "1", "--weight-transfer=-1", "--weight-sync", "never",
		"--in-flight=-2"),
		"--workers: 0: want 1", "--trainers: -1: want 1", "--capacity: 0: want 1", "--rollouts: 5: want 1000",
		"--lengths: 10,x: want MEDIAN,SIGMA,MAX", "--batching: none: want continuous or static",
		"--stragglers: 2,1: want SHARE,FACTOR", "--reward-latency: 1: want MEAN,SIGMA",
		"--weight-transfer: -1: want 0", "--weight-sync: never: want group or token", "--in-flight: -2: want")
	fails(t, call(t, "", smallSchedule("--trainers", "3")...), "--trainers: 3: want a divisor of the 64 rollouts")
	fails(t, call(t, "", smallSchedule("--workers", "6000")...), "--rollouts: 40000: want at least 384000")
}

func TestDesignRefusesFlagsOfAScheduleWithoutSim(t *testing.T) {
	fails(t, call(t, "", "design", "--workers", "6", "--rollouts", "5", "--lengths", "10,1,20", "--reward-latency",
		"3,0", "--weight-transfer", "2", "--in-flight", "2", "--seed", "9"),
		"--workers: 6: want this only with --sim", "--rollouts: 5: want this", "--lengths: 10,1,20: want",
		"--reward-latency: 3,0: want", "--weight-transfer: 2: want", "--in-flight: 2: want", "--seed: 9: want")
}

var assignments = regexp.MustCompile(`--set (\S+)`)

// assigned returns the assignments of a command.
func assigned(command string) (set []string) {
	for _, m := range assignments.FindAllStringSubmatch(command, -1) {
		set = append(set, m[1])
	}
	return set
}

func TestTheCommandThatDesignPrintsRunsTheConfiguration(t *testing.T) {
	ways := map[design.Way]int{}
	for _, args := range [][]string{
		{"--noise-scale", "1900"},
		{"--gpus", "2", "--batch", "8", "--noise-scale", "1900"},
		{"--gpus", "9", "--batch", "360", "--group", "6", "--rollout-cost", "0.7", "--noise-scale", "1000"},
		{"--gpus", "40", "--batch", "96", "--group", "16", "--rollout-cost", "20", "--noise-scale", "2000"},
		{"--batch", "3840", "--noise-exponent", "0.1", "--correlation", "0.1", "--noise-scale", "900", "--coherence", "1"},
		{"--batch", "3840", "--noise-exponent", "0.1", "--correlation", "0.1", "--noise-scale", "900", "--coherence", "1",
			"--gpus", "20"},
		{"--gpus", "8192", "--batch", "8192", "--noise-scale", "1e6"},
	} {
		d, text := designedBy(t, args...), succeeds(t, "", append([]string{"design"}, args...)...)
		set := assigned(text[strings.Index(text, "\nrun it"):])
		config, err := loadConfig("../../configs/bare.yaml", set)
		if err != nil {
			t.Errorf("%v: the laboratory refuses %q: %v", args, set, err)
			continue
		}
		p, u := config.Pipeline, d.Recommended
		ways[u.Way]++
		if p.Workers != u.Workers || p.Trainers != u.Trainers || p.Batch != u.Batch || p.RolloutCost != d.RolloutCost ||
			config.Replay.Capacity != u.Capacity || max(1, p.BatchUpdates) != u.Updates ||
			config.Replays() != (u.Way == design.Buffer) {
			t.Errorf("%v: the laboratory reads %+v with a buffer of %d, want %+v", args, p, config.Replay.Capacity, u)
		}
		if want := "reprise train -c configs/bare.yaml --set " + strings.Join(set, " --set "); d.Command != want {
			t.Errorf("%v: the JSON has the command %s, the text %s", args, d.Command, want)
		}
	}
	if ways[design.Queue] == 0 || ways[design.Reuse]+ways[design.Buffer] == 0 {
		t.Errorf("the commands show %v only", ways)
	}
}

// commandFor returns what a recommendation changes of a configuration, and the result.
func commandFor(t *testing.T, text string, use design.Use) (*design.Recommendation, run.Config, run.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	base, err := run.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	known := design.Assumptions()
	known.GiveNoiseScale(1900)
	r := &design.Recommendation{Known: known, Theory: known.Theory(), Fleet: design.Fleet{Group: base.Pipeline.Group},
		Best: &design.Priced{Use: use}}
	setCommand(r, base, path, false)
	config, err := run.Load(path, assigned(r.Command))
	if err != nil {
		t.Fatalf("%s: %v", r.Command, err)
	}
	return r, base, config
}

func TestARecommendationFromARunWithoutReplayTurnsReplayOn(t *testing.T) {
	_, _, config := commandFor(t,
		"replay: {sampler: lifo, capacity: 2048}\npipeline: {mode: sync, batch: 1024, group: 8}\n",
		design.Use{Way: design.Buffer, Batch: 1024, Updates: 1, Workers: 6, Trainers: 2, Capacity: 3000})
	if !config.Replays() || config.Pipeline.Mode != "async" || config.Replay.Capacity != 3000 {
		t.Errorf("the laboratory reads %+v", config)
	}
}

func TestARecommendationToUseRolloutsOnceTurnsReplayOff(t *testing.T) {
	r, base, config := commandFor(t, "replay: {sampler: unseen, capacity: 7680}\n"+
		"pipeline: {workers: 5, trainers: 3, batch: 3840, batch_updates: 2}\nlearner: {clip_low: 0.4, clip_high: 0.4}\n"+
		"budget: {compute: 20}\nevaluate: {every: 1}\n",
		design.Use{Way: design.Queue, Batch: 480, Updates: 1, Workers: 5, Trainers: 1, Capacity: 960})
	if config.Replays() || config.Pipeline.BatchUpdates != 1 || config.Pipeline.Batch != 480 ||
		config.Budget.Compute != 160 || config.Evaluate.Every != 8 || config.Learner.ClipLow != 0.4 {
		t.Errorf("the laboratory reads %+v", config)
	}
	if rate := config.Learner.LearningRate / base.Learner.LearningRate; rate > 0.4 || rate < 0.3 { // the root of 1/8
		t.Errorf("the learning rate is multiplied by %v", rate)
	}
	for _, c := range r.Changes {
		key, _, _ := strings.Cut(c.Assignment, "=")
		about := []string{"pipeline.workers", "pipeline.trainers", "pipeline.batch", "pipeline.batch_updates",
			"replay.capacity", "replay.sampler"}
		if slices.Contains(about, key) == (c.Why != "") {
			t.Errorf("%s has the reason %q", c.Assignment, c.Why)
		}
	}
}

func TestARecommendationKeepsRetentionAndLossOfTheRun(t *testing.T) {
	const text = "replay: {sampler: unseen, capacity: 7680, retention: positive, positive_fraction: 0.4, " +
		"positive_threshold: 0.5}\n" +
		"pipeline: {workers: 5, trainers: 3, batch: 3840}\nlearner: {objective: asymre, shift: -0.2}\n"
	_, base, config := commandFor(t, text,
		design.Use{Way: design.Buffer, Batch: 1920, Updates: 1, Workers: 5, Trainers: 3, Capacity: 7680})
	if config.Pipeline.Batch != 1920 || config.Pipeline.RolloutCost != base.Pipeline.RolloutCost {
		t.Errorf("the laboratory reads %+v", config.Pipeline)
	}
	if config.Learner.Objective != "asymre" || config.Learner.Shift != base.Learner.Shift ||
		!reflect.DeepEqual(config.Replay, base.Replay) {
		t.Errorf("of the run's settings it changed the table or the loss: %+v", config)
	}
	if s := study.Source(base); s.OnlyBatch == "" || s.Way != design.Buffer {
		t.Errorf("a run that keeps right answers is %+v", s)
	}
}

func TestDesignMeasuresARunAndRecommendsAChangeOfItsConfiguration(t *testing.T) {
	dir := whole(t)
	d := designedBy(t, "--from", dir)
	if u := d.Run; u == nil && *d.NoiseScale > 0 || u != nil && (u.Workers+u.Trainers != 5 || u.Batch != 16) {
		t.Errorf("the run has 5 GPUs and batches of 16, it is taken for %+v", u)
	}
	if d.Origins.RolloutCost != "measured" || d.Origins.Noise != "measured" || len(d.Measured) == 0 {
		t.Errorf("measured: %v, %q", d.Origins, d.Measured)
	}
	given := designedBy(t, "--from", dir, "--rollout-cost=7", "--correlation=0.3", "--noise-exponent=0.1", "--gpus=6",
		"--batch=12", "--group=2", "--noise-scale=1000")
	if given.RolloutCost != 7 || given.Correlation != 0.3 || *given.NoiseExponent != 0.1 ||
		given.Origins.Noise != "given" || *given.NoiseScale != 1000 || given.Recommended == nil {
		t.Fatalf("flags do not override --from: %+v", given)
	}
	for _, u := range given.Ways {
		if u.Workers+u.Trainers > 6 || u.Batch != 12 {
			t.Errorf("flags do not override --from: %+v", u)
		}
	}
	want := "reprise train -c " + filepath.Join(dir, "config.yaml") + " --set pipeline.workers="
	if !strings.HasPrefix(given.Command, want) {
		t.Errorf("the command is %s, want it to begin with %s", given.Command, want)
	}
	config, err := run.Load(filepath.Join(dir, "config.yaml"), assigned(given.Command))
	if err != nil || config.Pipeline.Workers != given.Recommended.Workers || config.Pipeline.RolloutCost != 7 ||
		config.Replay.Capacity != given.Recommended.Capacity || config.Policy.Hidden != 16 {
		t.Errorf("the laboratory reads %+v, %v", config, err)
	}
	const noise, correlation = "both profiles are flat", "0.1 is assumed"
	if !said(d.Warnings, noise) || !said(d.Warnings, correlation) || said(given.Warnings, noise) ||
		said(given.Warnings, correlation) {
		t.Errorf("measured it warns %q, and with flags instead %q", d.Warnings, given.Warnings)
	}
}

func TestDesignIsFedByTheGradientsOfARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	train := []string{"train", "-q", "-c", os.DevNull, "--out", dir}
	for _, set := range []string{
		"policy.hidden=16", "policy.intermediate=24", "policy.layers=1", "policy.heads=2", "policy.kv_heads=1",
		"policy.positions=32", "task.max=10", "task.held_out=20", "warmup.steps=200", "warmup.batch=32",
		"warmup.learning_rate=0.01", "generate.max_tokens=4", "pipeline.batch=32", "pipeline.group=4",
		"replay.capacity=256", "evaluate.every=100", "evaluate.samples=0", "budget.compute=0", "budget.updates=30",
	} {
		train = append(train, "--set", set)
	}
	succeeds(t, "", train...)
	args := []string{"design", "--from", dir, "--json", "--gpus", "8", "--batch", "32", "--group", "4"}
	out := call(t, "", args...).stdout
	var got design.Document
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v of %s", err, out)
	}
	if math.Abs(got.RolloutCost/5.28-1) > 0.2 || got.Correlation < 0 || got.Correlation > 1 ||
		!said(got.Measured, dir) || !said(got.Measured, "c = ") {
		t.Errorf("from the run came %+v", got)
	}
	if again := call(t, "", args...).stdout; again != out {
		t.Errorf("measured again it says\n%s\nbefore\n%s", again, out)
	}
}

// smallSchedule runs in well under a second: 6 workers and 2 trainers, mu 5.28, batches of 64 in groups of 8.
func smallSchedule(more ...string) []string {
	return append([]string{"design", "--sim", "--gpus", "8", "--batch", "64", "--group", "8", "--workers", "6",
		"--trainers", "2", "--rollouts", "40000"}, more...)
}

func TestDesignSimTakesItsFlags(t *testing.T) {
	s := designedBy(t, smallSchedule("--lengths", "500,1,4000", "--batching", "static", "--stragglers", "0.5,2",
		"--reward-latency", "10,1",
		"--weight-transfer", "16", "--weight-sync", "token", "--in-flight", "1", "--seed", "7", "--rollout-cost", "6",
		"--capacity", "512")[1:]...).Schedule
	if s == nil || len(s.Arms) != 3 {
		t.Fatalf("no schedule with three arms: %+v", s)
	}
	if s.Lengths.Median != 500 || s.Lengths.Sigma != 1 || s.Lengths.Max != 4000 || s.Batching != "static" ||
		s.Stragglers.Share != 0.5 || s.Stragglers.Factor != 2 ||
		s.RewardLatency.Mean != 10 || s.RewardLatency.Sigma != 1 || s.WeightTransfer != 16 || s.WeightSync != "token" ||
		s.InFlight != 1 || s.Seed != 7 || s.RolloutCost != 6 ||
		s.Workers != 6 || s.Trainers != 2 || s.Rollouts != 40000 || s.Arms[2].Capacity != 512 {
		t.Errorf("the schedule was another: %+v", s)
	}
}

func TestASchedulesBufferKeepsTheHorizonWithOtherGPUs(t *testing.T) {
	r := &design.Recommendation{Plan: design.Plan{
		Configuration: design.Configuration{Workers: 5, Trainers: 1, Batch: 64, Capacity: 512, Horizon: 8},
	}}
	least := 1
	for _, c := range []struct {
		workers, trainers int
		flags             scheduleFlags
		want              int
	}{
		{5, 1, scheduleFlags{}, 512},
		{10, 1, scheduleFlags{}, 8 * 128}, // R is 64 x 10/5
		{10, 2, scheduleFlags{}, 512},
		{10, 2, scheduleFlags{Capacity: &least}, 1},
	} {
		o := pipeline.Options{Workers: c.workers, Trainers: c.trainers, Batch: 64, RolloutCost: 5}
		if got := c.flags.capacity(r, o); got != c.want {
			t.Errorf("with (%d, %d) the capacity is %d, want %d", c.workers, c.trainers, got, c.want)
		}
	}
}

func TestDesignWritesAPageWithItsSchedule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "design.html")
	text := succeeds(t, "", smallSchedule("--html", path)...)
	if !strings.HasSuffix(text, "\npage: "+path+"\n") || !strings.Contains(text, "\na schedule without a model\n") {
		t.Errorf("the text does not end with the schedule and the page:\n%s", text)
	}
	page := read(t, path)
	for _, want := range []string{"Cost over the staleness horizon", "Queues and buffer side by side",
		"reprise design --sim --gpus 8 --batch 64"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestShellWordQuotesWhatAShellWouldSplit(t *testing.T) {
	for word, want := range map[string]string{
		"runs/a-1/config.yaml": "runs/a-1/config.yaml", "--gpus=8": "--gpus=8",
		"my run": "'my run'", "": "''", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}

func TestDesignFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"--rollout-cost 5.28 --noise-scale 1900 --gpus 8", "--gpus 8", "--fleet --gpus 8",
		"--fleet --gpus 1024 --batch 65536 --group 16 --columns routed_experts=192"} {
		text := call(t, "", append([]string{"design"}, strings.Fields(flags)...)...).stdout
		if !strings.Contains(text, "\n") {
			t.Errorf("design %s prints %q", flags, text)
		}
		narrow(t, text)
	}
}

func TestDesignShowsTheServicesForAFleet(t *testing.T) {
	t.Parallel()
	services := func(args ...string) (x design.Topology) {
		t.Helper()
		decode(t, succeeds(t, "", append([]string{"design", "--fleet", "--json"}, args...)...), &x)
		return x
	}
	if x := services(); x.Services != 1 || x.Demand.GPUs != 8 || x.Demand.Replicas != 1 || x.Demand.Batch != 480 {
		t.Errorf("8 GPUs: %+v", x)
	}
	x := services("--gpus", "1024", "--batch", "65536", "--group", "16", "--capacity", "100000", "--node-memory",
		"200GB", "--node-link", "10", "--columns", "routed_experts=192,advantages")
	if x.Demand.Replicas != 3 || x.Demand.Capacity != 100_000 || x.Machine.Link != 1.25e9 || x.Machine.Tables > 150e9 ||
		x.Machine.Tables < 100e9 || len(x.Demand.Columns) != 2 || x.Services < 4 {
		t.Errorf("1,024 GPUs: %+v", x)
	}
	text := succeeds(t, "", "design", "--fleet", "--gpus", "64", "--services", "5")
	for _, want := range []string{"make bench-service", "services needed", "when a service is lost", "5, each on a node"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	fails(t, call(t, "", "design", "--fleet", "--correlation", "0.2", "--sim", "--parts", "3"),
		"--correlation: 0.2: want this without --fleet", "--sim: true: want this", "--parts: 3: want this")
	fails(t, call(t, "", "design", "--replicas", "3", "--node-link", "3"), "--replicas: 3: want this only with --fleet",
		"--node-link: 3: want")
	fails(t, call(t, "", "design", "--fleet", "--columns", "a,values=2"), "--columns: a: want advantages",
		"--columns: values=2: want")
	fails(t, call(t, "", "design", "--fleet", "--replicas", "2", "--gpus", "0", "--node-link=-1"), "--gpus: 0: want 1",
		"--replicas: 2: want 1, 3 or 5", "--node-link: -1.25e+08: want")
}

func TestDesignRunsASchedulesPartsBesideOneTable(t *testing.T) {
	t.Parallel()
	d := designedBy(t, smallSchedule("--parts", "4", "--scope", "global", "--lost-every", "30", "--lost-updates", "9",
		"--lost-for-good")[1:]...)
	want := sim.InParts{Parts: 4, Scope: sim.Global, LostEvery: 30, LostUpdates: 9, ForGood: true}
	if s := d.Schedule; s == nil || s.InParts != want || len(s.Arms) != 5 || s.Arms[4].Absence.Gone == 0 {
		t.Errorf("the schedule is %+v", s)
	}
	fails(t, call(t, "", smallSchedule("--parts", "0", "--scope", "all", "--lost-updates", "5", "--lost-every", "5")...),
		"--parts: 0: want 2 to 256", "--scope: all: want own or global", "--lost-every: 5: want more")
	fails(t, call(t, "", smallSchedule("--lost-updates", "5")...), "--lost-updates: 5: want --parts of 2")
}
