// Package search asks questions that are answered by looking them up: the policy writes a query, reads the passages that
// match it best, may search again, and answers.
//
// A [Task] is a task.Environment. Each turn of the policy is a query or an answer, written as the [Protocol] says: "?kova
// eats" and "=rusk" for a small model trained from nothing, or the tags <search> and <answer> for a pretrained one, as in
// Search-R1 (Jin et al. 2025). An answer ends the episode; its reward is 1 if it equals one of the question's answers
// after SQuAD's normalisation ([Normalize], [Matches]), else 0. Any other text costs the penalty of the settings and its turn.
//
// Passages and questions come from a file or folder ([Load]: SQuAD's JSON, and text files that are cut into passages at
// their paragraphs), or, without one, are made up: [Facts] about beings that do not exist, so that nothing but searching
// tells what "kova eats". Questions about some of these beings are held out.
//
// [Index] ranks passages by BM25 over an inverted index in memory. Its scores depend on the passages and the query only,
// ties are broken by the number of the passage, and it is safe for concurrent use.
//
// Episodes are task.Expert's: they search by the words of the question and know the answer.
package search
