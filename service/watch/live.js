(() => {
  const body = document.getElementById("live");
  const note = document.getElementById("lost");
  const busy = () => document.hidden || String(getSelection()) !== "" || body.querySelector("select:focus, button:focus-visible");
  let answered = new Date();

  async function refresh() {
    if (busy()) return;
    try {
      const answer = await fetch("fragment" + location.search, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.status + " " + answer.statusText);
      const text = await answer.text();
      const open = new Set(Array.from(body.querySelectorAll("details[open]"), (d) => d.id));
      const focus = document.activeElement && document.activeElement.closest("details");
      body.innerHTML = text;
      for (const d of body.querySelectorAll("details")) {
        if (open.has(d.id)) d.open = true;
        if (focus && d.id === focus.id) d.querySelector("summary").focus({ preventScroll: true });
      }
      document.dispatchEvent(new Event("reprise:replaced"));
      answered = new Date();
      note.hidden = true;
    } catch (e) {
      note.textContent = "No answer since " + answered.toLocaleTimeString() + ": this is the state at that time. (" + e.message + ")";
      note.hidden = false;
    }
  }
  const again = () => setTimeout(() => refresh().finally(again), 2000);
  again();
  document.addEventListener("visibilitychange", refresh);
})();
