package design

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/replay"
	"github.com/reprise-rl/reprise/rollout"
)

var writeGolden = flag.Bool("write-golden", false, "write the golden files anew")

func TestARolloutTakesWhatATableCharges(t *testing.T) {
	if tableOverhead != replay.RolloutOverhead {
		t.Errorf("%d bytes beside its content, and a table charges %d", tableOverhead, replay.RolloutOverhead)
	}
}

// aDemand is that of 64 GPUs, what reprise design --fleet assumes.
func aDemand() Demand {
	return Demand{GPUs: 64, TokensPerSecond: 2000, Prompt: 512, Completion: 2048, Group: 8, Batch: 3840, Uses: 4,
		MaxStaleness: 8, Replicas: 3}
}

func aMachine() Machine { return Machine{Memory: 64e9, Tables: 36.9e9, Link: 25e9 / 8, Disk: 1e9} }

func placed(t *testing.T, d Demand, m Machine) *Topology {
	t.Helper()
	x, err := d.Topology(m)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func columns(t *testing.T, texts ...string) (list []Column) {
	t.Helper()
	for _, text := range texts {
		c, err := ParseColumn(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// randomDemand draws demands from laptops to the largest clusters. Most of them can be served.
func randomDemand(rng *rand.Rand) (Demand, Machine) {
	scale := func(low, high float64) float64 { return low * math.Exp(rng.Float64()*math.Log(high/low)) }
	d := Demand{
		GPUs: int(scale(1, 20_000)), TokensPerSecond: scale(10, 10_000), Prompt: rng.IntN(4096),
		Completion: int(scale(16, 65_536)), Group: 1 + rng.IntN(32), Batch: int(scale(64, 200_000)),
		MaxStaleness: rng.IntN(32), Replicas: 1 + 2*rng.IntN(3),
	}
	d.Uses = 0.5 + rng.Float64()*(float64(d.MaxStaleness)+0.5)
	for _, c := range []Column{{"values", 4, 0, false}, {"routed_experts", 384, 0, true}, {"text", 0, 9000, false}} {
		if rng.IntN(2) == 0 {
			d.Columns = append(d.Columns, c)
		}
	}
	m := Machine{Memory: scale(8e9, 2e12), Link: scale(1e8, 5e10), Disk: scale(1e8, 1e10)}
	m.Tables = 0.5 * m.Memory
	return d, m
}

func TestATopologyIsTheFewestServicesThatSuffice(t *testing.T) {
	const seed = 7
	rng, served := rand.New(rand.NewPCG(seed, 0)), 0
	for i := range 3000 {
		d, m := randomDemand(rng)
		x, err := d.Topology(m)
		if err != nil {
			if !strings.Contains(err.Error(), "a table has no more parts") {
				t.Fatalf("demand %d of seed %d: %v", i, seed, err)
			}
			continue
		}
		served++
		// The parts of the first service move to as many others, which own as many as it did and one more.
		busiest := x.Parts / x.Services
		if d.Replicas > 1 {
			busiest++
		}
		for _, r := range x.Resources {
			if r.Each > r.Limit || math.Abs(r.Each*float64(x.Parts)-r.Total*float64(busiest)) > 1e-9*r.Total*8 {
				t.Fatalf("demand %d of seed %d: %d services take %s: %+v", i, seed, x.Services, r.Name, r)
			}
			if r.Needs < d.Replicas || r.Needs > x.Services {
				t.Fatalf("demand %d of seed %d: %s needs %d of %d services", i, seed, r.Name, r.Needs, x.Services)
			}
		}
		fewer := d
		if fewer.Services = x.Services - 1; fewer.Services >= d.Replicas {
			if said := placed(t, fewer, m).Warnings; !strings.Contains(strings.Join(said, "\n"), "not suffice") {
				t.Fatalf("demand %d of seed %d: %d services, though fewer suffice: %q", i, seed, x.Services, said)
			}
		}
		if x.Parts < x.Services || x.Parts%x.Services != 0 || x.Parts > maxParts || x.Services < d.Replicas {
			t.Fatalf("demand %d of seed %d: %d parts on %d services", i, seed, x.Parts, x.Services)
		}
	}
	if served < 1000 {
		t.Errorf("only %d of 3000 demands could be served", served)
	}
}

func TestWhatIsInsertedIsDrawnCopiedAndKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 0))
	for range 500 {
		d, m := randomDemand(rng)
		x, err := d.Topology(m)
		if err != nil {
			continue
		}
		near(t, "the tokens a second", x.RolloutsPerSecond*float64(d.Completion), float64(d.GPUs)*d.TokensPerSecond, 1e-9)
		near(t, "what an update inserts", x.In*x.UpdateSeconds, x.NewPerUpdate*x.RolloutBytes, 1e-9)
		near(t, "what an update draws", x.Out*x.UpdateSeconds, float64(d.Batch)*x.RolloutBytes, 1e-9)
		near(t, "what is copied", x.Copied, x.In*(1-x.OffLogBytes/x.RolloutBytes)*float64(d.Replicas-1), 1e-9)
		near(t, "the links' traffic", x.Resources[2].Total+x.Resources[3].Total, x.In+x.Out+2*x.Copied, 1e-9)
		kept, least := float64(x.Demand.Capacity), x.NewPerUpdate*float64(d.MaxStaleness+1)
		if x.Demand.Capacity%d.Group != 0 || kept < least*(1-1e-12) || kept >= least+float64(d.Group) {
			t.Fatalf("%v rollouts are kept, want whole groups of %d that make %g", kept, d.Group, least)
		}
		near(t, "the time to make a lost service's rollouts anew", x.Lost.RegenerateAfter*x.RolloutsPerSecond,
			float64(x.Lost.Rollouts), 1e-9)
		if d.Replicas > 1 && x.Lost.Rollouts != 0 || d.Replicas == 1 && x.Lost.Rollouts*x.Services < x.Demand.Capacity {
			t.Fatalf("one of %d services with %d replicas loses %d of %v", x.Services, d.Replicas, x.Lost.Rollouts, kept)
		}
	}
}

func TestMoreToServeNeverTakesFewerServicesAndLargerNodesNeverMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	more := map[string]func(*Demand){
		"GPUs":          func(d *Demand) { d.GPUs *= 3 },
		"tokens/s":      func(d *Demand) { d.TokensPerSecond *= 2 },
		"columns":       func(d *Demand) { d.Columns = append(d.Columns, Column{Name: "x_more", PerRollout: 1e5}) },
		"max_staleness": func(d *Demand) { d.MaxStaleness *= 2 },
	}
	larger := map[string]func(*Machine){
		"memory": func(m *Machine) { m.Memory, m.Tables = 2*m.Memory, 2*m.Tables },
		"link":   func(m *Machine) { m.Link *= 2 },
		"disk":   func(m *Machine) { m.Disk *= 2 },
	}
	needs := func(d Demand, m Machine) int {
		x, err := d.Topology(m)
		if err != nil {
			return math.MaxInt
		}
		return x.Services
	}
	grew, shrank := 0, 0
	for range 500 {
		d, m := randomDemand(rng)
		d.GPUs, d.TokensPerSecond = min(d.GPUs, 300_000), min(d.TokensPerSecond, 500_000)
		n := needs(d, m)
		for what, change := range more {
			other := d
			other.Columns = append([]Column(nil), d.Columns...)
			change(&other)
			if got := needs(other, m); got < n {
				t.Fatalf("more %s: %d services instead of %d for %+v", what, got, n, d)
			} else if got > n {
				grew++
			}
		}
		for what, change := range larger {
			other := m
			change(&other)
			if got := needs(d, other); got > n {
				t.Fatalf("more %s: %d services instead of %d for %+v", what, got, n, d)
			} else if got < n {
				shrank++
			}
		}
	}
	if grew < 100 || shrank < 100 {
		t.Errorf("of 500 demands only %d changes took more services and %d fewer", grew, shrank)
	}
}

func TestAThousandGPUsMakeTwentySevenMegabytesASecond(t *testing.T) {
	d := aDemand()
	d.GPUs, d.Prompt = 1024, 0
	x := placed(t, d, aMachine())
	if want := 1024*2000*13 + x.RolloutsPerSecond*13; math.Abs(x.In-want) > 1 || math.Abs(x.In-26.6e6) > 0.1e6 {
		t.Errorf("1,024 GPUs of 2,000 tokens/s insert %g bytes/s, want %g", x.In, want)
	}
	d.Columns = columns(t, "routed_experts=192")
	with := placed(t, d, aMachine())
	if experts := with.In - x.In; math.Abs(experts-1024*2000*384) > 1 {
		t.Errorf("384 bytes of experts a token are %g bytes/s, want 0.79e9", experts)
	}
	if with.Copied != x.Copied || !strings.Contains(strings.Join(with.Warnings, "\n"),
		"routed_experts is 786 MB/s: it stays off the replicated log, where 3 copies would move 1.57 GB/s more") {
		t.Errorf("experts are copied, %g instead of %g bytes/s, or nothing is said of them: %q", with.Copied, x.Copied,
			with.Warnings)
	}
	d.Replicas = 1
	if one := placed(t, d, aMachine()); one.OffLogBytes != 0 || len(one.Warnings) != 0 || one.Lost.OffLogRollouts != 0 {
		t.Errorf("without copies columns stay off the log: %+v", one)
	}
}

func TestTheBytesOfARolloutAreThoseOfItsPayload(t *testing.T) {
	const prompt, completion = 3, 5
	const n = prompt + completion
	r := rollout.Rollout{
		Tokens: make([]int32, n), Mask: make([]uint8, n), Logprobs: make([]float32, n),
		Versions: make([]rollout.Version, n), Advantages: make([]float32, n), Values: make([]float32, n),
		RefLogprobs: make([]float32, n), RoutedExperts: make([]uint16, 6*n), Text: strings.Repeat("a", 11),
		Images: [][]byte{make([]byte, 70)}, Extra: make([]byte, 9),
		SamplingMask: rollout.IDLists{Ends: make([]int32, n), IDs: make([]int32, 4*n)},
	}
	d := aDemand()
	d.Prompt, d.Completion = prompt, completion
	d.Columns = columns(t, "advantages", "values", "ref_logprobs", "routed_experts=6", "text=11", "images=70", "x_a=9",
		"sampling_mask=4")
	if x := placed(t, d, aMachine()); x.RolloutBytes != float64(r.Bytes()) {
		t.Errorf("a rollout with every column has %g bytes, its payload is %d", x.RolloutBytes, r.Bytes())
	}
}

// number returns the only group of a pattern in a document, thousands without commas.
func number(t *testing.T, path, pattern string) float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has nothing like %s", path, pattern)
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(string(m[1]), ",", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMeasuredFiguresAreThoseOfTheBenchmarks(t *testing.T) {
	const service, peers = "benchmarks/service/README.md", "benchmarks/peers/README.md"
	for i, tokens := range []string{"256", "4,096", "32,768"} {
		section := func(call, line string) float64 {
			return 1e9 * number(t, service, `\n`+call+` 64 x `+tokens+` tokens(?:.*\n)*?    `+line+` +([\d.]+)`)
		}
		insert, sample := section("insert", "service, durable"), section("sample", "service")
		if math.Abs(rates[i].durable-insert) > 1 || math.Abs(rates[i].sample-sample) > 1 {
			t.Errorf("%s tokens: rates are %g and %g, %s has %g and %g", tokens, rates[i].durable, rates[i].sample,
				service, insert, sample)
		}
	}
	if v := number(t, peers, `\| reprise \|.*\| ([\d.]+) \|\n`); v != processOverPayload {
		t.Errorf("%s: memory is %g of the payload, here %g", peers, v, processOverPayload)
	}
	const killed = `\| reprise, in memory / sync interval / always / off \|`
	rollouts := number(t, peers, killed+` [\d,]+ / ([\d,]+)`)
	seconds := number(t, peers, killed+`.*\| [\d.]+ / ([\d.]+) [^|]*\|\n`)
	if want := rollouts * 512 * 13 / seconds; math.Abs(recovery-want) > 1 {
		t.Errorf("%s: %g bytes/s are read back after a kill, here %g", peers, want, recovery)
	}
	for tokens, want := range map[float64]float64{1: 0.13e9, 256: 0.13e9, 1024: 0.29e9, 4096: 0.45e9, 1e6: 0.67e9} {
		if got := rateAt(tokens, func(i int) float64 { return rates[i].durable }); math.Abs(got-want) > 1 {
			t.Errorf("at %g tokens the rate is %g, want %g", tokens, got, want)
		}
	}
}

func TestTooFewServicesAreNamedWithWhatTheyLack(t *testing.T) {
	d, m := aDemand(), aMachine()
	d.GPUs, d.Services, d.Columns = 8192, 4, columns(t, "advantages")
	m.Link = 1e9 / 8
	x := placed(t, d, m)
	said := strings.Join(x.Warnings, "\n")
	if x.Services != 4 || !strings.Contains(said, "Link, in does not suffice") ||
		!strings.Contains(said, "Processor does not suffice") || strings.Contains(said, "Memory does not") {
		t.Errorf("4 services: %q", x.Warnings)
	}
	d.Services = 0
	enough := placed(t, d, m)
	for _, w := range enough.Warnings {
		if strings.Contains(w, "not suffice") {
			t.Errorf("%d services: %s", enough.Services, w)
		}
	}
	d.Services, d.MaxStaleness, m.Tables = 3, 100, 1e9
	if said := strings.Join(placed(t, d, m).Warnings, "\n"); !strings.Contains(said, "Memory does not suffice") {
		t.Errorf("nothing is said of memory: %s", said)
	}
	d.Services, d.GPUs = 0, 1_000_000
	if _, err := d.Topology(m); err == nil || !strings.Contains(err.Error(), "a table has no more parts") {
		t.Errorf("a million GPUs on small nodes: %v", err)
	}
}

func TestWrongDemandsAreRefusedAllAtOnce(t *testing.T) {
	_, err := Demand{TokensPerSecond: math.NaN(), Prompt: -1, Group: 3, Uses: -1, MaxStaleness: -2, Capacity: -1,
		Replicas: 2, Services: 300}.Topology(Machine{Link: math.Inf(1)})
	for _, want := range []string{"gpus: 0", "tokens_per_second: NaN", "prompt: -1", "completion: 0", "batch: 0",
		"group: 3", "uses: -1", "max_staleness: -2", "capacity: -1", "replicas: 2", "services: 300", "node_memory: 0",
		"node_link: +Inf", "node_disk: 0"} {
		if err == nil || !strings.Contains(err.Error(), want+": want") {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	d := aDemand()
	d.MaxStaleness = 2
	if _, err := d.Topology(aMachine()); err == nil || !strings.Contains(err.Error(), "uses: 4: want at most "+
		"max_staleness + 1 (3)") {
		t.Errorf("rollouts that leave before they were drawn 4 times: %v", err)
	}
	for _, text := range []string{"", "tokens=3", "routed_experts", "routed_experts=-1", "values=3", "text=x", "y_a=1"} {
		if _, err := ParseColumn(text); err == nil || !strings.Contains(err.Error(), "columns: ") {
			t.Errorf("column %q: %v", text, err)
		}
	}
}

func TestTheTextOfATopologyIsGolden(t *testing.T) {
	d := aDemand()
	d.GPUs, d.Batch, d.Group = 1024, 65_536, 16
	d.Columns = columns(t, "advantages", "routed_experts=192")
	text := placed(t, d, aMachine()).Text()
	const path = "testdata/topology.txt"
	if *writeGolden {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != text {
		t.Errorf("the text is not that of %s (%v): run go test ./lab/design -run Golden -write-golden, and read the "+
			"difference\n%s", path, err, text)
	}
}
