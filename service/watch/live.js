(() => {
  let body = document.getElementById("live");
  const note = document.getElementById("lost");
  let answered = new Date();

  async function refresh() {
    if (inUse(body)) return;
    try {
      const answer = await fetch("fragment" + location.search,
        { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.status + " " + answer.statusText);
      const fresh = body.cloneNode(false);
      fresh.innerHTML = await answer.text();
      replaceContent(body, fresh);
      body = fresh;
      answered = new Date();
      note.hidden = true;
    } catch (e) {
      note.textContent = "No answer since " + answered.toLocaleTimeString() + ": this is the state at that time. (" +
        e.message + ")";
      note.hidden = false;
    }
  }
  const again = () => setTimeout(() => refresh().finally(again), 2000);
  again();
  document.addEventListener("visibilitychange", refresh);
})();
