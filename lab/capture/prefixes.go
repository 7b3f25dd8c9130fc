package capture

// prefixes finds the session of a call that names none: that of the branch all of whose tokens the call's prompt begins
// with.
type prefixes struct {
	branches map[uint64][]prefix // by the hash of all tokens
	lengths  map[int]int         // how many branches have so many tokens
}

// prefix is a branch of a session.
type prefix struct {
	session *session
	branch  *branch
}

func newPrefixes() prefixes { return prefixes{make(map[uint64][]prefix), make(map[int]int)} }

// hashStart and hashStep are FNV-1a, a token at a time.
const hashStart = 14695981039346656037

func hashStep(h uint64, token int32) uint64 { return (h ^ uint64(uint32(token))) * 1099511628211 }

func hash(tokens []int32) uint64 {
	h := uint64(hashStart)
	for _, t := range tokens {
		h = hashStep(h, t)
	}
	return h
}

// add adds a branch of a session that the agent did not name. A branch that grows is removed before and added after.
func (p prefixes) add(s *session, b *branch) {
	if s.begin.Named {
		return
	}
	h := hash(b.tokens)
	p.branches[h] = append(p.branches[h], prefix{s, b})
	p.lengths[len(b.tokens)]++
}

func (p prefixes) remove(s *session, b *branch) {
	if s.begin.Named {
		return
	}
	h := hash(b.tokens)
	for i, x := range p.branches[h] {
		if x.branch != b {
			continue
		}
		list := p.branches[h]
		if list[i] = list[len(list)-1]; len(list) == 1 {
			delete(p.branches, h)
		} else {
			p.branches[h] = list[:len(list)-1]
		}
		if p.lengths[len(b.tokens)]--; p.lengths[len(b.tokens)] == 0 {
			delete(p.lengths, len(b.tokens))
		}
		return
	}
}

// find returns the open session whose branch a prompt continues, the longest such branch. Where several sessions have
// said the same so far it returns nil: their calls cannot be told apart.
func (p prefixes) find(prompt []int32) *session {
	var found *session
	h := uint64(hashStart)
	for i, t := range prompt {
		h = hashStep(h, t)
		if p.lengths[i+1] == 0 {
			continue
		}
		var at *session
		several := false
		for _, x := range p.branches[h] {
			if x.session.reward == nil && common(x.branch.tokens, prompt) == i+1 && len(x.branch.tokens) == i+1 {
				several = several || at != nil && at != x.session
				at = x.session
			}
		}
		switch {
		case several:
			found = nil
		case at != nil:
			found = at
		}
	}
	return found
}
