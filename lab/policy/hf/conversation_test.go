package hf

import (
	"slices"
	"strings"
	"testing"
)

// A conversation of a question, an answer and an observation is the row that transformers renders, and that a worker
// puts together turn by turn.
func TestAConversationIsTheRowOfItsDialogue(t *testing.T) {
	for kind, golden := range readChatGolden(t).Kinds {
		d, err := chatTokenizer(t, kind).Chat()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range golden.Cases {
			ids, turns, err := d.Conversation([]Message{{"user", strings.Trim(c.Question, "\n")}, {"assistant", c.Answer},
				{"user", strings.Trim(c.Observed, "\n")}, {"assistant", "4"}, {"user", "left out"}})
			if err != nil {
				t.Fatal(err)
			}
			first, err := d.Turn(c.Answer)
			if err != nil {
				t.Fatal(err)
			}
			observed, err := d.Observation(c.Observed, d.end)
			if err != nil {
				t.Fatal(err)
			}
			last, err := d.Turn("4")
			if err != nil {
				t.Fatal(err)
			}
			if want := slices.Concat(c.PromptIDs, first, observed, last); !slices.Equal(ids, want) {
				t.Errorf("%s: the ids are %v, want %v", kind, ids, want)
			}
			start := len(c.PromptIDs)
			want := []Turn{{1, start, start + len(first)}, {3, len(ids) - len(last), len(ids)}}
			if !slices.Equal(turns, want) {
				t.Errorf("%s: the turns are %v, want %v", kind, turns, want)
			}
		}
	}
}

func TestASystemMessageComesBeforeTheQuestion(t *testing.T) {
	tok := chatTokenizer(t, "chatml")
	d, err := tok.Chat()
	if err != nil {
		t.Fatal(err)
	}
	ids, turns, err := d.Conversation([]Message{{"system", "be brief"}, {"user", "2+2"}, {"assistant", "4"}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := tok.EncodePart("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n2+2<|im_end|>\n" +
		"<|im_start|>assistant\n4<|im_end|>")
	if err != nil || !slices.Equal(ids, want) || len(turns) != 1 || turns[0].End != len(ids) {
		t.Errorf("%v %v, %v, want %v", ids, turns, err, want)
	}
	if _, _, err := d.Conversation([]Message{{"user", "2+2"}}); err == nil || !strings.Contains(err.Error(), "assistant") {
		t.Errorf("without an answer: %v", err)
	}
}
