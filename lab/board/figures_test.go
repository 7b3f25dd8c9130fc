package board_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprise-rl/reprise/internal/browsertest"
)

// What a reader has hidden and reads stays so when the page is replaced while its run trains.
func TestTheFiguresKeepTheirStateWhileARunTrains(t *testing.T) {
	p := browsertest.Open(t)
	dir := t.TempDir()
	a := begin(t, dir, "a").train(20, 1).evaluate(20, 0.4)
	begin(t, dir, "b").train(20, 1).evaluate(20, 0.3)
	server := httptest.NewServer(open(t, dir))
	defer server.Close()
	p.Size(1280, 900)
	p.Go(server.URL + "/compare?run=a&run=b#hide=b")
	hidden := `[...document.querySelectorAll("button.arm[data-arm=b]")]
		.map((b) => b.getAttribute("aria-pressed")).join()`
	if text := p.Text(hidden); text == "" || strings.Contains(text, "true") {
		t.Fatalf("the legends of b are pressed: %q, want false of each", text)
	}
	p.Eval(`document.querySelector("#reward svg").focus()`)
	p.Key("End")
	tip := `[...document.querySelectorAll(".tip p, .tip td")].map((e) => e.textContent).filter(Boolean).join("|")`
	if text := p.Text(tip); !strings.HasPrefix(text, "updates 20|a|") || strings.Contains(text, "|b|") {
		t.Errorf("the last update shows %q, want update 20 of a alone", text)
	}
	// grow trains a run up to an update and waits until the page shows it.
	grow := func(update int) {
		t.Helper()
		p.Eval(`void (window.replaced = new Promise((done) =>
			document.addEventListener("reprise:replaced", () => setTimeout(done), { once: true })))`)
		a.train(update, 1)
		p.Eval(`window.replaced`)
	}
	grow(30)
	p.Key("End")
	if text := p.Text(tip); !strings.HasPrefix(text, "updates 30|a|") {
		t.Errorf("after the page was replaced the last update shows %q, want update 30", text)
	}
	if text := p.Text(hidden); strings.Contains(text, "true") || p.Text("location.hash") != "#hide=b" {
		t.Errorf("after the page was replaced b is shown: %q at %s", text, p.Text("location.hash"))
	}
	for n, control := range []string{"#reward .tools button:not([hidden])", "button.arm[data-arm=b]"} {
		p.Eval(fmt.Sprintf(`document.querySelector(%q).focus()`, control))
		grow(40 + n)
		if p.Eval(fmt.Sprintf(`document.activeElement === document.querySelector(%q)`, control)) != true {
			t.Errorf("%s has lost the focus to %s", control, p.Text(`document.activeElement.outerHTML.slice(0, 80)`))
		}
	}
	for _, e := range p.Errors {
		t.Errorf("the page says %.400s", e)
	}
}
