package words

import "strings"

// FixedWords are the words of the default setting. A story model of 0.7M parameters at temperature 1
// says each in 5% to 13% of continuations of 64 tokens: often enough that most groups of 16 see a
// reward, and rarely enough all together that there is much to learn.
func FixedWords() []string { return []string{"bird", "dog", "park"} }

// CommonWords are words of children's stories, none a form of another.
func CommonWords() []string {
	return []string{
		"apple", "ball", "bed", "bird", "boat", "book", "box", "cake", "car", "cat", "dog", "door",
		"fish", "flower", "friend", "game", "garden", "hat", "home", "house", "mom", "park", "rain", "river",
		"room", "school", "sky", "song", "star", "sun", "swing", "table", "toy", "train", "tree", "water",
	}
}

// Openings returns the built-in openings: every hero with every beginning. None has any of CommonWords.
func Openings() []string {
	var openings []string
	for _, b := range beginnings() {
		for _, h := range heroes() {
			openings = append(openings, strings.Replace(b, "*", h, 1))
		}
	}
	return openings
}

// beginnings have an asterisk where the hero comes; what the model continues is a whole sentence or
// the middle of one.
func beginnings() []string {
	return []string{
		"Once upon a time, there was a *.",
		"Once upon a time, there was a *. One day,",
		"One day, a * went",
		"There once was a * who liked to",
		"Once there lived a *. Every morning,",
		"A * woke up and wanted to",
		"It was a sunny day. A *",
		"Long ago, there was a * who was very",
	}
}

// heroes start with a consonant, after "a".
func heroes() []string {
	return []string{
		"little girl named Lily", "little boy named Tim", "girl named Mia", "boy named Ben",
		"little girl named Sue", "little boy named Max", "kind girl named Anna", "shy boy named Sam",
		"bunny", "small frog", "brown bear", "baby duck", "tiny mouse", "clever fox",
		"big elephant", "happy monkey", "lazy turtle", "brave lion", "gentle horse", "hungry pig",
		"farmer", "kind queen", "young king", "funny clown", "wise man", "strong woman",
		"small robot", "silly monster", "friendly dragon", "good witch", "brave knight", "tired baker",
	}
}
