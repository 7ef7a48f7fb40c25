// What cannot be read on this page, as a list of sentences. Evaluated by page_check.py in the page's own layout.
(() => {
  const kSlack = 1.5; // px: rounding of the layout
  const faults = [];
  const visible = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getClientRects().length > 0;
  const excerpt = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 50));
  const place = (node) => {
    const section = node.closest("section[id]");
    return `${section ? "#" + section.id + " " : ""}${node.tagName.toLowerCase()}${node.className && node.className.baseVal === undefined ? "." + node.className : ""} ${excerpt(node.textContent)}`;
  };
  const canvas = document.createElement("canvas").getContext("2d");
  const scrolls = (node) => ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
  const scroller = (node) => {
    for (let at = node.parentElement; at; at = at.parentElement) if (scrolls(at)) return at;
    return null;
  };

  // The page itself never scrolls sideways.
  const root = document.scrollingElement;
  if (root.scrollWidth > innerWidth + kSlack) faults.push(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth}`);

  // A cell holds its longest word, or four letters of it.
  let narrow = 0;
  for (const cell of document.querySelectorAll("th, td")) {
    if (!visible(cell) || !cell.textContent.trim()) continue;
    const style = getComputedStyle(cell);
    const inner = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    canvas.font = style.font;
    const word = Math.max(...cell.textContent.trim().split(/\s+/).map((each) => canvas.measureText(each).width));
    const least = Math.min(word, canvas.measureText("0000").width);
    if (inner + kSlack < least) {
      narrow += 1;
      if (narrow <= 3) faults.push(`a cell of ${inner.toFixed(0)} px: ${place(cell)}`);
    }
  }
  if (narrow > 3) faults.push(`${narrow} cells are narrower than four letters`);

  // Text stays in the block that holds it, and in what scrolls around it.
  let beyond = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    if (!text.data.trim()) continue;
    let holder = text.parentElement;
    if (!visible(holder) || holder.closest("svg, .defs")) continue;
    while (getComputedStyle(holder).display.startsWith("inline") && !["inline-block", "inline-flex"].includes(getComputedStyle(holder).display))
      holder = holder.parentElement;
    const box = holder.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const rect of range.getClientRects()) {
      if (rect.width < 1) continue;
      const out = Math.max(box.left - rect.left, rect.right - box.right);
      const around = scroller(holder);
      const lost = !around && (rect.right > innerWidth + kSlack || rect.left < -kSlack);
      if (out > kSlack || lost) {
        beyond += 1;
        if (beyond <= 3) faults.push(`text ${out.toFixed(0)} px beyond its box: ${place(holder)}`);
        break;
      }
    }
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!visible(svg)) continue;
    const box = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const rect = text.getBoundingClientRect();
      if (rect.width < 1) continue;
      const clipped = getComputedStyle(svg).overflowX !== "visible" &&
        (rect.left < box.left - kSlack || rect.right > box.right + kSlack || rect.top < box.top - kSlack || rect.bottom > box.bottom + kSlack);
      if (clipped || (!scroller(svg) && (rect.left < -kSlack || rect.right > innerWidth + kSlack))) {
        beyond += 1;
        if (beyond <= 3) faults.push(`text beyond its chart: ${place(text)}`);
      }
    }
  }
  if (beyond > 3) faults.push(`${beyond} texts lie beyond their boxes`);

  // What scrolls is reached by the keyboard, has a name, and shows that it goes on.
  for (const node of document.querySelectorAll("body *")) {
    if (!visible(node) || !scrolls(node) || node.scrollWidth <= node.clientWidth + kSlack) continue;
    if (node.tabIndex !== 0) faults.push(`the keyboard cannot scroll ${place(node)}`);
    if (node.getAttribute("role") !== "region" || !node.getAttribute("aria-label")) faults.push(`what scrolls has no name: ${place(node)}`);
    if (!getComputedStyle(node).backgroundImage.includes("gradient")) faults.push(`nothing shows that it goes on: ${place(node)}`);
  }
  return faults;
})()
