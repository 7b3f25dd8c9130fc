package countdown

import (
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/task"
)

func TestExpressionsAreRewardedByValueAndNumbers(t *testing.T) {
	for _, c := range []struct {
		verifier  Verifier
		answer    string
		response  string
		reward    float32
		extracted string
	}{
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)", 1, "(5-3)*(7+5)"},
		{Verifier{}, "(5-3)*(7+5)", "(7+5)*(5-3)", 1, "(7+5)*(5-3)"},
		{Verifier{}, "3 5 5 7=24", " ( 5 − 3 ) × ( 7 + 5 )\n", 1, "( 5 − 3 ) × ( 7 + 5 )"},
		{Verifier{}, "3 5 5 7=24", "(5-3)*7+5", 0.1, "(5-3)*7+5"},
		{Verifier{FormatReward: 0.3}, "3 5 5 7=24", "(5-3)*7+5", 0.3, "(5-3)*7+5"},
		{Verifier{FormatReward: -1}, "3 5 5 7=24", "(5-3)*7+5", 0, "(5-3)*7+5"},
		{Verifier{}, "3 5 5 7=24", "3/(5-5)+7", 0.1, "3/(5-5)+7"}, // divides by zero
		{Verifier{}, "3 5 5 7=24", "(5-3)*12", 0, ""},             // other numbers
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)*1", 0, ""},
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+3)", 0, ""}, // one of them twice
		{Verifier{}, "3 5 5 7=24", "5-3", 0, ""},         // not all
		{Verifier{Use: Any}, "3 5 5 7=2", "5-3", 1, "5-3"},
		{Verifier{Use: Any}, "3 5 5 7=10", "5+5", 1, "5+5"},
		{Verifier{Use: Any}, "3 5 7=10", "5+5", 0, ""},
		{Verifier{Use: Any}, "3 5 7=10", "7", 0.1, "7"},
		{Verifier{}, "3 5 5 7=24", "24", 0, ""},
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)=24", 0, ""},
		{Verifier{}, "3 5 5 7=24", "35*5-7", 0, ""}, // digits are not joined
		{Verifier{}, "3 5 5 7=24", "", 0, ""},
		{Verifier{}, "3 5 5 7=24", "So: <answer> (5-3)*(7+5) </answer>.", 1, "(5-3)*(7+5)"},
		{Verifier{}, "3 5 5 7=24", "<answer>3</answer> no <answer>(5-3)*(7+5)</answer>", 1, "(5-3)*(7+5)"}, // the last counts
		{Verifier{}, "3 5 5 7=24", "<answer>(5-3)*(7+5)</answer> no <answer>3</answer>", 0, ""},
		{Verifier{}, "3 5 5 7=24", "<answer>(5-3)*(7+5)", 0, ""},
		{Verifier{}, "3 5 5 7=24", "(5-3)*(7+5)</answer>", 0, ""},
		{Verifier{}, "1 3=4", "1+3", 1, "1+3"},
		{Verifier{}, "1 3=-2", "1-3", 1, "1-3"},
		{Verifier{}, "1/3", "1/3", 1, "1/3"}, // an expression asks for its value, whole or not
		{Verifier{}, "four", "4", 0, ""},
		{Verifier{}, "1/0", "1/0", 0, ""},
		{Verifier{}, "", "", 0, ""},
	} {
		got := c.verifier.Verify(task.Prompt{Answer: c.answer}, c.response)
		if got.Reward != c.reward || got.Correct != (c.reward == 1) || got.Extracted != c.extracted {
			t.Errorf("%+v %q for %q: %+v, want %g and %q", c.verifier, c.response, c.answer, got, c.reward, c.extracted)
		}
	}
}

func TestAnswersWithoutAProblemSayWhy(t *testing.T) {
	for answer, want := range map[string]string{
		"3 5=15":     "",
		"3*5":        "",
		" 3  5 =-2 ": "",
		"":           "neither an expression nor",
		"four":       "neither an expression nor",
		"3/(1-1)":    "divides by zero",
		"=5":         "no numbers",
		"3 x=5":      `"x" is no number`,
		"3 -5=5":     `"-5" is no number`,
		"3 5=":       `"" is no number`,
		"3 5=7=9":    `"7=9" is no number`,
		"3 5=1.5":    `"1.5" is no number`,
	} {
		err := Verifier{}.CheckAnswer(answer)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", answer, err, want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("3 5=15", "3*5")
	f.Add("3*5", "<answer>5*3</answer>")
	f.Add("=\xff", "</answer><answer>")
	f.Fuzz(func(t *testing.T, answer, response string) {
		v := Verifier{}.Verify(task.Prompt{Answer: answer}, response)
		if v.Correct != (v.Reward == 1) || v.Reward != 0 && v.Reward != 1 && v.Reward != 0.1 || (v.Reward == 0) != (v.Extracted == "") {
			t.Fatalf("%q for %q: %+v", response, answer, v)
		}
		if v.Reward > 0 && (Verifier{}).CheckAnswer(answer) != nil {
			t.Fatalf("%q for %q, which is no problem: %+v", response, answer, v)
		}
	})
}
