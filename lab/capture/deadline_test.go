package capture

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// recovered returns a capture with one session, whose file was read just now.
func recovered(t *testing.T, text string) (*Capture, *session) {
	t.Helper()
	kept, err := openFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.close() })
	path := kept.path("a")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readSession(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &Capture{options: Options{Group: 2, Deadline: time.Hour}, log: slog.New(slog.DiscardHandler), files: kept,
		sessions: make(map[string]*session), answers: make(map[string]*session), unnamed: newPrefixes(),
		waiting: make(map[groupKey][]*session), ended: make(map[string]Ended), past: make(map[string]string)}
	c.hold(s)
	c.recovered = []*session{s}
	c.resume()
	return c, s
}

const oneCall = `{"begin":{"id":"a","uid":"u"}}` + "\n" + `{"pieces":[{"branch":0,"parent":-1,"context":[1],` +
	`"tokens":[2],"logprobs":[-1],"versions":[0],"answer":"x","first":true}]}` + "\n"

// While the program is down, nobody can complete a group.
func TestTheDeadlineOfAWaitingSessionBeginsAnewAtTheStart(t *testing.T) {
	c, s := recovered(t, oneCall+`{"reward":{"reward":1,"order":1,"at":"2020-01-01T00:00:00Z"}}`+"\n")
	c.expire(s.touched.Add(time.Hour - 1))
	if o := c.state(s); o.State != Waiting {
		t.Errorf("before the deadline: %+v", o)
	}
	c.expire(s.touched.Add(time.Hour))
	if o := c.state(s); o.State != Lost {
		t.Errorf("after it: %+v", o)
	}
}

// A reward that is being written at the deadline is not lost with its session, and is never a file of its own.
func TestASessionIsNotLostWhileItsRewardIsWritten(t *testing.T) {
	c, s := recovered(t, oneCall)
	s.recording.Lock()
	c.expire(s.touched.Add(2 * time.Hour))
	s.recording.Unlock()
	reward := float32(1)
	if err := c.reward(s, rewardRequest{Reward: &reward}); err != nil || c.state(s).State != Waiting {
		t.Fatalf("%v, %+v", err, c.state(s))
	}
	s.reward = nil
	if err := os.Remove(c.files.path("a")); err != nil {
		t.Fatal(err)
	}
	if err := c.reward(s, rewardRequest{Reward: &reward}); err == nil {
		t.Error("a reward was written for a session that is not on disk")
	}
	if left, err := filepath.Glob(filepath.Join(c.files.dir, "sessions", "*")); err != nil || len(left) > 0 {
		t.Errorf("the folder has %q, %v", left, err)
	}
}

// A repeated reward may name the session by an answer's id, also after a restart.
func TestTheIDsOfAnswersNameSessionsThatHaveEnded(t *testing.T) {
	c, s := recovered(t, oneCall)
	if o, err := c.Discard("x"); err != nil || o.State != Discarded {
		t.Fatalf("%+v, %v", o, err)
	}
	_, list, err := c.files.read()
	if err != nil {
		t.Fatal(err)
	}
	again := &Capture{ended: make(map[string]Ended), past: make(map[string]string)}
	for _, e := range list {
		again.remember(e)
	}
	for _, c := range []*Capture{c, again} {
		if _, o, err := c.session("x"); err != nil || o.Session != s.id || o.State != Discarded {
			t.Errorf("%+v, %v", o, err)
		}
	}
	for range maxEnded {
		c.remember(Ended{UID: newID(), Outcome: Outcome{Session: newID()}})
	}
	if _, _, err := c.session("x"); err == nil || len(c.past) > 0 {
		t.Errorf("the oldest session is remembered, and %d answers", len(c.past))
	}
}
