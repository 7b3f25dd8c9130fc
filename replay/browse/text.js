// Shows numbers and what rollouts say, for the pages that show rollouts. What they say is never HTML.
const rollouts = (() => {
  // element returns an element with a class, an attribute of which may be a text, and children: texts are never HTML.
  function element(tag, name, ...children) {
    const e = document.createElement(tag);
    if (name) e.className = name;
    e.append(...children);
    return e;
  }

  const none = "–";
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const number = (x) => x == null ? none : Math.abs(x) > 0 && Math.abs(x) < 1e-4 ? x.toExponential(2) : digits.format(x).replace("-", "−");
  const signed = (x) => x > 0 ? "+" + number(x) : number(x);
  const whole = new Intl.NumberFormat("en");
  const sign = (x) => x > 0 ? "good" : x < 0 ? "bad" : "still";

  // What cannot be seen, or changes the order of what is around it, but for line breaks and tabs.
  const unseen = /(?:(?![\t\n])[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2028\u2029])+/gu;
  const name = (c) => c < "\u0020" ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : c === "\u007f" ? "\u2421" :
    "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + " ";
  const most = 200; // names of a run of such characters
  const named = (run) => {
    const all = [...run];
    return all.slice(0, most).map(name).join("").trimEnd() + (all.length > most ? " and " + whole.format(all.length - most) + " more" : "");
  };

  // visible returns a text on one line with what cannot be seen named.
  const visible = (text) => text.replaceAll(unseen, named).replaceAll("\n", "↵").replaceAll("\t", "⇥");

  // said returns an element with a text that a rollout has, cut at a number of characters with a button for more.
  function said(text, cut = 4000, tag = "div", ended = true) {
    const box = element(tag, "said");
    const fill = () => {
      const shown = text.slice(0, cut);
      box.replaceChildren();
      let from = 0;
      for (const m of shown.matchAll(unseen)) {
        box.append(shown.slice(from, m.index), element("span", "unseen", named(m[0])));
        from = m.index + m[0].length;
      }
      box.append(shown.slice(from));
      if (text.length <= cut) {
        if (!ended) box.append("…");
        return;
      }
      box.append("…");
      if (tag !== "div") return;
      const more = element("button", "more", "Show " + (text.length <= 10 * cut ? "all " + whole.format(text.length) : whole.format(10 * cut) + " of " + whole.format(text.length)) + " characters");
      more.type = "button";
      more.onclick = () => { cut *= 10; fill(); };
      box.append(document.createElement("br"), more);
    };
    fill();
    return box;
  }
  const line = (text, ended) => element("span", "line", said(text, 300, "span", ended));

  return { element, none, number, signed, whole, sign, visible, said, line };
})();
