"use strict";
// Moves the pictures and the verdict with the sliders. The arithmetic is that of model.rs and the
// marks are those of the pictures drawn in Rust; tests hold both together. Names from the report
// reach the page as text nodes and attributes only, never as markup.
(() => {
  const { report, colours, buffers } = JSON.parse(document.getElementById("data").textContent);
  const { terms, medium, classes } = report;
  if (!classes.length) return;
  const colour = Object.assign(Object.create(null), { store: "store-1" }, Object.fromEntries(colours));
  const METRICS = ["time", "energy", "energy-delay", "money"];
  const start = () => ({
    reads: { ...terms.reads_per_write }, speed: 1, days: terms.days_kept,
    kwh: terms.prices.eur_per_kwh, core: terms.prices.core_eur_per_hour,
    storage: terms.prices.storage_eur_per_tb_year,
  });
  const prefer = METRICS.includes(terms.prefer) ? terms.prefer : "money";
  let at = start(), metric = prefer, savingsMetric = "energy", chosen = classes.length - 1;
  const headline = document.getElementById("headline").textContent;

  // The model: everything per GB; the cases are the means, the worst and the best.
  const CASES = [
    { cost: (e) => e.mean }, { cost: (e) => e.high }, { cost: (e) => e.low },
  ];
  const inverse = (e) => ({ mean: 1 / e.mean, low: 1 / e.high, high: 1 / e.low });
  const eurPerJoule = () => at.kwh / 3.6e6 * (1 + terms.prices.cooling_share);
  const eurPerCoreSecond = () => at.core / 3600 + terms.core_watts * eurPerJoule();
  const eurPerGbDay = () =>
    at.storage / 365e3 + terms.prices.storage_watts_per_tb / 1e3 * 86400 * at.kwh / 3.6e6;
  const methodsOf = (of) => of.methods.filter(
    (m) => m.block_bytes === report.sample.block_bytes && m.method !== "store" && m.evidence === "measured");
  function weights(of) {
    const threads = Math.max(terms.threads, 1);
    if (of === "energy") {
      return { medium: terms.idle_watts + terms.medium_watts, core: terms.core_watts + terms.idle_watts / threads,
        device: terms.idle_watts, joule: 1, written: 0, read: 0 };
    }
    if (of === "money") {
      const days = Math.max(at.days, terms.prices.billable_days_min);
      return { medium: terms.medium_watts * eurPerJoule(), core: eurPerCoreSecond(), device: 0,
        joule: eurPerJoule(), written: terms.prices.write_eur_per_gb + days * eurPerGbDay(),
        read: terms.prices.read_eur_per_gb };
    }
    return { medium: 1, core: 1 / threads, device: 1, joule: 0, written: 0, read: 0 };
  }
  function tasks(w, m, cost, speed) {
    const write = 1e3 / (cost(medium.write_mb_s) * speed) * w.medium + w.written;
    const read = 1e3 / (cost(medium.read_mb_s) * speed) * w.medium + w.read;
    const work = (of) =>
      cost(of.core_s_per_gb) * w.core + of.device_s_per_gb * w.device + of.device_j_per_gb * w.joule;
    const stored = cost(inverse(m.ratio));
    return { write, compress: stored * write + work(m.compress_work),
      read, decompress: stored * read + work(m.decompress_work) };
  }
  // The costs of storing raw and of a method, as functions of the reads.
  function costs(of, m, kase = 0, speed = at.speed) {
    const { cost } = CASES[kase];
    if (of === "energy-delay") {
      const energy = costs("energy", m, kase, speed), time = costs("time", m, kase, speed);
      return { raw: (n) => energy.raw(n) * time.raw(n), packed: (n) => energy.packed(n) * time.packed(n) };
    }
    const t = tasks(weights(of), m, cost, speed);
    return { raw: (n) => t.write + n * t.read, packed: (n) => t.compress + n * t.decompress };
  }
  // A method whose cost is not below this share of storing raw is not worth its while.
  const WORTH_WHILE = 0.99;
  const ratioOf = (c, n) => c.packed(n) / c.raw(n);
  function least(items, value) {
    let best = -1, low = Infinity;
    items.forEach((item, index) => { const v = value(item); if (v < low) { low = v; best = index; } });
    return [best, low];
  }
  const STEPS = [0, ...Array.from({ length: 181 }, (_, i) => 10 ** ((i - 60) / 20))];
  function crossings(of, m) {
    const c = costs(of, m), gain = (n) => c.raw(n) - c.packed(n) > 0, found = [];
    for (let i = 1; i < STEPS.length; i++) {
      let low = STEPS[i - 1], high = STEPS[i];
      const before = gain(low);
      if (before === gain(high)) continue;
      for (let k = 0; k < 60; k++) {
        const middle = (low + high) / 2;
        if (gain(middle) === before) low = middle; else high = middle;
      }
      found.push(high);
    }
    return found;
  }
  function standing(of, kind) {
    const methods = methodsOf(kind);
    const [index] = least(methods, (m) => ratioOf(costs(of, m), at.reads.mean));
    if (index < 0) return null;
    const m = methods[index], all = [0, 1, 2].map((k) => costs(of, m, k));
    const { low, mean, high } = at.reads, turns = crossings(of, m);
    const band = [low, mean, high].flatMap((n) => [ratioOf(all[1], n), ratioOf(all[2], n)]);
    const cost = { mean: ratioOf(all[0], mean), low: Math.min(...band), high: Math.max(...band) };
    const [pays, atLow, atHigh] = [cost.mean, cost.low, cost.high].map((c) => c < WORTH_WHILE);
    return { method: m.method, pays, mark: atLow !== atHigh ? "undecided" : pays ? "pays" : "loses", ...cost,
      from: turns.filter((n) => n < at.reads.mean).pop(), to: turns.find((n) => n >= at.reads.mean) };
  }

  // Words and numbers.
  const thousands = (n) => n.toString().replace(/\B(?=(\d{3})+$)/g, ",");
  function figures(value) {
    const size = Math.abs(value);
    if (!Number.isFinite(value)) return "?";
    if (size === 0) return "0";
    if (size < 1e-6 || size >= 1e12) return value.toExponential(2).replace("+", "");
    if (size < 1e-3) return value.toFixed(1 - Math.floor(Math.log10(size)));
    if (size >= 1e9) return `${figures(value / 1e9)} billion`;
    if (size >= 1e6) return `${figures(value / 1e6)} million`;
    if (size >= 1000) return thousands(Math.round(value));
    return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
  }
  function short(value) {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 999950) return short(value / 1e6) + "M";
    if (size >= 1000) return (value < 0 ? "-" : "") + thousands(Math.round(size));
    if (size < 1e-4) return value.toExponential(0);
    const decimals = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(size))));
    const text = value.toFixed(decimals);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }
  const FAR = 10;
  const percents = (s) => s.low >= FAR ? "over 1000 %"
    : s.high >= FAR ? `${(100 * s.low).toFixed(0)} % to over 1000 %`
    : 100 * (s.high - s.low) < 1 ? `${(100 * s.mean).toFixed(0)} %`
    : `${(100 * s.low).toFixed(0)}-${(100 * s.high).toFixed(0)} %`;
  function boundsText({ pays, mean, from, to }) {
    if (mean >= WORTH_WHILE && mean < 1) return "saves less than 1 %";
    const reads = (n) => `${figures(n)} reads per write`;
    if (pays) {
      if (from && to) return `pays from ${figures(from)} to ${reads(to)}`;
      return from ? `pays from ${reads(from)}` : to ? `pays up to ${reads(to)}` : "pays at any number of reads";
    }
    if (to) return `would pay from ${reads(to)}`;
    return from ? `would pay below ${reads(from)}` : "pays at no number of reads";
  }
  const OF_RAW = { "time": "time", "energy": "energy", "energy-delay": "energy × time", "money": "money" };
  function sentence(of, s) {
    const ofRaw = `${percents(s)} of the ${OF_RAW[of]} of storing raw`;
    if (s.mark === "undecided") return `Undecided: ${s.method} takes ${ofRaw}, so it may pay or not.`;
    return s.mark === "pays" ? `Compress with ${s.method}: ${ofRaw}; it ${boundsText(s)}.`
      : `Store raw: ${s.method} would take ${ofRaw}; it ${boundsText(s)}.`;
  }

  // Drawing.
  const node = (tag, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const f = (v) => String(+Math.min(99999, Math.max(-99999, v || 0)).toFixed(1));
  const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${f(x)} ${f(y)}`).join("");
  const rule = (x1, y1, x2, y2, kind) => node("line", { class: kind, x1: f(x1), y1: f(y1), x2: f(x2), y2: f(y2) });
  const text = (x, y, anchor, kind, words) =>
    node("text", { class: kind, x: f(x), y: f(y), "text-anchor": anchor }, words);
  const line = (points, kind = "") => node("path", { class: `line ${kind}`, d: path(points) });
  const dot = (x, y, r, title) =>
    node("circle", { class: "dot ", cx: f(x), cy: f(y), r: f(r) }, node("title", {}, title));
  const ofMethod = (name, ...children) =>
    node("g", { class: colour[name] || "other-1", "data-m": name }, ...children);
  const clipped = (id, ...children) => node("g", { "clip-path": `url(#${id}-clip)` }, ...children);
  function scale(log, [low, high], [from, to]) {
    const share = (v) => log ? Math.log(Math.max(v, 1e-300) / low) / Math.log(high / low) : (v - low) / (high - low);
    return { low, high, at: (v) => from + Math.min(11, Math.max(-10, share(v))) * (to - from),
      value: (s) => log ? low * (high / low) ** s : low + s * (high - low) };
  }
  // The frame that Rust drew, read from the picture itself.
  function frame(id) {
    const r = document.querySelector(`#${id}-clip rect`), n = (name) => +r.getAttribute(name);
    return { left: n("x"), right: n("x") + n("width"), top: n("y"), bottom: n("y") + n("height") };
  }
  function roundStep(step) {
    const power = 10 ** Math.floor(Math.log10(Math.max(step, 1e-300)));
    return ([1, 2, 5].find((d) => d * power >= step * (1 - 1e-9)) || 10) * power;
  }
  function ticks({ low, high }, count) {
    const step = roundStep((high - low) / count), first = Math.ceil(low / step - 1e-9), found = [];
    for (let i = 0; i < 40 && (first + i) * step <= high + 1e-9 * step; i++) found.push((first + i) * step);
    return found.map((v) => [v, short(v)]);
  }
  // Tens where there are enough of them, else more between them.
  function logTicks(x) {
    const of = (digits) => Array.from({ length: 30 }, (_, i) => 10 ** (i - 14))
      .flatMap((power) => digits.map((d) => d * power)).filter((v) => v >= x.low && v <= x.high);
    const [tens, threes, fives] = [[1], [1, 3], [1, 2, 5]].map(of);
    const found = tens.length >= 4 ? tens : threes.length >= 4 ? threes : fives.length >= 3 ? fives : null;
    return found ? found.map((v) => [v, short(v)]) : ticks(x, 6);
  }
  function axes(box, x, y, xTitle, yTitle, xTicks, yTicks) {
    const across = node("g", { class: "x" }), up = node("g", { class: "y" });
    for (const [v, words] of xTicks) {
      across.append(rule(x.at(v), box.top, x.at(v), box.bottom, "grid"),
        text(x.at(v), box.bottom + 17, "middle", "tick", words));
    }
    across.append(rule(box.left, box.bottom, box.right, box.bottom, "axis"));
    for (const [v, words] of yTicks) {
      up.append(rule(box.left, y.at(v), box.right, y.at(v), "grid"),
        text(box.left - 7, y.at(v) + 4, "end", "tick", words));
    }
    return [across, text((box.left + box.right) / 2, box.bottom + 36, "middle", "title", xTitle),
      up, text(6, box.top - 14, "start", "title", yTitle)];
  }
  function spread(wanted, gap, low, high) {
    const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]), placed = [];
    let floor = low, ceiling = high;
    for (const i of order) { placed[i] = Math.max(wanted[i], floor); floor = placed[i] + gap; }
    for (const i of order.reverse()) { placed[i] = Math.min(placed[i], ceiling); ceiling = placed[i] - gap; }
    return placed;
  }
  const live = (name, ...children) => {
    const group = document.querySelector(`[data-live="${name}"]`);
    if (group) group.replaceChildren(...children);
  };
  const series = (name, x, y) => ofMethod(name, text(x, y, "start", "series", name));

  // Who wins where.
  const COLUMNS = 160, ROWS = 60, CELLS = [16, 32];
  function drawMap() {
    const box = frame("map"), base = medium.write_mb_s.mean, wide = (box.right - box.left) / COLUMNS;
    const x = scale(true, [Math.min(base / 3, 10), Math.max(base * 3, 30000)], [box.left, box.right]);
    const y = scale(true, [0.01, 1000], [box.bottom, box.top]), high = box.bottom - box.top;
    const methods = methodsOf(classes[chosen]), columns = [];
    for (let i = 0; i < COLUMNS; i++) {
      const all = methods.map((m) => costs(metric, m, 0, x.value((i + 0.5) / COLUMNS) / base));
      const winner = (share) => {
        const n = y.value(share), [index, low] = least(all, (c) => ratioOf(c, n));
        return low < 1 ? index : -1;
      };
      const runs = [{ from: 0, to: 1, winner: winner(0) }];
      for (let row = 0; row < ROWS; row++) {
        let low = row / ROWS, top = (row + 1) / ROWS;
        const before = winner(low), after = winner(top);
        if (before === after) continue;
        for (let k = 0; k < 8; k++) {
          const middle = (low + top) / 2;
          if (winner(middle) === before) low = middle; else top = middle;
        }
        runs[runs.length - 1].to = top;
        runs.push({ from: top, to: 1, winner: after });
      }
      columns.push(runs);
    }
    const d = outlines(columns, (c) => box.left + wide * c, (share) => box.bottom - share * high);
    const nameOf = (i) => i < 0 ? "store" : methods[i].method;
    const order = [...d.keys()].sort((a, b) => a - b);
    const regions = order.map((i) => node("g", { "data-m": nameOf(i) }, node("title", {}, nameOf(i)),
      node("path", { class: `region ${colour[nameOf(i)]}`, d: d.get(i) })));
    live("map", ...regions, ...order.flatMap((i) => mapName(columns, i, nameOf(i), box)), ...here(box, x, y));
  }
  // Neighbouring columns with the same winners in the same order make one piece.
  function outlines(columns, x, y) {
    const d = new Map(), same = (a, b) => a.length === b.length && a.every((run, k) => run.winner === b[k].winner);
    for (let first = 0, end; first < columns.length; first = end) {
      for (end = first + 1; end < columns.length && same(columns[first], columns[end]);) end++;
      const piece = columns.slice(first, end);
      const edge = (k, side) => {
        const points = piece.map((runs, i) => [x(first + i + 0.5), y(runs[k][side])]);
        return [[x(first), points[0][1]], ...points, [x(end), points[points.length - 1][1]]];
      };
      columns[first].forEach(({ winner }, k) =>
        d.set(winner, (d.get(winner) || "") + path([...edge(k, "to"), ...edge(k, "from").reverse()]) + "Z"));
    }
    return d;
  }
  // A region's name stands in the largest square of cells that it fills, if it fits there.
  function mapName(columns, winner, name, box) {
    const [across, up] = CELLS, sides = Array.from({ length: across + 1 }, () => Array(up + 1).fill(0));
    let best = [0, 0, 0];
    for (let c = 0; c < across; c++) {
      for (let r = 0; r < up; r++) {
        const runs = columns[Math.floor((c + 0.5) / across * COLUMNS)], share = (r + 0.5) / up;
        if (runs.findLast((run) => run.from <= share).winner !== winner) continue;
        const side = 1 + Math.min(sides[c][r], sides[c + 1][r], sides[c][r + 1]);
        sides[c + 1][r + 1] = side;
        if (side > best[0]) best = [side, c + 1, r + 1];
      }
    }
    const [side, column, row] = best, words = winner < 0 ? "store raw" : name;
    if (side < 2 || 7.1 * [...words].length > (box.right - box.left) / across * side) return [];
    const x = box.left + (column - side / 2) / across * (box.right - box.left);
    return [text(x, box.bottom - (row - side / 2) / up * (box.bottom - box.top) + 4, "middle", "on-region", words)];
  }
  function here(box, x, y) {
    const cx = Math.min(box.right, Math.max(box.left, x.at(medium.write_mb_s.mean * at.speed)));
    const cy = Math.min(box.bottom, Math.max(box.top, y.at(at.reads.mean)));
    return ["under", "over"].map((kind) => node("circle", { class: kind, cx: f(cx), cy: f(cy), r: "7" }));
  }

  // Saved or lost, read by read.
  const SAVED = { "time": "seconds saved per GB", "energy": "joules saved per GB",
    "energy-delay": "joule-seconds saved on one GB", "money": "EUR saved per TB" };
  function drawSavings() {
    const box = frame("savings"), of = savingsMetric, unit = of === "money" ? 1e3 : 1;
    const methods = methodsOf(classes[chosen]), most = Math.max(2.5 * at.reads.high, 10);
    const end = Math.ceil(most / roundStep(most / 5)) * roundStep(most / 5);
    const saving = methods.map((m) => { const c = costs(of, m); return (n) => unit * (c.raw(n) - c.packed(n)); });
    const ends = saving.flatMap((s) => [s(0), s(end)]), high = Math.max(...ends), low = Math.min(...ends);
    const shown = high > 0 ? [1.05 * Math.min(0, Math.max(-0.6 * high, low)), 1.08 * high]
      : high < 0 ? [4 * high, -0.4 * high] : [-1, 1];
    const x = scale(false, [0, end], [box.left, box.right]), y = scale(false, shown, [box.bottom, box.top]);
    const from = x.at(at.reads.low), to = Math.min(box.right, x.at(at.reads.high));
    const band = node("rect", { class: "band", x: f(from - 0.75), y: f(box.top), width: f(to - from + 1.5),
      height: f(box.bottom - box.top) });
    const lines = methods.map((m, i) => ofMethod(m.method, line(Array.from({ length: 25 }, (_, k) =>
      [x.at(end * k / 24), y.at(saving[i](end * k / 24))]))));
    const dots = methods.flatMap((m) => crossings(of, m).filter((n) => n <= end).map((n) =>
      ofMethod(m.method, dot(x.at(n), y.at(0), 4.5, `${m.method}: break-even at ${figures(n)} reads`))));
    const inside = methods.filter((_, i) => saving[i](end) >= shown[0]);
    const below = methods.filter((m) => !inside.includes(m)).map((m) => m.method);
    const places = spread(inside.map((m) => y.at(saving[methods.indexOf(m)](end)) + 4), 14, box.top + 4, box.bottom + 4);
    live("savings", ...axes(box, x, y, "reads per write", SAVED[of], ticks(x, 6), ticks(y, 6)), band,
      rule(box.left, y.at(0), box.right, y.at(0), "zero"), clipped("savings", ...lines), ...dots,
      ...inside.map((m, i) => series(m.method, box.right + 6, places[i])),
      ...(below.length ? [text(box.left + 8, box.bottom - 8, "start", "soft halo", `far below: ${below.join(", ")}`)] : []));
  }

  // Days until it has paid for itself.
  function drawRedemption() {
    const box = frame("redemption"), ratios = methodsOf(classes[chosen]).map((m) => m.ratio.mean);
    const most = Math.max(1.5, ...ratios), log = most > 15;
    const x = scale(log, log ? [0.9, 1.3 * most] : [1, 1.06 * most], [box.left, box.right]);
    const y = scale(true, [1 / 1440, 10950], [box.bottom, box.top]);
    const inside = (v) => Math.min(box.bottom, Math.max(box.top, v));
    const eur = terms.medium_watts * eurPerJoule(), { prices } = terms;
    const moved = 1e3 / (medium.write_mb_s.mean * at.speed) * eur + prices.write_eur_per_gb +
      at.reads.mean * (1e3 / (medium.read_mb_s.mean * at.speed) * eur + prices.read_eur_per_gb);
    const work = (w) => w.core_s_per_gb.mean * eurPerCoreSecond() + w.device_j_per_gb * eurPerJoule();
    const lines = [], dots = [], wishes = [];
    for (const m of methodsOf(classes[chosen])) {
      const codec = work(m.compress_work) + at.reads.mean * work(m.decompress_work);
      const days = (ratio) => ratio > 1 ? (codec / (1 - 1 / ratio) - moved) / eurPerGbDay() : Infinity;
      const place = (ratio) => [x.at(ratio), y.at(Math.max(days(ratio), 1e-9))];
      lines.push(ofMethod(m.method, line(Array.from({ length: 48 }, (_, k) => place(x.value(((k + 1) / 48) ** 2))), "thin")));
      const own = days(m.ratio.mean), [px, py] = place(m.ratio.mean);
      if (!Number.isFinite(own)) continue;
      dots.push(ofMethod(m.method, dot(px, inside(py), 5.5, `${m.method}: redeemed after ${figures(Math.max(own, 0))} days`)));
      wishes.push({ at: [px, inside(py)], words: m.method });
    }
    const kept = inside(y.at(at.days));
    const names = placeLabels(wishes, [box.left, box.top], [box.right + 12, box.bottom]).map(([lx, ly], i) =>
      ofMethod(wishes[i].words, text(lx, ly, "start", "series halo", wishes[i].words)));
    const days = [[1 / 1440, "1 min"], [1 / 24, "1 hour"], [1, "1 day"], [30, "1 month"], [365, "1 year"], [3650, "10 years"]];
    live("redemption", ...axes(box, x, y, "ratio, raw over stored", "kept until redeemed", log ? logTicks(x) : ticks(x, 6), days),
      clipped("redemption", ...lines), rule(box.left, kept, box.right, kept, "guide"),
      text(box.right - 4, kept - 5, "end", "soft halo", `kept ${figures(at.days)} days`), ...dots, ...names);
  }
  // Labels beside their points, where they cover the least.
  function placeLabels(wishes, [left, top], [right, bottom]) {
    const overlap = (a, b) => Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) *
      Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
    const bounds = [left, top, right, bottom], H = 15, chosen = wishes.map(() => 0);
    const dots = wishes.map(({ at: [x, y] }) => [x - 5, y - 5, x + 5, y + 5]);
    const choices = wishes.map(({ at: [x, y], words }) => {
      const wide = 7.1 * [...words].length + 2;
      return [8, 16, 26].flatMap((away) => [
        [x + away, y - H / 2], [x - wide / 2, y - H - away + 2], [x - wide / 2, y + away - 2],
        [x - wide - away, y - H / 2], [x + away * 0.7, y - H - away * 0.5], [x + away * 0.7, y + away * 0.5],
        [x - wide - away * 0.7, y - H - away * 0.5], [x - wide - away * 0.7, y + away * 0.5],
      ]).map(([l, t]) => [l, t, l + wide, t + H]);
    });
    for (let round = 0; round < 4; round++) {
      choices.forEach((own, index) => {
        const others = choices.map((c, i) => c[chosen[i]]).filter((_, i) => i < index || (round > 0 && i !== index));
        const sum = (boxes, area) => boxes.reduce((total, other) => total + overlap(other, area), 0);
        [chosen[index]] = least(own, (a) => 10 * ((a[2] - a[0]) * H - overlap(a, bounds)) + sum(dots, a) +
          4 * sum(others, a) + 4 * own.indexOf(a));
      });
    }
    return choices.map((c, i) => [c[chosen[i]][0] + 1, c[chosen[i]][3] - 4]);
  }

  // A buffer cache.
  function drawBuffers() {
    if (!buffers) return;
    const box = frame("buffers"), miss = buffers.miss_us / at.speed, raw = miss * (1 - buffers.raw_hit_ratio);
    const cost = (b, restored) => b.hit_ratio.map((hit, i) => b.restore_us * restored[i] + (miss + b.compress_us) * (1 - hit));
    const sets = buffers.methods.map((b) => ({ b, best: cost(b, b.restored), blind: cost(b, b.restored_blind) }));
    const most = Math.max(raw, ...sets.flatMap((s) => s.blind));
    const x = scale(false, [0, 100], [box.left, box.right]);
    const y = scale(false, [0, 1.08 * Math.min(most, 2 * raw)], [box.bottom, box.top]);
    const points = (values) => values.map((v, i) => [x.at(i), y.at(v)]);
    const ends = [["raw", "store-1", y.at(raw)], ...sets.map((s) => [s.b.method, s.b.colour, y.at(s.best[100])])];
    const places = spread(ends.map((e) => e[2] + 4), 14, box.top + 4, box.bottom + 4);
    live("buffers", ...axes(box, x, y, "% of memory that holds compressed buffers", "microseconds per access", ticks(x, 5), ticks(y, 6)),
      clipped("buffers", node("g", { class: "store-1" }, line(points(Array(101).fill(raw)))),
        ...sets.map(({ b, best, blind }) => node("g", { class: b.colour, "data-m": b.method },
          node("path", { class: "area ", d: path([...points(blind), ...points(best).reverse()]) + "Z" }), line(points(best))))),
      ...ends.map(([name, kind, _], i) => node("g", { class: kind },
        text(box.right + 6, places[i], "start", "series", name))));
  }

  // What is said.
  const TITLES = { "time": "Time", "energy": "Energy", "energy-delay": "Energy × time", "money": "Money" };
  const isStart = () => JSON.stringify(at) === JSON.stringify(start()) && chosen === classes.length - 1;
  function say() {
    const kind = classes[chosen];
    for (const card of document.querySelectorAll(".card")) {
      const s = standing(card.dataset.metric, kind);
      if (!s) continue;
      card.className = `card ${s.mark}`;
      card.setAttribute("aria-pressed", card.dataset.metric === metric);
      card.querySelector("b").textContent = s.mark === "undecided" ? "undecided" : s.pays ? s.method : "store raw";
      card.querySelector(".cost").textContent = (s.mark === "pays" ? "" : `${s.method}: `) + `${percents(s)} of storing raw`;
      card.querySelector(".bounds").textContent = (s.mark === "undecided" ? "at the means " : "") + boundsText(s);
    }
    const s = standing(metric, kind), p = standing(prefer, kind);
    if (s) document.getElementById("sentence").textContent = sentence(metric, s);
    if (p) {
      const what = kind.name === "all" ? "" : `${kind.name}: `;
      document.getElementById("headline").textContent = isStart() ? headline : what + sentence(prefer, p);
    }
    document.querySelector('[data-tag="map"]').textContent = TITLES[metric];
    document.querySelector('[data-tag="savings"]').textContent = TITLES[savingsMetric];
    // Each picture marks the best method of its own metric.
    const own = { savings: savingsMetric, redemption: "money" };
    for (const plot of document.querySelectorAll(".plot:not(#buffers, #hits)")) {
      const best = standing(own[plot.id] || metric, kind);
      for (const mark of plot.querySelectorAll("[data-m]")) {
        mark.classList.toggle("picked", best !== null && best.mark === "pays" && mark.dataset.m === best.method);
      }
    }
  }
  // The tables, which stand as they were written until something is moved.
  const written = new Map();
  const html = (tag, kind, words) => {
    const made = document.createElement(tag);
    made.className = kind;
    made.append(words);
    return made;
  };
  const bestOf = (s) => s.mark === "undecided" ? html("span", "undecided", "undecided")
    : s.pays ? html("span", `chip ${colour[s.method] || "other-1"}`, s.method) : html("span", "chip store-1", "store raw");
  function fill(cell, content) {
    if (!written.has(cell)) written.set(cell, [...cell.childNodes]);
    cell.replaceChildren(...(isStart() ? written.get(cell) : [content]));
  }
  function tables() {
    for (const row of document.querySelectorAll("#verdicts tr[data-place]")) {
      const isFile = row.dataset.place === "file", s = isFile && standing(row.dataset.metric, classes[chosen]);
      row.classList.toggle("stale", !isFile && !isStart());
      if (!s) continue;
      const contents = [bestOf(s), percents(s), `${s.method}: ${boundsText(s)}`, ""];
      row.querySelectorAll(".live").forEach((cell, i) => fill(cell, contents[i]));
    }
    for (const row of document.querySelectorAll("#classes tr[data-index]")) {
      for (const cell of row.querySelectorAll(".live")) {
        const s = standing(cell.dataset.metric, classes[+row.dataset.index]);
        if (s) fill(cell, bestOf(s));
      }
    }
    for (const line of document.querySelectorAll(".as-asked")) line.hidden = isStart();
  }
  function outputs() {
    const units = { reads: "", speed: " MB/s", days: " days", core: " EUR/core-hour", storage: " EUR/TB-year", kwh: " EUR/kWh" };
    for (const input of document.querySelectorAll(".slider input")) {
      const value = input.id === "reads" ? at.reads.mean : input.id === "speed" ? at.speed * medium.write_mb_s.mean : at[input.id];
      const range = input.id === "reads" && at.reads.low < at.reads.high;
      input.previousElementSibling.textContent =
        range ? `${figures(at.reads.low)} to ${figures(at.reads.high)}` : figures(value) + units[input.id];
      input.setAttribute("aria-valuetext", input.previousElementSibling.textContent);
      input.style.setProperty("--done", `${input.value / 10}%`);
    }
  }
  let wanted = false;
  function draw() {
    wanted = false;
    for (const group of document.querySelectorAll("[data-class]")) {
      group.classList.toggle("hidden", +group.dataset.class !== chosen);
    }
    drawMap(); drawSavings(); drawRedemption(); drawBuffers(); say(); tables(); outputs();
  }
  const soon = () => { if (!wanted) { wanted = true; requestAnimationFrame(draw); } };

  // What can be done.
  for (const input of document.querySelectorAll(".slider input")) {
    input.dataset.first = input.value;
    input.addEventListener("input", () => {
      const { low, high } = input.dataset, value = +(low * (high / low) ** (input.value / 1000)).toPrecision(2);
      if (input.id === "reads") at.reads = { mean: value, low: value, high: value };
      else at[input.id] = input.id === "speed" ? value / medium.write_mb_s.mean : value;
      soon();
    });
  }
  document.getElementById("class").addEventListener("change", (event) => { chosen = +event.target.value; soon(); });
  document.getElementById("reset").addEventListener("click", () => {
    at = start(); chosen = classes.length - 1; document.getElementById("class").value = chosen;
    for (const input of document.querySelectorAll(".slider input")) input.value = input.dataset.first;
    soon();
  });
  for (const card of document.querySelectorAll(".card")) {
    card.addEventListener("click", () => { metric = savingsMetric = card.dataset.metric; soon(); });
  }
  const focus = (name) => {
    for (const mark of document.querySelectorAll(".plot [data-m]")) {
      mark.classList.toggle("dim", name !== null && mark.dataset.m !== name);
    }
  };
  for (const key of document.querySelectorAll(".legend [data-key]")) {
    key.addEventListener("pointerenter", () => focus(key.dataset.key));
    key.addEventListener("pointerleave", () => focus(null));
  }
  document.documentElement.classList.add("js");
  draw();
})();
