package server

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/tests"
	"github.com/reprise-rl/reprise/lab/policy/hf/jinja"
)

func TestCallsOfToolsAreRead(t *testing.T) {
	const call = `<tool_call>{"name": "add", "arguments": {"b": 2, "a": "x"}}</tool_call>`
	for text, want := range map[string]struct {
		content string
		names   string
		finish  string
	}{
		"19":                            {"19", "", stopped},
		call:                            {"", "add", "tool_calls"},
		"I add.\n" + call + "\n" + call: {"I add.", "add add", "tool_calls"},
		"<tool_call>{\"name\": \"add\"": {"<tool_call>{\"name\": \"add\"", "", stopped},
		`<tool_call>{"name": "add", "arguments": 3}</tool_call>`: {
			`<tool_call>{"name": "add", "arguments": 3}</tool_call>`, "", stopped},
		strings.TrimSuffix(call, "</tool_call>"): {"", "add", "tool_calls"}, // its end may be a token that is not shown
		"over END " + call:                       {"over ", "", stopped},
	} {
		b := chatRequest{tools: true, stop: []string{"END"}}
		m := b.read(text)
		var names []string
		for _, c := range m.calls {
			f := c["function"].(map[string]string)
			names = append(names, f["name"])
			if f["arguments"] != `{"b": 2, "a": "x"}` {
				t.Errorf("%q: arguments %s", text, f["arguments"])
			}
		}
		if _, finish := m.wire(stopped); m.content != want.content || strings.Join(names, " ") != want.names ||
			finish != want.finish {
			t.Errorf("%q: %+v, %s, want %+v", text, m, finish, want)
		}
	}
	without := chatRequest{}
	if m := without.read(call); m.content != call || m.calls != nil {
		t.Errorf("without tools: %+v", m)
	}
}

// What is streamed of an unfinished text is the beginning of the content of the finished one.
func TestAStreamNeverTakesBackWhatItSent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"<tool_call>", `{"name": "f", "arguments": {}}`, "</tool_call>", "<tool", " ", "\n", "x", "é",
		"EN", "END",
		"D", "<"}
	for range tests.Rounds(100_000, 5000, 1000) {
		b := chatRequest{tools: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			b.stop = []string{"END", "xx"}
		}
		text := ""
		for range rng.IntN(8) {
			text += parts[rng.IntN(len(parts))]
		}
		content := b.read(text).content
		sent := 0
		for n := range len(text) + 1 {
			part := strings.ToValidUTF8(text[:n], "\ufffd") // as Decode gives a token that ends within a character
			if sure := b.sure(part); sure > sent {
				sent = sure
				if !strings.HasPrefix(content, part[:sent]) {
					t.Fatalf("of %q, tools %v, stops %q: sent %q, the content is %q", text, b.tools, b.stop, part[:sent], content)
				}
			}
		}
	}
}

func TestMessagesAreDecodedForTemplates(t *testing.T) {
	list, err := messagesOf(json.RawMessage(`[{"role": "user", "content": [{"type": "text", "text": "a"},
		{"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function":
		{"name": "f", "arguments": "{\"z\": 1, \"a\": 2.5}"}}, {"function": {"name": "g", "arguments": ""}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := []any{
		jinja.Dict{{Key: "role", Value: "user"}, {Key: "content", Value: "a\nb"}},
		jinja.Dict{{Key: "role", Value: "assistant"}, {Key: "content", Value: nil}, {Key: "tool_calls", Value: []any{
			jinja.Dict{{Key: "id", Value: "1"}, {Key: "function", Value: jinja.Dict{{Key: "name", Value: "f"},
				{Key: "arguments", Value: jinja.Dict{{Key: "z", Value: 1}, {Key: "a", Value: 2.5}}}}}},
			jinja.Dict{{Key: "function", Value: jinja.Dict{{Key: "name", Value: "g"}, {Key: "arguments",
				Value: jinja.Dict{}}}}},
		}}},
	}
	if !reflect.DeepEqual(list, want) {
		t.Errorf("%v, want %v", list, want)
	}
	for text, part := range map[string]string{
		`{}`:                 "a list",
		`[]`:                 "one message",
		`[1]`:                "messages[0]",
		`[{"content": "x"}]`: "a role",
		`[{"role": "user", "content": [{"type": "image_url"}]}]`:            "image_url",
		`[{"role": "a", "tool_calls": [{"function": {"arguments": "{"}}]}]`: "want JSON",
		`[{"role": ` + strings.Repeat("[", 500):                             "a list",
	} {
		if _, err := messagesOf(json.RawMessage(text)); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.60s: %v, want %q", text, err, part)
		}
	}
}
