// Put after the page's own script: uses the page as a person would, and writes down what it saw.
const move = (id, value) => {
  const input = document.getElementById(id);
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
};
const rows = (where) => [...document.querySelectorAll(where)].map((row) => row.textContent);
const tables = () => ({ file: rows("#verdicts tr[data-place=file]"), others: rows("#verdicts tr:not([data-place=file])"),
  classes: rows("#classes tr[data-index]"), told: !document.querySelector(".as-asked").hidden });
const state = () => ({ texts: texts(), marks: marks(), tables: tables() });
{
  const seen = { first: window.first, start: state(), steps: {} };
  const step = (name, act) => { act(); seen.steps[name] = state(); };
  step("reads", () => move("reads", 990));
  step("speed", () => move("speed", 150));
  step("reset", () => document.getElementById("reset").click());
  step("core", () => move("core", 1000));
  step("storage", () => move("storage", 100));
  step("reset again", () => document.getElementById("reset").click());
  step("metric", () => document.querySelector("[data-metric=time]").click());
  step("class", () => {
    const choice = document.getElementById("class");
    choice.value = 0;
    choice.dispatchEvent(new Event("change", { bubbles: true }));
  });
  seen.boxes = [...document.querySelectorAll("svg.plot")].map((plot) => {
    const box = plot.getBBox();
    return [plot.id, box.width, box.height];
  });
  seen.wide = document.documentElement.scrollWidth > innerWidth;
  seen.faults = faults;
  const out = document.createElement("script");
  out.type = "application/json";
  out.id = "seen";
  out.textContent = JSON.stringify(seen).replaceAll("<", "\\u003c");
  document.body.append(out);
}
