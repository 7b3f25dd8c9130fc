// Fetches the page again while it is looked at, and puts the new main part in place of the old.
(() => {
  const bar = document.querySelector("nav.board"), note = bar.querySelector("output");
  let tag = '"' + bar.dataset.tag + '"', answered = new Date(), asking = false;

  function replace(page) {
    replaceContent(document.querySelector("main"), document.adoptNode(page.querySelector("main")));
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
    if (asking || inUse(document.querySelector("main"))) return;
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
