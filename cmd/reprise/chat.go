package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-rl/reprise/lab/policy/hf"
	"github.com/reprise-rl/reprise/rollout"
	"github.com/reprise-rl/reprise/wire/archive"
)

// chats reads rows of chats as rollouts: a group a row, without log-probs, with meta.offline 1. The policy's tokens are
// what the assistant says; what others say, and what the chat template puts in between, has mask 0.
type chats struct {
	rows    *archive.Reader
	plain   *hf.Dialogue
	chat    *hf.Dialogue // nil: the folder has no chat template
	noChat  error        // why
	reward  float32
	version rollout.Version
	ignored map[string]bool // columns that were not read
}

// newChats reads the tokenizer of a folder, or of a run.
func newChats(rows *archive.Reader, folder string, reward float32, version rollout.Version) (*chats, error) {
	if _, err := os.Stat(filepath.Join(folder, "tokenizer.json")); err != nil {
		model, missing := dir(folder).model()
		if missing != nil {
			return nil, fmt.Errorf("--tokenizer %s has no tokenizer.json, and is no run: name the folder of a model",
				folder)
		}
		folder = model
	}
	tokenizer, err := hf.ReadTokenizer(folder)
	if err != nil {
		return nil, fmt.Errorf("--tokenizer: %w", err)
	}
	c := &chats{rows: rows, plain: tokenizer.Plain(), reward: reward, version: version, ignored: make(map[string]bool)}
	c.chat, c.noChat = tokenizer.Chat()
	return c, nil
}

// leftOut returns the columns that were not read.
func (c *chats) leftOut() []string { return slices.Sorted(maps.Keys(c.ignored)) }

// Insertions implements transfer.Rollouts.
func (c *chats) Insertions(o archive.Options) iter.Seq2[archive.Insertion, error] {
	return func(yield func(archive.Insertion, error) bool) {
		in := archive.Insertion{Newest: c.version}
		for row, err := range c.rows.Rows() {
			var r *rollout.Rollout
			if err == nil {
				if r, err = c.rollout(row.JSON); err != nil {
					err = fmt.Errorf("%s: %w", row.Where, err)
				}
			}
			if err != nil {
				yield(archive.Insertion{}, err)
				return
			}
			if in.Rollouts == o.Rollouts || in.Bytes > archive.DefaultBytes {
				if !yield(in, nil) {
					return
				}
				in = archive.Insertion{Newest: c.version}
			}
			in.Groups = append(in.Groups, rollout.Group{Rollouts: []*rollout.Rollout{r}})
			in.Rollouts++
			in.Bytes += r.Bytes()
		}
		if in.Rollouts > 0 {
			yield(in, nil)
		}
	}
}

// rowError is what is wrong with a field of a row.
func rowError(field, value, remedy string) error {
	return fmt.Errorf("%s is %s: %s", field, value, remedy)
}

// rollout returns the rollout of a row.
func (c *chats) rollout(text []byte) (*rollout.Rollout, error) {
	var row map[string]json.RawMessage
	if err := json.Unmarshal(text, &row); err != nil {
		return nil, fmt.Errorf("%w: write one JSON object a line", err)
	}
	given := func(name string) json.RawMessage {
		value := row[name]
		delete(row, name)
		if string(bytes.TrimSpace(value)) == "null" {
			return nil
		}
		return value
	}
	messages, prompt, completion := given("messages"), given("prompt"), given("completion")
	r := &rollout.Rollout{Temperature: 1, TopP: 1, Reward: c.reward, Meta: map[string]string{"offline": "1"}}
	if value := given("reward"); value != nil && json.Unmarshal(value, &r.Reward) != nil {
		return nil, rowError("reward", string(value), "give a number")
	}
	if value := given("prompt_id"); value != nil && json.Unmarshal(value, &r.PromptID) != nil {
		return nil, rowError("prompt_id", string(value), "give a text")
	}
	for name := range row {
		c.ignored[name] = true
	}
	var err error
	switch {
	case messages != nil && completion != nil:
		return nil, rowError("messages", "given beside completion", "give messages, or prompt and completion")
	case messages != nil:
		err = c.converse(r, "messages", nil, messages)
	case completion == nil:
		return nil, rowError("completion", "missing, as is messages", "give messages, or prompt and completion")
	case prompt == nil:
		return nil, rowError("prompt", "missing", "give messages, or prompt and completion")
	case prompt[0] == '"' && completion[0] == '"':
		err = c.complete(r, prompt, completion)
	default:
		err = c.converse(r, "completion", prompt, completion)
	}
	if err != nil {
		return nil, err
	}
	if r.PromptID == "" { // the same for the same prompt
		digest := sha256.Sum256([]byte(fmt.Sprint(r.Tokens[:slices.Index(r.Mask, 1)])))
		r.PromptID = fmt.Sprintf("chat-%x", digest[:8])
	}
	var field *rollout.FieldError
	if errors.As(r.Validate(rollout.Limits{UnknownLogprobs: true}), &field) {
		return nil, rowError(field.Field, field.Value, field.Remedy)
	}
	return r, nil
}

// complete fills in a prompt and its completion as plain text. The completion ends with the tokenizer's end of text.
func (c *chats) complete(r *rollout.Rollout, prompt, completion json.RawMessage) (err error) {
	var question string
	if err = errors.Join(json.Unmarshal(prompt, &question), json.Unmarshal(completion, &r.Text)); err != nil {
		return err
	}
	ids, err := c.plain.Prompt(question)
	if err != nil {
		return rowError("prompt", short60(prompt), err.Error())
	}
	answer, err := c.plain.Turn(r.Text)
	if err != nil {
		return rowError("completion", short60(completion), err.Error())
	}
	c.add(r, ids, false)
	c.add(r, answer, true)
	return nil
}

// converse fills in a conversation. The policy's are the assistant's messages but for those of a prompt.
func (c *chats) converse(r *rollout.Rollout, field string, prompt, rest json.RawMessage) error {
	var before []hf.Message
	if prompt != nil {
		var err error
		if before, err = parseMessages("prompt", "user", prompt); err != nil {
			return err
		}
	}
	said, err := parseMessages(field, "assistant", rest)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(said, func(m hf.Message) bool { return m.Role == "assistant" }) {
		return rowError(field, "without a message of the assistant", "give one, which is what is learned")
	}
	if c.chat == nil {
		return rowError(field, "a conversation", "name a tokenizer with a chat template: "+c.noChat.Error())
	}
	ids, turns, err := c.chat.Conversation(append(before, said...))
	if err != nil {
		return rowError(field, short60(rest), err.Error())
	}
	at := 0
	var texts []string
	for _, turn := range turns {
		if turn.Message < len(before) {
			continue
		}
		c.add(r, ids[at:turn.Start], false)
		c.add(r, ids[turn.Start:turn.End], true)
		at = turn.End
		texts = append(texts, said[turn.Message-len(before)].Content)
		r.Turns = append(r.Turns, rollout.Turn{Start: int32(turn.Start), End: int32(turn.End)})
	}
	last := &r.Turns[len(r.Turns)-1]
	last.Reward, last.Done = r.Reward, true
	if len(r.Turns) == 1 {
		r.Turns = nil
	}
	r.Text = strings.Join(texts, "\n\n")
	return nil
}

// add adds tokens, of the policy or not.
func (c *chats) add(r *rollout.Rollout, ids []int32, policy bool) {
	mask, logprob, version := uint8(0), float32(0), rollout.NoVersion
	if policy {
		mask, logprob, version = 1, float32(math.NaN()), c.version
	}
	for _, id := range ids {
		r.Tokens, r.Mask = append(r.Tokens, id), append(r.Mask, mask)
		r.Logprobs, r.Versions = append(r.Logprobs, logprob), append(r.Versions, version)
	}
}

// parseMessages returns the messages of a list, or the one of a text.
func parseMessages(field, role string, text json.RawMessage) ([]hf.Message, error) {
	var content string
	if json.Unmarshal(text, &content) == nil {
		return []hf.Message{{Role: role, Content: content}}, nil
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, rowError(field, short60(text), "give a list of objects with role and content")
	}
	messages := make([]hf.Message, len(list))
	for i, fields := range list {
		for name, to := range map[string]*string{"role": &messages[i].Role, "content": &messages[i].Content} {
			value := fields[name]
			if value == nil {
				value = json.RawMessage("null")
			}
			if value[0] != '"' || json.Unmarshal(value, to) != nil {
				return nil, rowError(fmt.Sprintf("%s[%d].%s", field, i, name), short60(value), "give a text")
			}
		}
	}
	return messages, nil
}

// short60 returns the beginning of a value for an error.
func short60(text json.RawMessage) string { return cell(string(text), 60, false) }
