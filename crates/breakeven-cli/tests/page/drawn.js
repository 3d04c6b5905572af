// Put before the page's own script: keeps what was drawn without it.
window.texts = () => [...document.querySelectorAll(".card, #headline, #sentence, output, [data-tag]")]
  .map((node) => node.textContent);
window.marks = () => Object.fromEntries([...document.querySelectorAll("[data-live]")].map((group) =>
  [group.dataset.live, [...group.querySelectorAll("*")].map((node) => ({
    tag: node.tagName,
    attributes: [...node.attributes].map((a) => a.name + "=" + a.value.replace(/ ?picked/, "")),
    text: node.children.length ? "" : node.textContent,
  }))]));
window.first = { texts: texts(), marks: marks() };
