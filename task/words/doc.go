// Package words gives a pretrained story model a reward that a program can verify: the model
// continues an opening, and its reward is the share of given words that the continuation contains.
//
// By default every prompt of the run asks for the same few words and shows only the opening
// ("Once upon a time, there was a bunny."), because a small story model cannot follow
// instructions: which words pay is what the policy learns from its rewards. For a model that can
// follow them, [Settings] draw other words for every prompt and a template tells it which.
//
// A word is contained when it stands in the continuation as a whole word, in any case, with or
// without a plural -s or -es or a possessive 's ("dog" in "The dogs' dog's DOG.", not in
// "doghouse"). Openings are either for training or held out, the split being the same for every
// seed. The reference answer of a prompt is its words with spaces or commas between them.
package words
