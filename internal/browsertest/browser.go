// Package browsertest drives a headless Chromium in tests, by its DevTools protocol over a pipe: pages of every width,
// light and dark, in print and without scripts, with real movements of the mouse and keys.
//
// [Open] gives a page to drive, [Run] what a browser prints. Both skip the test with -short, as a browser takes a second
// to start, and where no Chromium is installed. A [Page] is for one goroutine.
package browsertest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/reprise-rl/reprise/internal/tests"
)

// timeout ends a test whose browser does not answer.
const timeout = 5 * time.Minute

// find returns the path of a Chromium, or skips the test.
func find(t testing.TB) string {
	t.Helper()
	tests.Long(t)
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium is installed here; .ci/run installs it")
	return ""
}

// start returns the command that starts a browser with a profile of its own.
func start(ctx context.Context, t testing.TB, arguments ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(ctx, find(t), append([]string{"--headless", "--no-sandbox", "--disable-gpu",
		"--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir=" + profile(t)}, arguments...)...)
}

// profile returns a folder for a browser's profile. Its helper processes may write there after it has ended, which must
// not fail the test.
func profile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Run runs a browser with arguments such as --dump-dom and an address, and returns what it printed and the lines of its
// console. Chromium's virtual time stops while a request is under way, and now and then does not go on: a browser that
// does not end is killed, and another started.
func Run(t testing.TB, arguments ...string) (out string, console []string) {
	t.Helper()
	var stdout, stderr strings.Builder
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), timeout/3)
		command := start(ctx, t, append([]string{"--enable-logging=stderr"}, arguments...)...)
		command.Stdout, command.Stderr = &stdout, &stderr
		err := command.Run()
		stuck := ctx.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if !stuck || time.Since(began) > timeout-time.Second {
			t.Fatalf("%v: %v\n%s", arguments, err, stderr.String())
		}
		t.Logf("a browser did not end within %v: another is started", timeout/3)
		stdout.Reset()
		stderr.Reset()
	}
	for line := range strings.Lines(stderr.String()) {
		if strings.Contains(line, "CONSOLE") {
			console = append(console, line)
		}
	}
	return stdout.String(), console
}

// Page is a page in a browser of its own.
type Page struct {
	t       testing.TB
	in      io.Writer
	answers chan answer
	session string
	id      int

	Errors []string // of scripts, and what the console was told
}

// answer is a message of the browser: the result of a call, or an event.
type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Open starts a browser with an empty page. It ends with the test.
func Open(t testing.TB) *Page {
	t.Helper()
	command := start(context.Background(), t, "--remote-debugging-pipe")
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{inRead, outWrite}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = inRead.Close(), outWrite.Close() // are the browser's
	p := &Page{t: t, in: inWrite, answers: make(chan answer, 1024)}
	go func() {
		defer close(p.answers)
		lines := bufio.NewReader(outRead)
		for {
			line, err := lines.ReadBytes(0)
			if err != nil {
				return
			}
			var a answer
			if json.Unmarshal(line[:len(line)-1], &a) == nil {
				p.answers <- a
			}
		}
	}()
	t.Cleanup(func() { // nothing fails here: the browser may have ended, or hang
		_, _ = p.in.Write([]byte(`{"id":0,"method":"Browser.close"}` + "\x00"))
		killer := time.AfterFunc(5*time.Second, func() { _ = command.Process.Kill() })
		for range p.answers { // until it has closed its end
		}
		killer.Stop()
		_ = command.Wait()
		_, _ = inWrite.Close(), outRead.Close()
	})
	var target struct{ TargetID string }
	p.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	p.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	p.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.Call(domain+".enable", nil, nil)
	}
	return p
}

// Call calls a method of the protocol and decodes its result, unless result is nil.
func (p *Page) Call(method string, params map[string]any, result any) {
	p.t.Helper()
	p.id++
	message := map[string]any{"id": p.id, "method": method, "params": params}
	if params == nil {
		delete(message, "params")
	}
	if p.session != "" {
		message["sessionId"] = p.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(text, 0)); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	id := p.id
	a := p.await(method, func(a answer) bool { return a.ID == id })
	if a.Error != nil {
		p.t.Fatalf("%s: %s", method, a.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(a.Result, result); err != nil {
			p.t.Fatalf("%s: %v in %s", method, err, a.Result)
		}
	}
}

// await returns the first message that is wanted, and notes the errors that come before it.
func (p *Page) await(what string, wanted func(answer) bool) answer {
	p.t.Helper()
	end := time.After(timeout)
	for {
		select {
		case a, ok := <-p.answers:
			if !ok {
				p.t.Fatalf("%s: the browser ended", what)
			}
			switch a.Method {
			case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled":
				p.Errors = append(p.Errors, string(a.Params))
			}
			if wanted(a) {
				return a
			}
		case <-end:
			p.t.Fatalf("%s: no answer within %s", what, timeout)
		}
	}
}

// Go opens an address and waits until it is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.Call("Page.navigate", map[string]any{"url": address}, nil)
	p.loaded(address)
}

// Follow runs an expression that leads to another page, such as the click of a link, and waits until that is loaded. An
// evaluation that the page does not outlive would fail, so the expression runs after its answer.
func (p *Page) Follow(expression string) {
	p.t.Helper()
	p.Eval("setTimeout(() => {" + expression + "})")
	p.loaded(expression)
}

func (p *Page) loaded(what string) {
	p.t.Helper()
	p.await(what, func(a answer) bool { return a.Method == "Page.loadEventFired" })
}

// Eval returns the value of an expression of JavaScript, awaited if it is a promise.
func (p *Page) Eval(expression string) any {
	p.t.Helper()
	var result struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	p.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true},
		&result)
	if e := result.ExceptionDetails; e != nil {
		p.t.Fatalf("%s: %s", expression, e.Exception.Description)
	}
	return result.Result.Value
}

// Text returns the value of an expression as text.
func (p *Page) Text(expression string) string {
	p.t.Helper()
	return fmt.Sprint(p.Eval(expression))
}

// Size sets the width and height of the window in pixels.
func (p *Page) Size(width, height int) {
	p.t.Helper()
	p.Call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Media sets "screen" or "print", and "light" or "dark".
func (p *Page) Media(media, scheme string) {
	p.t.Helper()
	p.Call("Emulation.setEmulatedMedia", map[string]any{"media": media,
		"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Scripts turns the scripts of the next pages on or off.
func (p *Page) Scripts(on bool) {
	p.t.Helper()
	p.Call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !on}, nil)
}

// Move moves the mouse to shares of the width and height of the first element of a selector, which is scrolled into
// view.
func (p *Page) Move(selector string, across, down float64) {
	p.t.Helper()
	p.mouse("mouseMoved", selector, across, down, 0)
}

// Press presses the left button there.
func (p *Page) Press(selector string, across, down float64) {
	p.t.Helper()
	p.mouse("mousePressed", selector, across, down, 1)
}

// Release lets the left button go.
func (p *Page) Release(selector string, across, down float64) {
	p.t.Helper()
	p.mouse("mouseReleased", selector, across, down, 1)
}

// DoubleClick clicks there twice.
func (p *Page) DoubleClick(selector string, across, down float64) {
	p.t.Helper()
	for clicks := range 2 {
		p.mouse("mousePressed", selector, across, down, clicks+1)
		p.mouse("mouseReleased", selector, across, down, clicks+1)
	}
}

// mouse sends an event of the mouse. The button of events with clicks is the left one.
func (p *Page) mouse(kind, selector string, across, down float64, clicks int) {
	p.t.Helper()
	at, ok := p.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({ block: "center" });
		const b = e.getBoundingClientRect(); return [b.left + %g * b.width, b.top + %g * b.height]; })()`,
		selector, across, down)).([]any)
	if !ok {
		p.t.Fatalf("%s: no such element", selector)
	}
	event := map[string]any{"type": kind, "x": at[0], "y": at[1]}
	if clicks > 0 {
		event["button"], event["clickCount"] = "left", clicks
	}
	p.Call("Input.dispatchMouseEvent", event, nil)
}

// Key presses and releases a key, by its name in KeyboardEvent.key.
func (p *Page) Key(name string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.Call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name}, nil)
	}
}

// Shot writes a picture of the whole page, as a PNG.
func (p *Page) Shot(file string) {
	p.t.Helper()
	p.ShotAt(file, 1)
}

// ShotAt is Shot with so many pixels for each of the page's.
func (p *Page) ShotAt(file string, scale int) {
	p.t.Helper()
	var result struct{ Data string }
	p.Call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "format": "png",
		"clip": p.Eval(fmt.Sprintf(`({ x: 0, y: 0, width: innerWidth, scale: %d,
			height: Math.min(16000, document.documentElement.scrollHeight) })`, scale))}, &result)
	picture, err := base64.StdEncoding.DecodeString(strings.TrimSpace(result.Data))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
