package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-rl/reprise/lab/policy/hf/jinja"
	"github.com/reprise-rl/reprise/lab/task"
	"github.com/reprise-rl/reprise/rollout/option"
)

// Dialogue turns prompts, a policy's turns and what it observes between them into ids and back: as plain text, or with
// the chat template of an instruct model. A prompt is then a user's message with the opening of the assistant's, and an
// observation is the user's next message. It is immutable and safe for concurrent use.
//
// An observation is what the template puts after an assistant's message, whatever that message says. So templates that
// change earlier messages, such as those that leave out what the assistant thought, leave the policy's turns as it
// wrote them. The date that templates can ask for is always 26 July 2024, so that a prompt does not depend on the day.
type Dialogue struct {
	tokenizer *Tokenizer
	stop      []int32
	end       int32         // of a turn; NoToken: the tokenizer has none
	template  *chatTemplate // nil: plain text
}

// Plain returns the dialogue in plain text. A prompt is a whole text for the tokenizer, with its BOS if it adds one.
func (t *Tokenizer) Plain() *Dialogue {
	d := &Dialogue{tokenizer: t, stop: t.EOS(), end: NoToken}
	if len(t.eos) > 0 {
		d.end = t.eos[0]
	}
	return d
}

// Chat returns the dialogue with the chat template of the tokenizer's folder: chat_template.jinja or, without it,
// chat_template in tokenizer_config.json. It tries the template, and finds the token that ends an assistant's message,
// which ends turns even if no file lists it as eos_token_id.
func (t *Tokenizer) Chat() (*Dialogue, error) { return t.chat(t.files) }

// ChatBy is [Tokenizer.Chat] with another template than the folder's.
func (t *Tokenizer) ChatBy(template string) (*Dialogue, error) {
	files := maps.Clone(t.files)
	files[templateFile] = []byte(template)
	return t.chat(files)
}

func (t *Tokenizer) chat(files map[string][]byte) (*Dialogue, error) {
	template, err := readChatTemplate(files)
	if err != nil {
		return nil, err
	}
	d := &Dialogue{tokenizer: t, template: template, stop: t.EOS()}
	after, err := d.afterAnswer("observation")
	if err != nil {
		return nil, err
	}
	token := t.raw.prefixOf(after)
	if token == nil {
		token = t.normal.prefixOf(after)
	}
	if token == nil {
		return nil, fmt.Errorf("%s puts %.40q after an assistant's message: want a token of its own that ends it",
			template.file, after)
	}
	if d.end = token.ID; !slices.Contains(d.stop, d.end) {
		d.stop = append(d.stop, d.end)
	}
	return d, nil
}

// Stop returns the ids that end a turn. Without a chat template there may be none.
func (d *Dialogue) Stop() []int32 { return slices.Clone(d.stop) }

// Prompt returns the ids of a question, up to where the policy's turn begins. Earlier questions and their answers may
// come before it, in turn.
func (d *Dialogue) Prompt(messages ...string) ([]int32, error) {
	if d.template == nil {
		return d.tokenizer.Encode(strings.Join(messages, ""))
	}
	rendered, err := d.template.render(inTurn(messages))
	if err != nil {
		return nil, err
	}
	return d.tokenizer.EncodePart(rendered)
}

// Messages returns the ids of messages of any roles, up to where the policy's turn begins. Messages and the tools that
// the policy may call are as a client of OpenAI's interface gives them, decoded by [jinja.Decode]; nil: no tools.
func (d *Dialogue) Messages(messages []any, tools any) ([]int32, error) {
	if d.template == nil {
		return nil, errors.New("the dialogue has no chat template")
	}
	rendered, err := d.template.renderAll(messages, tools)
	if err != nil {
		return nil, err
	}
	return d.tokenizer.EncodePart(rendered)
}

// inTurn returns the messages of a user and an assistant, without the line breaks around each.
func inTurn(texts []string) []Message {
	roles := []string{"user", assistant}
	list := make([]Message, len(texts))
	for i, text := range texts {
		list[i] = Message{roles[i%2], strings.Trim(text, "\n")}
	}
	return list
}

// Turn returns the ids of a turn with the token that ends it.
func (d *Dialogue) Turn(text string) ([]int32, error) {
	if d.end == NoToken {
		return nil, errors.New("the tokenizer has no end-of-sequence token to learn: add eos_token_id to config.json")
	}
	ids, err := d.tokenizer.EncodePart(text)
	return append(ids, d.end), err
}

// Observation returns the ids that follow a turn, up to where the policy's next turn begins. last is the last id of the
// turn: a chat template's end of the turn is added if the turn was cut off before it.
func (d *Dialogue) Observation(text string, last int32) ([]int32, error) {
	if d.template == nil {
		return d.tokenizer.EncodePart(text)
	}
	after, err := d.afterAnswer(text)
	if err != nil {
		return nil, err
	}
	ids, err := d.encodeAfter(after)
	if err != nil {
		return nil, err
	}
	if slices.Contains(d.stop, last) {
		ids = ids[1:]
	}
	return ids, nil
}

// encodeAfter returns the ids of what the template puts after an assistant's message, the first of which ends it.
func (d *Dialogue) encodeAfter(after string) ([]int32, error) {
	ids, err := d.tokenizer.EncodePart(after)
	if err == nil && (len(ids) == 0 || ids[0] != d.end) {
		err = fmt.Errorf("%s puts %.40q after an assistant's message: want %q first, as after others",
			d.template.file, after, d.tokenizer.tokens[d.end])
	}
	return ids, err
}

// Decode returns the text of a turn, without the token that ended it.
func (d *Dialogue) Decode(turn []int32) string {
	if n := len(turn); n > 0 && slices.Contains(d.stop, turn[n-1]) {
		turn = turn[:n-1]
	}
	return d.tokenizer.Decode(turn)
}

// afterAnswer returns what the template puts after an assistant's message if the user's next one is text. White space
// before the end of the message is left out.
func (d *Dialogue) afterAnswer(text string) (string, error) {
	return d.afterAnswerTo(inTurn([]string{"question"}), []Message{{"user", strings.Trim(text, "\n")}})
}

// afterAnswerTo is afterAnswer within a conversation: after an answer to the messages before, if others follow.
func (d *Dialogue) afterAnswerTo(before, next []Message) (string, error) {
	const answer = "d1a10gue"
	rendered, err := d.template.render(slices.Concat(before, []Message{{assistant, answer}}, next))
	if err != nil {
		return "", err
	}
	_, after, found := strings.Cut(rendered, answer)
	if !found {
		return "", fmt.Errorf("%s does not show earlier messages of the assistant: use a template that does, or "+
			"a task of one turn with format words", d.template.file)
	}
	return strings.TrimLeft(after, " \n"), nil
}

// TaskDialogue is a dialogue about a task, in its format and with its examples before each prompt.
type TaskDialogue struct {
	*Dialogue
	examples *task.Examples
}

// ForTask returns the dialogue about a task, which must have all its training problems.
func (t *Tokenizer) ForTask(of task.Task) (d TaskDialogue, err error) {
	d.Dialogue = t.Plain()
	if task.Chats(of) {
		if d.Dialogue, err = t.Chat(); err != nil {
			return d, fmt.Errorf("task.format: chat: %w", err)
		}
	}
	d.examples, err = task.NewExamples(of)
	return d, err
}

// Ask returns the ids of a prompt with its examples, up to where the policy's turn begins.
func (d TaskDialogue) Ask(p task.Prompt) ([]int32, error) {
	ids, err := d.Prompt(d.examples.Ask(p)...)
	switch {
	case err != nil && d.examples != nil:
		err = fmt.Errorf("encode prompt %s with task.examples: %w", p.ID, err)
	case err != nil:
		err = fmt.Errorf("encode prompt %s: %w", p.ID, err)
	}
	return ids, err
}

// Ends returns a function that reports whether a turn has gone on to another problem, nil if none does.
func (d TaskDialogue) Ends() func(turn []int32) bool {
	stop := d.examples.Stop()
	if stop == "" {
		return nil
	}
	return func(turn []int32) bool {
		latest := turn[max(0, len(turn)-len(stop)-4):] // no token of a text is shorter than a byte
		return strings.Contains(d.Decode(latest), stop)
	}
}

// Answer returns the text of a turn without what ended it.
func (d TaskDialogue) Answer(turn []int32) string { return d.examples.Answer(d.Decode(turn)) }

// chatTemplate is the template of a model folder.
type chatTemplate struct {
	file      string // names it in errors
	template  *jinja.Template
	variables map[string]any // all but messages
}

// readChatTemplate finds the template among the files of a tokenizer.
func readChatTemplate(files map[string][]byte) (*chatTemplate, error) {
	c := &chatTemplate{file: templateFile, variables: map[string]any{
		"add_generation_prompt": true, "tools": nil, "documents": nil,
		"raise_exception": jinja.Func(raiseException), "strftime_now": jinja.Func(formatDate),
	}}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if b := files[tokConfigFile]; b != nil {
		if err := json.Unmarshal(b, &config); err != nil {
			return nil, fmt.Errorf("parse %s: %w", tokConfigFile, err)
		}
	}
	source := string(files[templateFile])
	if source == "" && present(config.Template) {
		var err error
		c.file = "chat_template in " + tokConfigFile
		if source, err = defaultTemplate(config.Template); err != nil {
			return nil, err
		}
	}
	if source == "" {
		return nil, fmt.Errorf("the folder has neither %s nor chat_template in %s: use the folder of an instruct model, "+
			"or format words", templateFile, tokConfigFile)
	}
	if err := c.addSpecials(files); err != nil {
		return nil, err
	}
	var err error
	if c.template, err = jinja.Parse(source); err != nil {
		return nil, fmt.Errorf("parse %s: %w", c.file, err)
	}
	return c, nil
}

// defaultTemplate returns a template that stands alone or is called default in a list.
func defaultTemplate(field json.RawMessage) (source string, err error) {
	if json.Unmarshal(field, &source) == nil {
		return source, nil
	}
	var list []struct{ Name, Template string }
	if json.Unmarshal(field, &list) == nil {
		for _, t := range list {
			if t.Name == "default" {
				return t.Template, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", tokConfigFile, &option.Error{Key: "chat_template", Value: compact(field),
		Want: "a template, or a list of templates of which one is named default"})
}

// addSpecials adds the special tokens that the files name, as bos_token and the like.
func (c *chatTemplate) addSpecials(files map[string][]byte) error {
	for _, file := range []string{specialsFile, tokConfigFile} {
		if files[file] == nil {
			continue
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(files[file], &fields); err != nil {
			return fmt.Errorf("parse %s: %w", file, err)
		}
		for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
			text, err := tokenText(name, fields[name])
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if text != "" {
				c.variables[name] = text
			}
		}
	}
	return nil
}

// render returns the text of messages and the opening of the next answer.
func (c *chatTemplate) render(messages []Message) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = jinja.Dict{{Key: "role", Value: m.Role}, {Key: "content", Value: m.Content}}
	}
	return c.renderAll(list, nil)
}

// renderAll is render for messages with other fields, and for tools.
func (c *chatTemplate) renderAll(messages []any, tools any) (string, error) {
	variables := maps.Clone(c.variables)
	variables["messages"], variables["tools"] = messages, tools
	rendered, err := c.template.Render(variables)
	if err != nil {
		return "", fmt.Errorf("render %s: %w", c.file, err)
	}
	return rendered, nil
}

func raiseException(args ...string) (string, error) {
	return "", fmt.Errorf("the template refuses the messages: %s", strings.Join(args, " "))
}

// formatDate is strftime of the day that templates see.
func formatDate(args ...string) (string, error) {
	day := time.Date(2024, 7, 26, 0, 0, 0, 0, time.UTC)
	if len(args) != 1 {
		return "", fmt.Errorf("strftime_now has %d arguments: want a format", len(args))
	}
	layouts := map[byte]string{'d': "02", 'b': "Jan", 'B': "January", 'm': "01", 'y': "06", 'Y': "2006", 'A': "Monday",
		'a': "Mon", 'H': "15", 'M': "04", 'S': "05", '%': "%"}
	date, rest, found := strings.Cut(args[0], "%")
	for found {
		if rest == "" || layouts[rest[0]] == "" {
			return "", fmt.Errorf("strftime_now: %q: directive %%%.1s is not supported", args[0], rest)
		}
		date += day.Format(layouts[rest[0]])
		var text string
		text, rest, found = strings.Cut(rest[1:], "%")
		date += text
	}
	return date, nil
}
