// Asks for pages of rollouts and for single ones, and shows them. All state is in the address.
(() => {
  const find = (selector) => document.querySelector(selector);
  const list = find("#list"), one = find("#one"), form = find("#query"), wrong = find("#wrong"), body = find("#rows tbody");
  const size = 100;
  let rows = [], at = 0, asked = 0; // what the list shows, the row that j and k move, and the number of the last request

  const { element, none, number, signed, whole, sign, visible, said, line } = rollouts;

  // A file has its rollouts in itself, and its state behind # of the address.
  const kept = JSON.parse(find("#kept")?.textContent || "null");
  const parameters = () => new URLSearchParams(kept ? location.hash.slice(1) : location.search);

  // The address: table, or the folder of a run, says whose rollouts, the rest what is shown of them.
  const state = () => Object.fromEntries(parameters());
  function address(changes) {
    const p = parameters();
    for (const [key, value] of Object.entries(changes)) {
      if (value === "" || value == null || value === 0) p.delete(key); else p.set(key, value);
    }
    return (kept ? "#" : "?") + p;
  }
  function go(changes, replace = false) {
    history[replace ? "replaceState" : "pushState"](null, "", address(changes));
    show();
  }
  const link = (id, ...content) => {
    const a = element("a", "", ...(content.length ? content : [String(id)]));
    a.href = address({ id });
    return a;
  };

  // look answers what a table would be asked, of the rollouts of a file.
  function look(what) {
    const s = state(), word = (s.text || "").toLowerCase(), by = (s.order || "").replace(/^-/, ""), way = s.order?.startsWith("-") ? 1 : -1;
    if (what === "one") {
      const found = kept.rollouts.find((r) => r.id === Number(s.id));
      if (!found) throw new Error("This file has " + counted(kept.rollouts.length) + " of the table, and rollout " + s.id + " is not one of them.");
      return found;
    }
    const found = kept.rollouts.filter((r) => (!word || r.text.toLowerCase().includes(word) || r.prompt_id.toLowerCase().includes(word)) &&
      (!s.group || r.group === Number(s.group)) && (!s.prompt || r.prompt_id === s.prompt));
    if (by) found.sort((a, b) => way * ((a[by] ?? -Infinity) - (b[by] ?? -Infinity)));
    return { version: kept.version, matched: found.length, rollouts: found.slice(Number(s.skip) || 0).slice(0, size) };
  }

  async function ask(what, extra) {
    if (kept) return look(what);
    const p = parameters();
    for (const [key, value] of Object.entries(extra)) p.set(key, value);
    const answer = await fetch("rollouts/" + what + "?" + p, { cache: "no-store" });
    let found;
    try { found = await answer.json(); } catch { throw new Error(answer.status + " " + answer.statusText); }
    if (!answer.ok) throw new Error(found.error || answer.status);
    return found;
  }

  // name, what the heading is called, what orders by it, class, cell
  const cell = (name, content, how = "") => {
    const td = element("td", how, content);
    if (name) td.dataset.name = name;
    return td;
  };
  const columns = [
    ["id", "", "", (r) => element("th", "", link(r.id))],
    ["prompt", null, "words", (r) => element("td", "words prompt", line(r.prompt_id, true))],
    ["reward", "reward", "", (r) => cell("reward", signed(r.reward), sign(r.reward))],
    ["advantage", "advantage", "", (r) => cell("adv.", signed(r.advantage), sign(r.advantage))],
    ["age", "age", "", (r) => { const td = cell("age", whole.format(r.age)); td.title = "version " + r.version; return td; }],
    ["uses", "uses", "", (r) => cell("uses", whole.format(r.uses))],
    ["length", "length", "", (r) => cell("length", whole.format(r.length) + (r.truncated ? " cut" : ""))],
    ["log-prob", "mean_logprob", "wide", (r) => cell("", number(r.mean_logprob), "wide")],
    ["text", null, "words", (r) => element("td", "words", line(r.text, !r.cut))],
  ];

  function heading() {
    const order = state().order || "", tr = element("tr");
    for (const [name, by, how] of columns) {
      const th = element("th", how + (by == null ? " still" : ""));
      th.scope = "col";
      if (by == null) {
        th.append(name);
      } else {
        const b = element("button", "", name + (by && order === by ? " ↓" : by && order === "-" + by ? " ↑" : by === "" && !order ? " ↓" : ""));
        b.type = "button";
        if (by && (order === by || order === "-" + by) || by === "" && !order) th.setAttribute("aria-sort", order === "-" + by ? "ascending" : "descending");
        b.onclick = () => go({ order: by && order === by ? "-" + by : by, skip: 0 });
        th.append(b);
      }
      tr.append(th);
    }
    find("#rows thead").replaceChildren(tr);
  }

  function mark(to) {
    at = Math.max(0, Math.min(to, rows.length - 1));
    [...body.children].forEach((tr, i) => {
      tr.classList.toggle("at", i === at);
      tr.setAttribute("aria-selected", i === at);
    });
    body.children[at]?.scrollIntoView({ block: "nearest" });
  }

  // only says of which group or prompt alone the rollouts are, with a way back to all.
  function only(s) {
    const box = find("#only");
    box.replaceChildren(...["group", "prompt"].filter((key) => s[key]).map((key) => {
      const b = element("button", "", "Only " + key + " ", said(s[key], 100, "span"), " ×");
      b.type = "button";
      b.title = "Show those of all " + key + "s";
      b.onclick = () => go({ [key]: "", skip: 0 });
      return b;
    }));
    box.hidden = !box.children.length;
  }

  async function showList(query) {
    const now = ++asked, s = state(), skip = Number(s.skip) || 0;
    for (const input of form.querySelectorAll("input")) {
      if (document.activeElement !== input) input.value = s[input.name] || "";
    }
    heading();
    only(s);
    let page;
    try {
      page = await ask("find", { limit: size });
    } catch (e) {
      if (now !== asked) return;
      wrong.textContent = e.message;
      wrong.hidden = false;
      for (const input of form.querySelectorAll("input")) input.setAttribute("aria-invalid", e.message.startsWith(input.name + ":"));
      find("#count").textContent = rows.length ? "These are from before." : "";
      return;
    }
    if (now !== asked) return;
    wrong.hidden = true;
    for (const input of form.querySelectorAll("input")) input.removeAttribute("aria-invalid");
    rows = page.rollouts;
    listed = query;
    body.replaceChildren(...rows.map((r, i) => {
      const tr = element("tr", "", ...columns.map((c) => c[3](r)));
      tr.onclick = (e) => { if (!e.target.closest("a") && !getSelection().toString()) { mark(i); go({ id: r.id }); } };
      return tr;
    }));
    find("#count").textContent = whole.format(page.matched) + (page.matched === 1 ? " rollout" : " rollouts") +
      (kept ? " in this file, of " + whole.format(kept.matched) : s.where || s.text || s.group || s.prompt ? " found" : "") + (s.run ? " in the last checkpoint, at version " : ", table at version ") + whole.format(page.version);
    find("#paging").hidden = page.matched <= size && !skip;
    find("#place").textContent = rows.length ? whole.format(skip + 1) + "–" + whole.format(skip + rows.length) : "none here";
    find("#before").disabled = !skip;
    find("#after").disabled = skip + size >= page.matched;
    mark(at);
  }

  // Colours of tokens: what is read, and how strong and which the colour is.
  function shades(r) {
    const all = {};
    const scaled = (values) => { const most = values.reduce((m, v) => Math.max(m, Math.abs(v ?? 0)), 1e-9); return (i) => values[i] == null ? null : values[i] / most; };
    all["log-prob"] = (i) => r.logprobs[i] == null ? null : Math.max(-1, r.logprobs[i] / 6);
    all.advantage = scaled(r.advantages || r.mask.map((m) => m ? r.advantage : 0));
    const made = r.versions.filter((v) => v >= 0), least = made.reduce((a, b) => Math.min(a, b), Infinity), span = made.reduce((a, b) => Math.max(a, b), 0) - least;
    all.version = (i) => span ? (r.versions[i] - least) / span : 0;
    if (r.values) all.value = scaled(r.values);
    if (r.ref_logprobs) all["log-ratio to the reference"] = scaled(r.logprobs.map((p, i) => p == null ? null : p - r.ref_logprobs[i]));
    if (r.scorable || r.scores) all[ratio] = (i) => { const x = logRatio(r, i); return x == null ? null : Math.max(-1, Math.min(1, 2 * x)); };
    return all;
  }
  const ratio = "ratio to the policy";
  const keys = {
    "log-prob": "red: unlikely when it was drawn", advantage: "green: above 0, red: below", version: "green: by newer weights than the oldest token",
    value: "green: above 0, red: below", "log-ratio to the reference": "green: likelier than under the reference, red: less likely",
    [ratio]: "green: likelier now, red: less likely now; in full from a factor of 1.65 on",
  };
  const logRatio = (r, i) => r.scores?.logprobs[i] == null || r.logprobs[i] == null ? null : r.scores.logprobs[i] - r.logprobs[i];

  // summary says how far a rollout's tokens are from the policy that scored them.
  function summary(r) {
    const ratios = r.mask.flatMap((m, i) => m && logRatio(r, i) != null ? [Math.exp(logRatio(r, i))] : []);
    if (!ratios.length) return "The rollout came without log-probs: there is nothing to compare with.";
    const far = ratios.filter((x) => x < 0.8 || x > 1.2).length;
    return "By " + r.scores.policy + ": mean ratio " + number(ratios.reduce((a, b) => a + b, 0) / ratios.length) + ", " +
      whole.format(far) + " of " + whole.format(ratios.length) + " tokens outside 0.8 to 1.2";
  }

  function tokens(r) {
    const all = shades(r), box = element("div", r.pieces ? "box tokens spelt" : "box tokens"), tools = element("div", "tools"), about = element("output");
    const choice = element("select"), count = r.token_ids.length, starts = new Map((r.turn_list || []).map((t, i) => [t.start, i]));
    for (const key of Object.keys(all)) choice.append(new Option(key, key));
    choice.value = all[state().colour] ? state().colour : "log-prob";
    const key = element("span", "still");
    tools.append(element("label", "", "Colour by ", choice), key, about);
    box.tabIndex = 0;
    let cells = [], marked = -1, shown = 2000;
    const paint = () => cells.forEach((c, i) => {
      const x = r.mask[i] ? all[choice.value](i) : null;
      c.className = r.mask[i] ? x < 0 ? "low" : "high" : "given";
      c.style.setProperty("--heat", Math.round(70 * Math.abs(x ?? 0)) + "%");
    });
    const fill = () => {
      box.replaceChildren();
      cells = [];
      for (let i = 0; i < Math.min(count, shown); i++) {
        const turn = starts.get(i);
        if (turn != null) {
          const t = r.turn_list[turn];
          box.append(element("span", "turn", "Turn " + (turn + 1) + ", reward " + signed(t.reward) + (t.done ? ", ends the episode" : "")));
        }
        const c = element("span", "", ...piece(r, i));
        c.dataset.i = i;
        cells.push(c);
        box.append(c, r.pieces ? "" : " ");
        if (r.pieces?.[i].endsWith("\n")) box.append(element("br"));
      }
      if (count > shown) {
        const more = element("button", "more", "Show " + (count <= 10 * shown ? "all " + whole.format(count) : whole.format(10 * shown) + " of " + whole.format(count)) + " tokens");
        more.type = "button";
        more.onclick = () => { shown *= 10; fill(); };
        box.append(element("br"), more);
      }
      paint();
    };
    const tell = (i) => {
      if (!(i >= 0 && i < cells.length)) return;
      cells[marked]?.classList.remove("mark");
      cells[marked = i].classList.add("mark");
      const parts = ["token " + i + ": id " + r.token_ids[i]];
      if (r.pieces) parts.push("“" + visible(r.pieces[i]) + "”");
      if (r.mask[i]) {
        const p = r.logprobs[i];
        parts.push("log-prob " + number(p) + (p == null ? "" : " (p " + number(Math.exp(p)) + ")"), "version " + r.versions[i]);
        if (logRatio(r, i) != null) parts.push("ratio " + number(Math.exp(logRatio(r, i))) + " (log-prob now " + number(r.scores.logprobs[i]) + ")");
        if (r.advantages) parts.push("advantage " + signed(r.advantages[i]));
        if (r.values) parts.push("value " + number(r.values[i]));
        if (r.ref_logprobs) parts.push("reference log-prob " + number(r.ref_logprobs[i]));
      } else {
        parts.push("not the policy's: prompt, tool or environment");
      }
      about.textContent = parts.join(", ");
    };
    box.onmouseover = (e) => tell(Number(e.target.closest?.("[data-i]")?.dataset.i ?? -1));
    box.onkeydown = (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (step) { tell(marked < 0 ? 0 : marked + step); e.preventDefault(); }
    };
    const colour = async () => {
      key.textContent = keys[choice.value];
      if (choice.value === ratio) {
        about.textContent = "Scoring…";
        try {
          r.scores ||= await ask("score", { id: r.id });
          about.textContent = summary(r);
        } catch (e) {
          about.textContent = e.message;
        }
      }
      paint();
    };
    choice.onchange = () => { history.replaceState(null, "", address({ colour: choice.value })); colour(); };
    fill();
    colour();
    return [tools, box];
  }

  // piece returns the content of a token's cell.
  const piece = (r, i) => r.pieces?.[i] ? [element("bdi", "", visible(r.pieces[i]))] : [r.pieces ? "⟨" + r.token_ids[i] + "⟩" : String(r.token_ids[i])];

  function facts(r) {
    const list = element("dl", "facts");
    const add = (name, value, how) => list.append(element("div", "", element("dt", "", name), element("dd", how, value)));
    add("reward", signed(r.reward), sign(r.reward));
    add("advantage", signed(r.advantage), sign(r.advantage));
    if (r.left) {
      add("group", whole.format(r.group));
      add("version", whole.format(r.version));
      return list;
    }
    add("group's rewards", number(r.group_mean) + " ± " + number(r.group_std));
    add("version, age", whole.format(r.version) + ", " + whole.format(r.age));
    add("uses", whole.format(r.uses) + (r.last_use >= 0 ? ", last at " + whole.format(r.last_use) : ""));
    add("on lease", whole.format(r.on_lease));
    add("chance of a draw", number(r.probability));
    add("base of its priority", number(r.base) + (r.base != null && r.at_max ? ", the largest so far" : ""));
    add("handed out as fresh", r.fresh ? "not yet" : "yes");
    add("pinned", r.pinned ? "yes" : "no");
    if (r.waiting) add("waits for rewards", "yes, it is not drawn");
    add("length, all tokens", whole.format(r.length) + ", " + whole.format(r.tokens) + (r.truncated ? ", cut" : ""));
    add("mean log-prob", number(r.mean_logprob));
    const report = r.life?.events.findLast((e) => e.measured?.mean_ratio != null);
    if (report) add("mean ratio, as last reported", number(report.measured.mean_ratio) + " at version " + whole.format(report.version));
    add("temperature, top-p", number(r.temperature) + ", " + number(r.top_p));
    if (r.turns) add("turns", whole.format(r.turns));
    if (r.images) add("images", whole.format(r.images));
    for (const [key, value] of Object.entries(r.meta || {})) {
      list.append(element("div", "", element("dt", "", said(key, 100, "span")), element("dd", "", said(value, 300, "span"))));
    }
    return list;
  }

  // What the table remembers of a rollout's life, in words.
  const causes = {
    capacity: "the table was full", staleness: "it was older than max_staleness", uses: "it had max_uses uses", consumed: "it was used, and the table is a queue",
    rewind: "it was newer than the version that the table was set back to", selection: "others of its group were selected", unrewarded: "its group waited too long for rewards", damage: "it could not be read back",
  };
  function told(e) {
    const parts = [];
    if (e.event === "evicted") return "left: " + (causes[e.cause] || e.cause);
    if (e.draw) {
      const d = e.draw;
      parts.push("drawn in batch " + whole.format(d.batch) + (d.times > 1 ? " " + whole.format(d.times) + " times" : "") + (d.fresh ? " as fresh" : ""));
      parts.push("probability " + number(d.probability), "weight " + number(d.weight), "staleness " + whole.format(d.staleness), d.outcome);
    } else {
      parts.push(e.event + (e.reward != null ? " " + signed(e.reward) : ""));
    }
    if (e.priority != null) parts.push("priority " + number(e.priority));
    for (const [key, name] of [["advantage", "|advantage|"], ["td_error", "TD error"], ["grad_norm", "gradient norm"], ["mean_ratio", "mean ratio"]]) {
      if (e.measured?.[key] != null) parts.push(name + " " + number(e.measured[key]));
    }
    return parts.join(", ");
  }
  function life(r) {
    if (!r.life) return [];
    const day = new Intl.DateTimeFormat("en-CA", { dateStyle: "short" }), clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
    let before = "";
    const items = r.life.events.flatMap((e, i) => {
      const at = new Date(e.time), time = element("time", "", day.format(at) === before ? clock.format(at) : day.format(at) + " " + clock.format(at));
      before = day.format(at);
      time.dateTime = e.time;
      const what = element("span", e.event === "evicted" ? "bad" : "", told(e));
      if (e.caller) what.append(element("span", "still", " by ", said(e.caller, 100, "span")));
      const line = element("li", "", time, element("span", "still", "version " + whole.format(e.version)), what);
      const gap = i === 0 && r.life.forgotten ? [element("li", "still", whole.format(r.life.forgotten) + (r.life.forgotten === 1 ? " event" : " events") + " between are forgotten")] : [];
      return [line, ...gap];
    });
    return titled("Its life", element("ol", "life", ...items));
  }

  const titled = (text, ...content) => [element("h2", "", text), ...content];

  // card shows a rollout beside others.
  function card(m, self) {
    return element("div", self ? "mate self" : "mate",
      element("h3", "", self ? element("span", "", m.id + ", this one") : link(m.id), element("span", sign(m.reward), "reward " + signed(m.reward)),
        element("span", sign(m.advantage), "advantage " + signed(m.advantage)), element("span", "still", whole.format(m.length) + " tokens" + (m.truncated ? ", cut" : ""))),
      m.text ? said(m.text, 2000, "div", !m.cut) : element("p", "note", "no text"));
  }
  const narrowed = (text, changes) => {
    const a = element("a", "", text);
    a.href = address({ id: "", where: "", text: "", skip: "", group: "", prompt: "", ...changes });
    return a;
  };
  const mean = (list) => list.reduce((sum, r) => sum + r.reward, 0) / list.length;
  const counted = (n) => whole.format(n) + (n === 1 ? " rollout" : " rollouts");

  function beside(r) {
    const note = element("p", "note", counted(r.group_rollouts.length) + " that the table holds, rewards " + number(r.group_mean) + " ± " + number(r.group_std) +
      (r.group_std === 0 ? ": all alike, so the group has no advantage to learn from. " : ". "), narrowed("List them", { group: r.group }));
    return [element("h2", "", "Its group"), note, element("div", "mates", ...r.group_rollouts.map((m) => card(m, m.id === r.id)))];
  }

  // rewards draws the rewards of a prompt's rollouts by version: a dot for each, the open one's group filled.
  function rewards(r, list) {
    const svg = (tag, attributes, ...children) => {
      const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
      e.append(...children);
      return e;
    };
    const of = (key) => list.map((o) => o[key]), [v0, v1] = [Math.min(...of("version")), Math.max(...of("version"))];
    const [y0, y1] = [Math.min(0, ...of("reward")), Math.max(1, ...of("reward"))];
    const w = Math.max(280, Math.min(760, innerWidth - 90)), h = 120, left = 30, pad = 40;
    const x = (v) => v1 > v0 ? left + pad + (v - v0) / (v1 - v0) * (w - left - 2 * pad) : (left + w) / 2, y = (reward) => 12 + (y1 - reward) / (y1 - y0) * (h - 40);
    const label = (text, at, more) => svg("text", { ...at, ...more }, text);
    const lines = [y0, y1].flatMap((v) => [svg("line", { x1: left, x2: w, y1: y(v), y2: y(v) }), label(number(v), { x: left - 6, y: y(v) + 4 }, { "text-anchor": "end" })]);
    const place = (o) => o.version + " " + o.reward, alike = new Map(), before = new Map();
    for (const o of list) alike.set(place(o), (alike.get(place(o)) || 0) + 1);
    const dots = list.map((o) => { // rollouts of one version and reward stand beside each other
      const n = alike.get(place(o)), k = before.get(place(o)) || 0, step = Math.min(9, 2 * (pad - 6) / n);
      before.set(place(o), k + 1);
      const a = svg("a", { href: address({ id: o.id }) }, svg("circle", { cx: x(o.version) + (k - (n - 1) / 2) * step, cy: y(o.reward), r: o.id === r.id ? 6 : 4 }));
      a.setAttribute("class", o.id === r.id ? "self" : o.group === r.group ? "own" : "");
      a.append(svg("title", {}, o.id + ": version " + o.version + ", reward " + signed(o.reward)));
      return a;
    });
    const ends = v1 > v0 ? [label("version " + whole.format(v0), { x: x(v0), y: h - 6 }, { "text-anchor": "middle" }), label(whole.format(v1), { x: x(v1), y: h - 6 }, { "text-anchor": "middle" })] : [label("version " + whole.format(v0), { x: x(v0), y: h - 6 }, { "text-anchor": "middle" })];
    return svg("svg", { viewBox: "0 0 " + w + " " + h, role: "img", "aria-label": "Rewards by version", class: "rewards" }, ...lines, ...ends, ...dots);
  }

  function others(r) {
    const found = r.prompt_rollouts, list = found.rollouts, known = [...r.group_rollouts, ...list].filter((o) => o.reward != null);
    const answers = (...content) => titled("Its prompt's answers, by version", ...content);
    if (!list.length) return answers(element("p", "note", r.prompt_id ? "The table holds none of other groups." : "It came without a prompt_id: nobody knows which others are of its prompt."));
    const byVersion = Map.groupBy ? Map.groupBy(list, (o) => o.version) : list.reduce((m, o) => m.set(o.version, [...(m.get(o.version) || []), o]), new Map());
    const note = element("p", "note", counted(found.matched) + " of other groups" + (found.matched > list.length ? ", of which these " + list.length + " are the newest" : "") + ". ",
      narrowed("List all", { prompt: r.prompt_id, order: "version" }));
    return answers(note, ...(known.length > 1 ? [element("div", "box", rewards(r, known))] : []),
      ...[...byVersion].map(([version, of], i) => {
        const details = element("details", "version", element("summary", "", "Version " + whole.format(version) + ": " + counted(of.length) + ", mean reward " + number(mean(of))),
          element("div", "mates", ...of.map((o) => card(o, false))));
        details.open = i < 3;
        return details;
      }));
  }

  function leave() { go({ id: "" }); }

  async function showOne(id) {
    const now = ++asked;
    const back = element("button", "", "Back to the list"), before = element("button", "", "k: before"), after = element("button", "", "j: after");
    for (const b of [back, before, after]) b.type = "button";
    const place = rows.findIndex((r) => r.id === id);
    back.onclick = leave;
    before.onclick = () => step(-1);
    after.onclick = () => step(1);
    before.disabled = place < 1;
    after.disabled = place < 0 || place === rows.length - 1;
    const nav = element("nav", "", back, before, after);
    let r;
    try {
      r = await ask("one", {});
    } catch (e) {
      if (now === asked) one.replaceChildren(nav, element("p", "alarm", e.message));
      return;
    }
    if (now !== asked) return;
    if (r.left) {
      one.replaceChildren(nav, element("h2", "", "Rollout " + r.id), element("p", "note", "It has left the table, which remembers its life."), facts(r), ...life(r));
      scrollTo(0, 0);
      return;
    }
    const prompt = [element("div", "box", said(r.prompt_id))];
    if (r.prompt_text) prompt.push(element("p", "note", "Its tokens, decoded:"), element("div", "box", said(r.prompt_text)));
    const text = element("div", "box", r.text ? said(r.text) : r.decoded ? "Its tokens say nothing." : "The client sent none: column text. A service with a tokenizer decodes the tokens.");
    one.replaceChildren(nav, element("h2", "", "Rollout " + r.id), facts(r), ...titled("Prompt", ...prompt),
      ...titled(r.decoded ? "Text, decoded" : "Text", text),
      ...titled("Tokens", ...tokens(r)), ...life(r), ...beside(r), ...others(r));
    scrollTo(0, 0);
  }

  // step opens the rollout after or before the open one in the list.
  function step(by) {
    const place = rows.findIndex((r) => r.id === Number(state().id));
    if (place >= 0 && rows[place + by]) {
      mark(place + by);
      go({ id: rows[place + by].id }, true);
    }
  }

  let listed = ""; // what the rows were asked for
  function show() {
    const s = state(), id = Number(s.id) || 0, query = [s.where, s.order, s.text, s.group, s.prompt, s.skip].join("\u0000");
    list.hidden = !!id;
    one.hidden = !id;
    document.title = (id ? "Rollout " + id : "Rollouts") + " · " + (kept?.of || s.table || s.run || "") + " · Reprise";
    if (id) {
      showOne(id);
    } else if (listed !== query || !rows.length) {
      if (listed !== query) at = 0;
      showList(query);
    } else {
      asked++;
      mark(at);
    }
  }

  const { table, run } = state();
  find("#of").replaceChildren(said(kept?.of || table || run || "", 200, "span"));
  if (kept) {
    find("#back").hidden = find(".help").hidden = true;
    for (const key of ["where", "order"]) form.elements[key].closest("label").hidden = true;
  }
  if (table) find("#back").href = "./?table=" + encodeURIComponent(table);
  if (run) {
    find("#back").href = "at/" + (run === "." ? "" : run.split("/").map(encodeURIComponent).join("/") + "/");
    find("#back").textContent = "The run";
  }
  form.onsubmit = (e) => {
    e.preventDefault();
    rows = []; // asks again, also for the same
    go({ ...Object.fromEntries(new FormData(form)), skip: 0 });
  };
  find("#before").onclick = () => go({ skip: Math.max(0, (Number(state().skip) || 0) - size) });
  find("#after").onclick = () => go({ skip: (Number(state().skip) || 0) + size });
  addEventListener("popstate", show);
  document.addEventListener("click", (e) => {
    const a = e.target.closest("a[href^='?']");
    if (a && !e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) {
      e.preventDefault();
      history.pushState(null, "", a.href);
      show();
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.matches?.("input, select, textarea"), open = !one.hidden;
    if (e.key === "Escape") {
      if (typing) e.target.blur(); else if (open) leave();
    } else if (typing) {
      return;
    } else if (e.key === "/") {
      e.preventDefault();
      if (open) leave();
      form.elements.text.focus();
    } else if (e.key === "j" || e.key === "k") {
      const by = e.key === "j" ? 1 : -1;
      if (open) step(by); else mark(at + by);
    } else if (e.key === "Enter" && !open && rows[at] && !e.target.closest?.("a, button, summary")) {
      go({ id: rows[at].id });
    }
  });
  show();
})();
