"use strict";
// Values on hover and by arrow keys, a capacity for the whole page, and series switched on and off.
(() => {
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const picker = document.getElementById("capacity");
  const boxes = all("input[data-key]");
  const off = new Set();
  const picked = () => (picker ? picker.value : "");

  // --- one plot -------------------------------------------------------------------------------------------

  function plotOf(box) {
    const svg = box.querySelector("svg");
    const told = JSON.parse(box.querySelector("script").textContent);
    const [left, top, right, bottom] = told.box;
    const parts = told.series.map((_, k) => all(`[data-series="${k}"]`, svg));
    const drawn = (name, attributes) => {
      const one = document.createElementNS("http://www.w3.org/2000/svg", name);
      Object.entries(attributes).forEach(([key, value]) => one.setAttribute(key, value));
      one.style.display = "none";
      return svg.appendChild(one);
    };
    const guide = drawn("line", { class: "picked", y1: top, y2: bottom });
    const ring = drawn("circle", { class: "ring", r: 5.5 });
    const tip = box.appendChild(document.createElement("div"));
    tip.className = "tip";
    tip.setAttribute("role", "status");
    const zoom = told.zoom && zoomOf(svg, told, parts);
    let points = [];
    let at = null;

    const isOff = (k) => off.has(told.series[k][0]);

    function update() {
      parts.forEach((groups, k) => groups.forEach((one) => one.classList.toggle("off", isOff(k))));
      const place = zoom ? zoom(isOff) : (k, x, y) => [x, y];
      points = told.points
        .map(([k, x, y, text, capacity]) => ({ k, at: place(k, x, y), text, capacity }))
        .filter((one) => !isOff(one.k) && inside(one.at));
      const one = picked() && !zoom && points.find((point) => String(point.capacity) === picked());
      guide.style.display = one ? "" : "none";
      if (one) ["x1", "x2"].forEach((key) => guide.setAttribute(key, one.at[0]));
      show(null);
    }

    function inside([x, y]) {
      return x >= left - 1 && x <= right + 1 && y >= top - 1 && y <= bottom + 1;
    }

    function show(one) {
      at = one;
      ring.style.display = one ? "" : "none";
      tip.textContent = one ? [told.series[one.k][1], one.text].filter(Boolean).join(": ") : "";
      if (!one) return;
      const [x, y] = one.at;
      const { width, height } = svg.viewBox.baseVal;
      ring.setAttribute("cx", x);
      ring.setAttribute("cy", y);
      const wide = x > width / 2;
      const high = y > height / 2;
      tip.style.left = wide ? "auto" : `${(100 * x) / width}%`;
      tip.style.right = wide ? `${100 - (100 * x) / width}%` : "auto";
      tip.style.top = high ? "auto" : `calc(${(100 * y) / height}% + .7rem)`;
      tip.style.bottom = high ? `calc(${100 - (100 * y) / height}% + .7rem)` : "auto";
    }

    function nearest(x, y, candidates = points) {
      const weights = { xy: [1, 1], x: [8, 1], y: [1, 8] }[told.near];
      const far = (one) => Math.hypot((one.at[0] - x) * weights[0], (one.at[1] - y) * weights[1]);
      return candidates.reduce((best, one) => (best && far(best) <= far(one) ? best : one), null);
    }

    function pointed(event) {
      const matrix = svg.getScreenCTM();
      if (!matrix) return;
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      show(nearest(place.x, place.y));
    }

    const steps = {
      ArrowRight: (mine, k) => mine[k + 1],
      ArrowLeft: (mine, k) => mine[k - 1],
      Home: (mine) => mine[0],
      End: (mine) => mine[mine.length - 1],
      ArrowDown: () => inOther(1),
      ArrowUp: () => inOther(-1),
    };

    function inOther(step) {
      const shown = [...new Set(points.map((one) => one.k))];
      const k = shown[(shown.indexOf(at.k) + step + shown.length) % shown.length];
      const [x, y] = at.at;
      return nearest(x, y, points.filter((one) => one.k === k));
    }

    function pressed(event) {
      if (event.key === "Escape") return show(null);
      if (!(event.key in steps) || !points.length) return undefined;
      event.preventDefault();
      if (!at) return show(points[0]);
      const mine = points.filter((one) => one.k === at.k);
      return show(steps[event.key](mine, mine.indexOf(at)) || at);
    }

    box.tabIndex = 0;
    box.setAttribute("role", "application");
    box.setAttribute("aria-roledescription", "plot; arrow keys read its values");
    svg.setAttribute("aria-hidden", "true");
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(null));
    box.addEventListener("keydown", pressed);
    box.addEventListener("blur", () => show(null));
    return update;
  }

  // --- zoom into one capacity, the vertical axis as far as what is shown ----------------------------------

  function zoomOf(svg, told, parts) {
    const { unit, places, asides, spread, zero, one } = told.zoom;
    const [left, top, right, bottom] = told.box;
    const pair = /(-?[\d.]+) (-?[\d.]+)/g;
    const shapes = parts.map((groups) =>
      groups.flatMap((group) =>
        all("use, path", group)
          .filter((shape) => !shape.closest("defs"))
          .filter((shape) => shape.localName === "use" || shape.hasAttribute("d")) // no bounds: no whiskers
          .map((shape) =>
            shape.localName === "use"
              ? { shape, ends: [["x", "y"].map((key) => Number(shape.getAttribute(key)))] }
              : { shape, ends: [...shape.getAttribute("d").matchAll(pair)].map((m) => [+m[1], +m[2]]) },
          ),
      ),
    );
    const levels = all('[data-axis="l"] path', svg);
    const [xTicks, yTicks] = ["x", "y"].map((axis) => all(`[data-axis="${axis}"] .tick`, svg));
    const where = (tick, key) => Number(tick.querySelector("use").getAttribute(key));
    const xTickAt = xTicks.map((tick) => where(tick, "x"));
    const model = yTicks[0];
    const modelAt = model ? where(model, "y") : 0;
    const labels = model ? model.parentNode : null;
    yTicks.slice(1).forEach((tick) => tick.remove());

    function shifts(isOff) {
      const shown = asides.map((_, k) => k).filter((k) => !isOff(k));
      return asides.map((aside, k) => {
        const n = shown.indexOf(k);
        return n < 0 ? 0 : spread * unit * ((n + 0.5) / shown.length - 0.5) - aside;
      });
    }

    function window_(shift, isOff) {
      const middle = places[picked()];
      const [x0, x1] = middle === undefined ? [left, right] : [middle - unit / 2, middle + unit / 2];
      const seen = shapes.flatMap((found, k) =>
        isOff(k)
          ? []
          : found.flatMap(({ ends }) =>
              ends.filter(([x]) => x + shift[k] >= x0 && x + shift[k] <= x1).map(([, y]) => y),
            ),
      );
      const [y0, y1] = [Math.min(zero, ...seen), Math.max(zero, ...seen)];
      const room = 0.06 * (y1 - y0 || bottom - top);
      return [x0, x1, y0 - room, y1 + room];
    }

    function label(Y, y0, y1) {
      if (!model) return;
      const value = (y) => (y - zero) / (one - zero);
      const [low, high] = [value(y1), value(y0)];
      const rough = 10 ** Math.floor(Math.log10((high - low) / 4));
      const step = [1, 2, 5, 10].map((n) => n * rough).find((n) => (high - low) / n <= 6);
      const digits = Math.max(0, -Math.floor(Math.log10(step)));
      all(".tick", labels).forEach((tick) => tick.remove());
      for (let n = Math.ceil(low / step); n * step <= high; n += 1) {
        const tick = labels.insertBefore(model.cloneNode(true), labels.firstChild);
        const y = Y(zero + n * step * (one - zero));
        tick.setAttribute("transform", `translate(0 ${y - modelAt})`);
        tick.querySelector("text").textContent = (n * step).toFixed(digits).replace("-", "−");
      }
    }

    return (isOff) => {
      const shift = shifts(isOff);
      const [x0, x1, y0, y1] = window_(shift, isOff);
      const X = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
      const Y = (y) => top + ((y - y0) / (y1 - y0)) * (bottom - top);
      const place = (k, x, y) => [X(x + shift[k]), Y(y)];
      shapes.forEach((found, k) =>
        found.forEach(({ shape, ends }) => {
          const moved = ends.map(([x, y]) => place(k, x, y));
          if (shape.localName === "path") shape.setAttribute("d", `M ${moved.map((p) => p.join(" ")).join(" L ")}`);
          else ["x", "y"].forEach((key, n) => shape.setAttribute(key, moved[0][n]));
        }),
      );
      levels.forEach((path) => path.setAttribute("d", `M ${left} ${Y(zero)} L ${right} ${Y(zero)}`));
      xTicks.forEach((tick, k) => {
        tick.setAttribute("transform", `translate(${X(xTickAt[k]) - xTickAt[k]} 0)`);
        tick.classList.toggle("off", xTickAt[k] < x0 || xTickAt[k] > x1);
      });
      label(Y, y0, y1);
      return place;
    };
  }

  // --- the whole page -------------------------------------------------------------------------------------

  function follow() {
    const now = picked();
    all("figure[data-capacity], .answer[data-capacity]").forEach((one) => {
      one.hidden = Boolean(now) && one.dataset.capacity !== now;
    });
    all("table").forEach(fold);
    all(".scroll, figure").forEach((box) => box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1));
  }

  function fold(table) {
    let shown = 0, seen = 0;
    all("tbody tr", table).forEach((row) => {
      row.hidden = Boolean(picked()) && "capacity" in row.dataset && row.dataset.capacity !== picked();
      if (row.hidden) return;
      const isFolded = shown >= FOLD && !("kept" in row.dataset);
      row.classList.toggle("more", isFolded);
      seen += isFolded ? 0 : 1;
      row.classList.toggle("even", (isFolded ? shown : seen - 1) % 2 === 1);
      shown += 1;
    });
    const box = table.closest(".scroll"), switcher = box.previousElementSibling;
    if (!switcher || !switcher.matches(".fold")) return;
    switcher.hidden = shown === seen;
    switcher.firstElementChild.textContent = `Show all ${shown} rows`;
    box.dataset.rest = `… of ${shown} rows; the screen shows all`;
  }

  function switched() {
    boxes.forEach((box) => (box.checked ? off.delete(box.dataset.key) : off.add(box.dataset.key)));
    all("[data-of]").forEach((one) => {
      one.classList.toggle("struck", off.has(one.dataset.of));
    });
    const policies = all("[id^=policy-]");
    const count = document.getElementById("n-policies");
    if (count) count.textContent = `${policies.filter((box) => box.checked).length} of ${policies.length} shown`;
  }

  const FOLD = Number(document.body.dataset.fold);
  document.documentElement.classList.add("js");
  if (window.matchMedia("(max-width: 40rem)").matches) {
    all(".controls details").forEach((one) => { one.open = false; }); // they would cover the plots
  }
  switched();
  const updates = all(".plot").map(plotOf);
  const redraw = () => updates.forEach((update) => update());
  follow();
  redraw();
  if (picker) picker.addEventListener("change", () => { follow(); redraw(); });
  boxes.forEach((box) => box.addEventListener("change", () => { switched(); redraw(); }));
  all("button[data-all]").forEach((button) =>
    button.addEventListener("click", () => {
      all("[id^=policy-]").forEach((box) => { box.checked = Boolean(button.dataset.all); });
      switched();
      redraw();
    }),
  );
})();
