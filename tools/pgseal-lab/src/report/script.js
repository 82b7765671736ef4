"use strict";
(() => {
  const root = document.documentElement;
  const tip = document.getElementById("tip");

  // Light or dark; the system's choice until the button is used.
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Values where one points or taps.
  for (const title of document.querySelectorAll(".p > title")) title.remove();
  for (const hint of document.querySelectorAll(".hint[title]")) hint.removeAttribute("title");
  const show = (event) => {
    const about = event.target.closest && event.target.closest("[data-tip]");
    if (!about) { tip.hidden = true; return; }
    tip.textContent = about.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, event.clientX + 14), innerWidth - box.width - 8);
    const above = event.clientY - box.height - 12;
    tip.style.left = x + "px";
    tip.style.top = (above > 8 ? above : event.clientY + 18) + "px";
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // The legend hides and shows series.
  for (const chart of document.querySelectorAll(".chart")) {
    chart.querySelector(".legend").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      for (const part of chart.querySelectorAll('.series[data-series="' + button.dataset.series + '"]'))
        part.classList.toggle("off", !on);
    });
  }

  // Tables that sort and, when long, filter.
  const key = (cell) => {
    if (!cell) return "";
    const number = cell.dataset.v !== undefined ? Number(cell.dataset.v) : NaN;
    return Number.isNaN(number) ? cell.textContent.trim() : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      if (head.classList.contains("still")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [key(row.cells[at]), row]);
        rows.sort((a, b) => (a[0] === "") - (b[0] === "") || (down ? -1 : 1) * compare(a[0], b[0]));
        body.append(...rows.map((row) => row[1]));
      });
    });
    if (body.rows.length > 15) {
      const filter = document.createElement("input");
      filter.type = "search";
      filter.className = "filter";
      filter.placeholder = "Filter rows: words, all of which must be there";
      filter.setAttribute("aria-label", "Filter rows");
      filter.addEventListener("input", () => {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const row of body.rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
      });
      table.parentNode.before(filter);
    }
  }

  // The results that are in this page, as a file.
  for (const button of document.querySelectorAll(".save")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.from).textContent;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = button.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
  root.dataset.script = "done";
})();
