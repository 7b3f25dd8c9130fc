package search

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// folder writes files and returns the folder that they are in.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const rivers = `{"version": "1.1", "data": [{"title": "Rivers_of_Europe", "paragraphs": [
	{"context": "The Rhine is 1,233 km long. It ends in the North Sea.", "qas": [
		{"id": "1", "question": "How long is the  Rhine?", "answers": [{"text": "1,233 km", "answer_start": 13}, {"text": "1,233 km"}]},
		{"question": "Where does it begin?", "is_impossible": true, "answers": []}]},
	{"context": "The Danube ends in the Black Sea.", "qas": [
		{"question": "How long is the Rhine?", "answers": [{"text": "long"}]},
		{"question": "Where does the Danube end?", "answers": [{"text": "the Black Sea"}]}]}]}]}`

func TestCorporaAreReadFromFoldersOfTextAndSQuADFiles(t *testing.T) {
	root := folder(t, map[string]string{
		"b.json":       rivers,
		"a.txt":        "\n\nFirst line\n second line.\r\n\r\nNext paragraph.\n \t\nFirst line second line.",
		"below/c.TXT":  "Bytes that are \xff no text",
		"readme.md":    "passed over",
		"notes.jsonl":  "{",
		"empty.txt":    "",
		"below/z.JSON": `{"data": [{"paragraphs": [{"context": "Without title or questions."}]}]}`,
	})
	got, err := loadCorpus(root, 600)
	if err != nil {
		t.Fatal(err)
	}
	passages := []string{
		"First line second line.", "Next paragraph.",
		"Rivers of Europe: The Rhine is 1,233 km long. It ends in the North Sea.",
		"Rivers of Europe: The Danube ends in the Black Sea.",
		"Bytes that are \uFFFD no text",
		"Without title or questions.",
	}
	questions := []question{
		{"How long is the Rhine?", "Rivers of Europe", []string{"1,233 km", "long"}},
		{"Where does the Danube end?", "Rivers of Europe", []string{"the Black Sea"}},
	}
	if !reflect.DeepEqual(got.passages, passages) || !reflect.DeepEqual(got.questions, questions) {
		t.Errorf("%+v\nwant %q\nand %+v", got, passages, questions)
	}
	if one, err := loadCorpus(filepath.Join(root, "a.txt"), 600); err != nil || len(one.passages) != 2 {
		t.Errorf("one file: %+v, %v", one, err)
	}
}

func TestBadCorporaAreRefusedByFileAndPlace(t *testing.T) {
	root := folder(t, map[string]string{
		"array/a.json":    `[]`,
		"nodata/a.json":   `{"date": []}`,
		"context/a.json":  `{"data": [{"paragraphs": [{"context": "x"}, {"qas": []}]}]}`,
		"question/a.json": `{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": " ", "answers": [{"text": "x"}]}]}]}]}`,
		"answers/a.json":  `{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": "q", "answers": [{"text": ""}]}]}]}]}`,
		"blank/a.txt":     " \n\n",
		"other/a.md":      "x",
	})
	for name, want := range map[string]string{
		"array":      "a.json: not a SQuAD file",
		"nodata":     "a.json: data: missing or empty: want",
		"context":    "a.json: data[0].paragraphs[1].context: missing or empty: want",
		"question":   "a.json: data[0].paragraphs[0].qas[0].question: empty: want",
		"answers":    "a.json: data[0].paragraphs[0].qas[0].answers: none: want",
		"blank":      "no passages in it",
		"other":      "no file in it ends in .txt or .json",
		"other/a.md": "want a folder, or a file that ends in",
		"nowhere":    "no such file",
	} {
		if _, err := loadCorpus(filepath.Join(root, name), 600); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestParagraphsAreCutAtSentencesAndWords(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{"short one.", []string{"short one."}},
		{"exactly twenty chars", []string{"exactly twenty chars"}},
		{"One sentence. Two is longer.", []string{"One sentence.", "Two is longer."}},
		{"A b. The rest is longer text", []string{"A b. The rest is", "longer text"}}, // too short a piece
		{"words without any end of sentence", []string{"words without any", "end of sentence"}},
		{"Donaudampfschifffahrtsgesellschaft", []string{"Donaudampfschifffahr", "tsgesellschaft"}},
		{"éééééééééééééééééééé é", []string{"éééééééééééééééééééé", "é"}},
	} {
		if got := cut(c.line, 20); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
}

func FuzzCutKeepsEveryWord(f *testing.F) {
	f.Add("One sentence. Two is longer.", 20)
	f.Add("é  \xff \t x", 1)
	f.Fuzz(func(t *testing.T, text string, length int) {
		length = 1 + (length&0xffff)%100
		line := oneLine(text)
		pieces := cut(line, length)
		for _, p := range pieces {
			if n := utf8.RuneCountInString(p); n == 0 || n > length || strings.TrimSpace(p) != p {
				t.Fatalf("%q at %d: piece %q", line, length, p)
			}
		}
		if strings.ReplaceAll(strings.Join(pieces, ""), " ", "") != strings.ReplaceAll(line, " ", "") {
			t.Fatalf("%q at %d: %q", line, length, pieces)
		}
	})
}

func TestQuestionsAreReadFromJSONLines(t *testing.T) {
	path := filepath.Join(folder(t,
		map[string]string{"q.jsonl": `{"question": "a?", "answers": ["1", " 1", "2"], "id": 7}` + "\n\n" +
			`{"question": "b?", "answer": "3"}` + "\n" + `{"question": "a?", "answer": ["4"]}`}), "q.jsonl")
	got, err := loadQuestions(path)
	want := []question{{Text: "a?", Answers: []string{"1", "2", "4"}}, {Text: "b?", Answers: []string{"3"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for line, want := range map[string]string{
		`[]`:                                  "line 2: \"[]\" is not a JSON object",
		`{"answers": ["x"]}`:                  "line 2: field question: missing: want",
		`{"question": "a?"}`:                  "line 2: field answers: missing: want",
		`{"question": "a?", "answers": 5}`:    "line 2: field answers: 5: want a list",
		`{"question": "a?", "answers": []}`:   "line 2: field answers: none: want",
		`{"question": " ", "answers": "x"}`:   "line 2: field question: empty: want",
		`{"question": "a?", "answer": [1]}`:   "line 2: field answer: [1]: want a list",
		`{"question": "a?", "answers": null}`: "line 2: field answers: none: want",
	} {
		path := filepath.Join(folder(t,
			map[string]string{"q.jsonl": `{"question": "b?", "answer": "3"}` + "\n" + line}), "q.jsonl")
		if _, err := loadQuestions(path); err == nil || !strings.Contains(err.Error(), "q.jsonl: "+want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func FuzzSQuADFilesAreReadOrRefused(f *testing.F) {
	f.Add([]byte(rivers))
	f.Add([]byte(`{"data": [{"paragraphs": [{"context": "\ud800x", "qas": null}]}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		c := newCorpus(20)
		if err := c.readSQuAD(content); err != nil {
			return
		}
		for _, q := range c.questions {
			if q.Text == "" || len(q.Answers) == 0 {
				t.Fatalf("%q: %+v", content, q)
			}
		}
	})
}

func TestEveryBeingHasOneFactPerVerb(t *testing.T) {
	made := facts()
	if !reflect.DeepEqual(made, facts()) {
		t.Error("facts differ from call to call")
	}
	if len(made.passages) != 1600 || len(made.questions) != 1600 {
		t.Fatalf("%d facts, %d questions", len(made.passages), len(made.questions))
	}
	seen := map[string]bool{}
	things := map[string]int{}
	for i, q := range made.questions {
		being := made.questions[i/4*4].Subject
		if q.Subject != being || !strings.HasPrefix(q.Text, being+" ") || seen[q.Text] {
			t.Errorf("question %d, %+v, is not after %s or not new", i, q, being)
		}
		seen[q.Text] = true
		fact := strings.TrimSuffix(q.Text, "?") + " " + q.Answers[0] + "."
		if made.passages[i] != fact || len(q.Subject) != 4 || len(q.Answers[0]) != 3 {
			t.Errorf("passage %q for %+v", made.passages[i], q)
		}
		if key := being + " " + q.Answers[0]; seen[key] {
			t.Errorf("%s twice", key)
		} else {
			seen[key] = true
		}
		things[q.Answers[0]]++
	}
	if len(things) != 120 {
		t.Errorf("%d things", len(things))
	}
}
