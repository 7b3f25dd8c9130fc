// Shows one rollout after another and sends the reward that its reader gives. What to show, the rewards and the reader's
// name are in the address.
(() => {
  const { element, number, signed, whole, sign, said } = rollouts;
  const find = (selector) => document.querySelector(selector);
  const one = find("#one"), wrong = find("#wrong"), form = find("#query"), skipper = find("#skip"), undoer = find("#undo");
  const size = 50; // rows asked for at once
  const state = () => Object.fromEntries(new URLSearchParams(location.search));

  const values = (state().rewards || "0,0.25,0.5,0.75,1").split(",").map((text) => text.trim());
  const seen = new Set(), past = []; // ids that were shown; of the rewarded the latest last, with what was given
  let open = null, sending = null, given = 0, asked = 0; // the rollout that is shown, the request under way

  function complain(text) {
    wrong.textContent = text;
    wrong.hidden = !text;
  }

  async function ask(path, extra, body) {
    const p = new URLSearchParams({ table: state().table || "", ...extra });
    const answer = await fetch(path + "?" + p, body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : { cache: "no-store" });
    let found;
    try { found = await answer.json(); } catch { throw new Error(answer.status + " " + answer.statusText); }
    if (!answer.ok) throw Object.assign(new Error(found.error || answer.status), { refused: answer.status < 500 });
    return found;
  }

  // next shows the first rollout of the filter that was not shown yet.
  async function next() {
    const now = ++asked, s = state();
    show(null);
    try {
      let left = 0;
      for (let skip = 0; ; skip += size) {
        const page = await ask("rollouts/find", { where: s.where || "pending", order: s.order || "", text: s.text || "", limit: size, skip });
        if (now !== asked) return;
        const rows = page.rollouts.filter((r) => !seen.has(r.id));
        left = page.matched;
        if (rows.length) {
          const r = await ask("rollouts/one", { id: rows[0].id });
          if (now !== asked) return;
          if (r.left) { seen.add(r.id); skip -= size; continue; }
          complain("");
          show(r);
          break;
        }
        if (skip + size >= page.matched) {
          complain("");
          one.replaceChildren(element("p", "note", seen.size ? "No other rollout meets this. Skipped ones come again when the page is loaded." : "No rollout meets this."));
          break;
        }
      }
      find("#count").textContent = whole.format(left) + (left === 1 ? " rollout: " : " rollouts: ") + (s.where || "pending");
    } catch (e) {
      if (now === asked) complain(e.message);
    }
  }

  function show(r) {
    open = r;
    const before = past.findLast((p) => p.id === r?.id);
    [...find("#rewards").children].forEach((b, i) => {
      b.disabled = !r;
      b.classList.toggle("given", !!r && r.reward != null && r.reward === Number(values[i]));
    });
    skipper.disabled = !r;
    if (!r) return;
    const prompt = r.prompt_text || r.prompt_id;
    const facts = [["rollout", String(r.id)], ["version, age", whole.format(r.version) + ", " + whole.format(r.age)], ["reward", r.reward == null ? "pending" : signed(r.reward)]];
    if (before) facts.push(["you gave", signed(before.value)]);
    if (r.turns) facts.push(["turns", whole.format(r.turns)]);
    if (r.truncated) facts.push(["length", whole.format(r.length) + ", cut"]);
    for (const [key, value] of Object.entries(r.meta || {})) facts.push([said(key, 100, "span"), said(value, 300, "span")]);
    const mates = r.group_rollouts.filter((m) => m.id !== r.id);
    const answer = element("div", "box answer", r.text ? said(r.text) : "No text came with it: the client sends it as column text, and a service with a tokenizer decodes the tokens.");
    one.replaceChildren(
      element("h2", "", "Prompt"), element("div", "box", said(prompt)),
      element("h2", "", "Answer"), answer,
      element("dl", "facts", ...facts.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value)))),
      ...(mates.length ? [element("h2", "", "Others of its group"), element("div", "mates", ...mates.map((m) => element("div", "mate",
        element("h3", "", element("span", "", String(m.id)), element("span", sign(m.reward), m.reward == null ? "reward pending" : "reward " + number(m.reward))),
        m.text ? said(m.text, 2000, "div", !m.cut) : element("p", "note", "no text"))))] : []));
    scrollTo(0, 0);
  }

  // An id of this request, by which the table takes a repeated one once.
  const random = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

  async function give(i) {
    if (!open || !(i < values.length) || sending?.busy) return;
    const value = Number(values[i]), id = open.id;
    if (!sending || sending.id !== id || sending.value !== value) sending = { id, value, request: random() };
    sending.busy = true;
    const mine = sending;
    try {
      await ask("reward", {}, { ids: [id], rewards: [value], by: state().by || "", request_id: mine.request });
    } catch (e) {
      mine.busy = false;
      if (e.refused) sending = null;
      complain(e.message + (e.refused ? "" : ". Press the key again: the reward is taken once."));
      return;
    }
    sending = null;
    seen.add(id);
    past.push({ id, value });
    given++;
    undoer.disabled = false;
    find("#done").textContent = whole.format(given) + " given, the last " + signed(value) + " to " + id;
    next();
  }

  function skip() {
    if (!open || sending?.busy) return;
    seen.add(open.id);
    next();
  }

  // undo shows the rollout that was rewarded last again, for another reward.
  async function undo() {
    const last = past.at(-1);
    if (!last || sending?.busy) return;
    const now = ++asked;
    try {
      const r = await ask("rollouts/one", { id: last.id });
      if (now !== asked) return;
      complain("");
      show(r.left ? null : r);
      if (r.left) complain("Rollout " + last.id + " has left the table.");
      past.pop();
      undoer.disabled = !past.length;
    } catch (e) {
      if (now === asked) complain(e.message);
    }
  }

  values.forEach((text, i) => {
    const b = element("button", "", element("kbd", "", String(i + 1)), " " + text);
    b.type = "button";
    b.disabled = true;
    b.onclick = () => give(i);
    find("#rewards").append(b);
  });
  skipper.onclick = skip;
  undoer.onclick = undo;
  form.onsubmit = (e) => {
    e.preventDefault();
    const p = new URLSearchParams(location.search);
    for (const [key, value] of new FormData(form)) {
      if (value) p.set(key, value); else p.delete(key);
    }
    history.pushState(null, "", "?" + p);
    begin();
  };
  addEventListener("popstate", begin);
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.repeat) return;
    if (e.target.matches?.("input")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    if (/^[1-9]$/.test(e.key)) give(Number(e.key) - 1);
    else if (e.key === "s" || e.key === "ArrowRight") skip();
    else if (e.key === "u" || e.key === "ArrowLeft") undo();
  });

  function begin() {
    const s = state();
    seen.clear();
    for (const input of form.querySelectorAll("input")) input.value = s[input.name] || "";
    find("#of").replaceChildren(said(s.table || "", 200, "span"));
    find("#back").href = "rollouts?table=" + encodeURIComponent(s.table || "");
    if (values.length > 9 || values.some((text) => text === "" || !Number.isFinite(Number(text)))) {
      complain("rewards in the address is " + values.join(",") + ": give 1 to 9 numbers, such as 0,0.5,1");
      return;
    }
    next();
  }
  begin();
})();
