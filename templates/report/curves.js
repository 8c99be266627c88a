
"use strict";
(() => {
  const DASHES = [[], [6, 3], [2, 3]];
  const HEIGHT = 272;
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const charts = [...document.querySelectorAll("[data-plot]")].map(chart);

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // uPlot would round to three decimals, so that 0.0005 and 0.001 had the same label.
  function words(value) {
    if (value === null) return "";
    const short = Number(value.toPrecision(12)), size = Math.abs(short);
    return size !== 0 && (size < 1e-4 || size >= 1e7) ? short.toExponential() : short.toLocaleString("en", { maximumSignificantDigits: 12 });
  }

  // A moving average over a fortieth of all values on each side.
  function smoothed(values) {
    const reach = Math.max(1, Math.round(values.length / 40));
    const sums = [0];
    for (const value of values) sums.push(sums[sums.length - 1] + value);
    return values.map((_, at) => {
      const from = Math.max(0, at - reach), to = Math.min(values.length, at + reach + 1);
      return (sums[to] - sums[from]) / (to - from);
    });
  }

  function chart(place) {
    const figure = place.closest("figure");
    const curves = data[Number(place.dataset.plot)];
    const shows = curves.map(() => true);
    const legend = figure.querySelector(".legend");
    const buttons = [...legend.querySelectorAll("button")];
    const tools = figure.querySelector(".tools");
    const log = tools.querySelector('[data-do="log"]'), smooth = tools.querySelector('[data-do="smooth"]');
    const pressed = (button) => button.getAttribute("aria-pressed") === "true";
    let plot = null;

    function draw() {
      const range = plot && [plot.scales.x.min, plot.scales.x.max];
      if (plot) plot.destroy();
      const tables = curves.map((one) => [one.x, pressed(smooth) ? smoothed(one.y) : one.y]);
      const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, values: (_, ticks) => ticks.map(words) };
      plot = new uPlot({
        width: Math.max(place.clientWidth, 200),
        height: HEIGHT,
        legend: { show: false },
        cursor: { sync: { key: place.dataset.axis, scales: ["x", null] }, drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { distr: pressed(log) ? 3 : 1 } },
        axes: [{ ...axis, label: place.dataset.axis, labelSize: 20, size: 36 }, { ...axis, size: 64 }],
        series: [{}, ...curves.map((_, at) => ({
          show: shows[at],
          stroke: colour(`--c${at % 8}`),
          dash: DASHES[Math.floor(at / 8) % DASHES.length],
          width: 2,
          spanGaps: true,
          points: { fill: colour("--page") },
        }))],
        hooks: { setCursor: [values], draw: [(now) => marks(now, tables)] },
      }, uPlot.join(tables), place);
      if (range && range[0] !== null) plot.setScale("x", { min: range[0], max: range[1] });
    }

    // A diamond on each curve where an attempt begins.
    function marks(now, tables) {
      const { ctx, bbox } = now, size = 6 * devicePixelRatio;
      curves.forEach((one, at) => (one.marks ?? []).forEach((index) => {
        const x = now.valToPos(tables[at][0][index], "x", true), y = now.valToPos(tables[at][1][index], "y", true);
        if (!shows[at] || x < bbox.left || x > bbox.left + bbox.width) return;
        ctx.save();
        ctx.beginPath();
        ctx.moveTo(x, y - size); ctx.lineTo(x + size, y); ctx.lineTo(x, y + size); ctx.lineTo(x - size, y);
        ctx.closePath();
        ctx.fillStyle = colour(`--c${at % 8}`);
        ctx.strokeStyle = colour("--page");
        ctx.lineWidth = 2 * devicePixelRatio;
        ctx.stroke();
        ctx.fill();
        ctx.restore();
      }));
    }

    // Show each curve's value at the pointer, or its last one before.
    function values(now) {
      buttons.forEach((button, at) => {
        let place = now.cursor.idx ?? -1;
        while (place >= 0 && now.data[at + 1][place] == null) place -= 1;
        button.querySelector(".value").textContent = place < 0 ? "" : Number(now.data[at + 1][place].toPrecision(6));
      });
    }

    function whole() {
      const steps = plot.data[0];
      plot.setScale("x", { min: steps[0], max: steps[steps.length - 1] });
    }

    function move(shift, zoom) {
      const { min, max } = plot.scales.x;
      const middle = (min + max) / 2 + shift * (max - min), half = (max - min) / 2 * zoom;
      plot.setScale("x", { min: middle - half, max: middle + half });
    }

    function toggle(button) {
      button.setAttribute("aria-pressed", String(!pressed(button)));
      draw();
    }

    function begin() {
      if (plot) return;
      log.disabled = curves.some((one) => one.y.some((value) => value <= 0));
      smooth.disabled = curves.every((one) => one.y.length < 20);
      tools.hidden = legend.hidden = false;
      draw();
      log.addEventListener("click", () => toggle(log));
      smooth.addEventListener("click", () => toggle(smooth));
      buttons.forEach((button, at) => button.addEventListener("click", () => {
        shows[at] = !shows[at];
        button.setAttribute("aria-pressed", String(shows[at]));
        plot.setSeries(at + 1, { show: shows[at] });
      }));
      const keys = {
        ArrowLeft: () => move(-0.1, 1), ArrowRight: () => move(0.1, 1),
        "+": () => move(0, 0.7), "=": () => move(0, 0.7), "-": () => move(0, 1 / 0.7), "0": whole,
      };
      for (const button of tools.querySelectorAll("[data-key]")) {
        button.addEventListener("click", keys[button.dataset.key]);
      }
      place.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
      });
      new ResizeObserver(() => {
        if (place.clientWidth && place.clientWidth !== plot.width) plot.setSize({ width: place.clientWidth, height: HEIGHT });
      }).observe(place);
    }

    return { place, begin, again: () => plot && draw() };
  }

  // There may be hundreds of charts, so each is drawn when it comes near the screen.
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) charts.find((one) => one.place === entry.target).begin();
    }
  }, { rootMargin: "600px" });
  charts.forEach((one) => near.observe(one.place));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((one) => one.again()));
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    for (const one of charts) {
      if (!one.place.closest("details:not([open])")) one.begin();
      one.again();
    }
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    charts.forEach((one) => one.again());
  });
})();
