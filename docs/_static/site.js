// The chevron that opens a list of pages is no text: a screen reader says whose pages they are.
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("details > summary:has(.toctree-toggle)")) {
    const link = summary.closest("li").querySelector("a");
    summary.setAttribute("aria-label", `Pages of ${link ? link.textContent.trim() : "this part"}`);
  }
  // What a cell printed wraps as commands do, unless a table is drawn in it.
  for (const pre of document.querySelectorAll(".cell_output pre")) {
    if (!/[\u2500-\u257f]/.test(pre.textContent)) pre.style.whiteSpace = "pre-wrap";
  }
});
