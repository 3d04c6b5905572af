// Put before everything else: collects what goes wrong.
window.faults = [];
addEventListener("error", (event) => faults.push(String(event.message || event.target)), true);
addEventListener("securitypolicyviolation", (event) => faults.push(event.violatedDirective));
// What is drawn soon is drawn at once: the browser takes its picture when the page has loaded.
window.requestAnimationFrame = (draw) => { draw(); return 0; };
