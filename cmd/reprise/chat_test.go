package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire"
	"github.com/reprise-rl/reprise/wire/archive"
)

// chatFolder writes a tokenizer of characters, <eos> 1 and its first character 2, with a chat template.
func chatFolder(t *testing.T, template string) string {
	t.Helper()
	dir := t.TempDir()
	tokenizer, err := hf.NewCharTokenizer("0123456789+=?!")
	if err != nil {
		t.Fatal(err)
	}
	if err := tokenizer.Write(dir); err != nil {
		t.Fatal(err)
	}
	if template != "" {
		if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The system's message ends with !, the user's with =, the assistant's with <eos>.
const sums = "{% for m in messages %}{{ m.content }}{% if m.role == 'system' %}!{% elif m.role == 'user' %}=" +
	"{% else %}<eos>{% endif %}{% endfor %}"

func TestChatsEnterAsOfflineRollouts(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=chats,unknown_logprobs=true", "name=strict")
	folder, dir := chatFolder(t, sums), t.TempDir()
	rows := filepath.Join(dir, "rows.jsonl")
	text := `{"messages":[{"role":"system","content":"9"},{"role":"user","content":"1+1"},` +
		`{"role":"assistant","content":"2"},{"role":"user","content":"+3"},{"role":"assistant","content":"5"},` +
		`{"role":"user","content":"?"}],"source":"web"}
{"prompt":"1+1=","completion":"2","reward":0.5,"prompt_id":"sum","messages":null}
` + `{"prompt":[{"role":"user","content":"4"},{"role":"assistant","content":"4"},{"role":"user","content":"0"}],` +
		`"completion":"7"}`
	if err := os.WriteFile(rows, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := s.at.GRPC
	fails(t, call(t, "", "import", rows, at+"/chats"), "has chats and no tokens", "--tokenizer")
	fails(t, call(t, "", "import", rows, at+"/strict", "--tokenizer", folder), "unknown_logprobs=true")
	said := succeeds(t, "", "import", rows, at+"/chats", "--tokenizer", folder)
	for _, want := range []string{"3 rollouts in 3 groups", "left out: source", "it holds 3 rollouts"} {
		if !strings.Contains(said, want) {
			t.Errorf("import said %q: want %q", said, want)
		}
	}
	out := filepath.Join(dir, "out.arrow")
	succeeds(t, "", "export", at+"/chats", "--out", out)
	draws, err := wire.Draws(rowsOf(t, out)[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		tokens, mask string // a token by its character, <eos> as .
		reward       float32
		text         string
		turns        []rollout.Turn
	}{
		{"9!1+1=2.+3=5.", "0000001100011", 1, "2\n\n5",
			[]rollout.Turn{{Start: 6, End: 8}, {Start: 11, End: 13, Reward: 1, Done: true}}},
		{"1+1=2.", "000011", 0.5, "2", nil},
		{"4=4.0=7.", "00000011", 1, "7", nil},
	} {
		r := draws[i].Rollout
		var tokens, mask strings.Builder
		for k, id := range r.Tokens {
			tokens.WriteByte(("_.0123456789+=?!")[id])
			fmt.Fprint(&mask, r.Mask[k])
			if policy := r.Mask[k] == 1; policy != math.IsNaN(float64(r.Logprobs[k])) || policy != (r.Versions[k] == 0) {
				t.Errorf("rollout %d: token %d has log-prob %v and version %d", i, k, r.Logprobs[k], r.Versions[k])
			}
		}
		if tokens.String() != want.tokens || mask.String() != want.mask || r.Reward != want.reward || r.Text != want.text ||
			!slices.Equal(r.Turns, want.turns) || r.Meta["offline"] != "1" {
			t.Errorf("rollout %d is %s %s %+v, want %+v", i, tokens.String(), mask.String(), *r, want)
		}
	}
	if a, b := draws[0].Rollout.PromptID, draws[2].Rollout.PromptID; draws[1].Rollout.PromptID != "sum" || a == b ||
		!strings.HasPrefix(a, "chat-") {
		t.Errorf("prompts %q and %q", a, b)
	}
}

func TestChatsOfParquetAreThoseOfJSONLines(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=chats,unknown_logprobs=true")
	text := arrow.BinaryTypes.String
	said := arrow.ListOf(arrow.StructOf(arrow.Field{Name: "content", Type: text, Nullable: true},
		arrow.Field{Name: "role", Type: text, Nullable: true}))
	b := array.NewBuilder(memory.DefaultAllocator, said)
	chat := `[{"role":"user","content":"1"},{"role":"assistant","content":"2"}]`
	if err := b.UnmarshalJSON([]byte(`[` + chat + `,null]`)); err != nil {
		t.Fatal(err)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "messages", Type: said, Nullable: true}}, nil)
	all := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 2)
	for rows, want := range map[int64]string{
		1: "1 rollouts in 1 groups", 2: "row 1: completion is missing, as is messages",
	} {
		folder := filepath.Join(t.TempDir(), "chats")
		_, err := archive.WriteDataset(folder, schema, archive.DatasetOptions{Format: archive.Parquet},
			func(add func(arrow.RecordBatch) error) error { return add(all.NewSlice(0, rows)) })
		if err != nil {
			t.Fatal(err)
		}
		o := call(t, "", "import", folder, s.at.GRPC+"/chats", "--tokenizer", chatFolder(t, sums), "--at-version", "0")
		if !strings.Contains(o.stdout+o.stderr, want) {
			t.Errorf("%+v: want %q", o, want)
		}
	}
}

func TestErrorsOfChatsNameLineFieldValueAndRemedy(t *testing.T) {
	t.Parallel()
	s := startTables(t, "name=chats,unknown_logprobs=true")
	folder, plain := chatFolder(t, sums), chatFolder(t, "")
	for text, want := range map[string]string{
		`{"messages":[{"role":"user","content":"1"}]}`:        "messages is without a message of the assistant: give one",
		`{"messages":[{"role":"assistant","content":["2"]}]}`: `messages[0].content is ["2"]: give a text`,
		`{"messages":[{"content":"2"}]}`:                      "messages[0].role is null: give a text",
		`{"messages":7}`:                                      "messages is 7: give a list of objects",
		`{"prompt":"1"}`:                                      "completion is missing",
		`{"completion":"1"}`:                                  "prompt is missing",
		`{"prompt":"1","completion":"x"}`:                     `completion is "x": `,
		`{"prompt":"1","completion":"2","reward":"much"}`:     `reward is "much": give a number`,
		`{"prompt":"1","completion":"2","reward":1e12}`:       "reward is 1e+12: give a reward",
		`{"prompt":"1","completion":"2","messages":[]}`:       "messages is given beside completion",
		`[1]`: "write one JSON object a line",
		`{"prompt":"1","completion":[{"role":"user","content":"2"}]} `: "completion is without a message",
	} {
		rows := filepath.Join(t.TempDir(), "rows.jsonl")
		good := `{"prompt":"1","completion":"2"}` + "\n\n"
		if err := os.WriteFile(rows, []byte(good+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		fails(t, call(t, "", "import", rows, s.at.GRPC+"/chats", "--tokenizer", folder), "rows.jsonl: line 3: ", want)
	}
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(rows, []byte(`{"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, call(t, "", "import", rows, s.at.GRPC+"/chats", "--tokenizer", plain), "line 1", "chat_template.jinja")
	fails(t, call(t, "", "import", rows, s.at.GRPC+"/chats", "--tokenizer", t.TempDir()), "has no tokenizer.json")
	for _, version := range []string{"-1", "3", "4294967296"} {
		fails(t, call(t, "", "import", rows, s.at.GRPC+"/chats", "--tokenizer", folder, "--at-version="+version),
			"--at-version "+version+": want 0 to 0, the version of table chats")
	}
	out := strings.Fields(succeeds(t, "", "table", "list", s.at.GRPC))
	if !strings.Contains(strings.Join(out, " "), "chats 0 ") {
		t.Errorf("a row of a bad file entered: %s", out)
	}
}
