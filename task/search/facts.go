package search

import (
	"slices"

	"github.com/reprise-rl/reprise/rollout"
)

// factsSeed is the seed of the made-up facts: a constant, so that all runs share them.
const factsSeed = 0x7265707269736538

// The size of the made-up world.
const (
	beings = 400
	things = 120
)

// verbs say what is known of every being.
func verbs() []string { return []string{"eats", "owns", "sells", "fears"} }

// Facts returns made-up facts, such as "kova eats rus.", and the questions after them, "kova eats?", whose answer is "rus".
// There are 400 beings with names of four letters, each with four facts about four different things, whose names have three.
// The questions after one being stand together, and beings in the order of chance: the last of them can be held out.
func Facts() *Corpus {
	r := rollout.Stream(factsSeed, "search facts", 0)
	names := words(r.IntN, beings, 4)
	known := words(r.IntN, things, 3)
	c := &Corpus{}
	for _, name := range names {
		told := r.Perm(len(known))[:len(verbs())]
		for i, v := range r.Perm(len(verbs())) {
			fact, thing := name+" "+verbs()[v], known[told[i]]
			c.Passages = append(c.Passages, fact+" "+thing+".")
			c.Questions = append(c.Questions, Question{Text: fact + "?", Subject: name, Answers: []string{thing}})
		}
	}
	return c
}

// words returns n different words of the given length, consonants and vowels by turns.
func words(draw func(int) int, n, length int) []string {
	letters := []string{"bdfgklmnprstvz", "aeiou"}
	var list []string
	for len(list) < n {
		var word []byte
		for i := range length {
			from := letters[i%2]
			word = append(word, from[draw(len(from))])
		}
		if !slices.Contains(list, string(word)) {
			list = append(list, string(word))
		}
	}
	return list
}
