// Fetches the page again while it is looked at, and puts the new main part in place of the old.
(() => {
  const bar = document.querySelector("nav.board"), note = bar.querySelector("output");
  let tag = '"' + bar.dataset.tag + '"', answered = new Date(), asking = false;

  // replace keeps what the reader has opened, ticked, focused and scrolled to.
  function replace(page) {
    const old = document.querySelector("main"), main = document.adoptNode(page.querySelector("main"));
    const places = "summary, a, button, input", at = [...old.querySelectorAll(places)].indexOf(document.activeElement);
    const each = (selector, keep) => {
      const were = old.querySelectorAll(selector);
      return [...main.querySelectorAll(selector)].map((is, i) => were[i] && keep(were[i], is));
    };
    each("details", (was, is) => { is.open = was.open; });
    const ticked = new Set(Array.from(old.querySelectorAll("input:checked"), (i) => i.value));
    for (const i of main.querySelectorAll("input")) i.checked = ticked.has(i.value);
    const lefts = each(".scroll", (was, is) => [is, was.scrollLeft]);
    old.replaceWith(main);
    document.dispatchEvent(new Event("reprise:replaced")); // for scripts of the page that add to it
    for (const [is, left] of lefts.filter(Boolean)) is.scrollLeft = left;
    if (at >= 0) main.querySelectorAll(places)[at]?.focus({ preventScroll: true });
    const title = document.querySelector("h1"), now = page.querySelector("h1");
    if (title && now) title.textContent = now.textContent;
    document.title = page.title;
  }

  function tell(text, how = "") {
    note.textContent = text;
    note.className = how;
  }
  tell("live, every 2 s");

  async function refresh() {
    if (asking || document.hidden || String(getSelection()) !== "") return;
    asking = true;
    try {
      const answer = await fetch(location.pathname + location.search,
        { cache: "no-store", headers: { "If-None-Match": tag }, signal: AbortSignal.timeout(60000) });
      const failed = "failed" in bar.dataset;
      if (answer.status !== 304) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (failed && answer.ok) return location.reload(); // the page has more than this one in its head
        if (!failed && !answer.ok) throw new Error(page.querySelector("main .lead")?.textContent || answer.status);
        replace(page);
        tag = answer.headers.get("ETag") || "";
      }
      answered = new Date();
      tell("live, every 2 s");
    } catch (e) {
      tell("As of " + answered.toLocaleTimeString() + ": the page cannot be refreshed: " + e.message, "lost");
    } finally {
      asking = false;
    }
  }

  // A page that takes long is fetched less often.
  function again() {
    const began = Date.now();
    refresh().finally(() => setTimeout(again, Math.max(2000, 10 * (Date.now() - began))));
  }
  setTimeout(again, 2000);
  document.addEventListener("visibilitychange", refresh);
})();
