// Draws every <figure class="chart"> from its own table, which stays there for whoever reads it.
(() => {
  const DAY = 86400;
  const formats = {
    count: (value) => value.toLocaleString(),
    share: (value) => `${(value * 100).toLocaleString(undefined, { maximumFractionDigits: 1 })} %`,
    ms: (value) => `${value.toLocaleString(undefined, { maximumFractionDigits: 0 })} ms`,
    bytes: (value) => {
      const units = ["B", "kB", "MB", "GB", "TB"];
      let unit = 0;
      while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit += 1;
      }
      return `${value.toLocaleString(undefined, { maximumFractionDigits: 1 })} ${units[unit]}`;
    },
  };

  function read(table) {
    const names = [...table.querySelectorAll("thead th")].slice(1).map((th) => th.textContent.trim());
    const days = [];
    const series = names.map(() => []);
    for (const row of table.querySelectorAll("tbody tr")) {
      days.push(Date.parse(`${row.querySelector("time").dateTime}T00:00:00Z`) / 1000);
      row.querySelectorAll("td").forEach((cell, place) => {
        series[place].push(cell.dataset.value === "" ? null : Number(cell.dataset.value));
      });
    }
    return { names, days, series };
  }

  // Sums from the last series up, so that the first one drawn is the whole.
  function stacked(series) {
    const sums = [];
    series.reduceRight((below, values, place) => {
      sums[place] = values.map((value, at) => (value ?? 0) + (below ? below[at] : 0));
      return sums[place];
    }, null);
    return sums;
  }

  function options(figure, data, width) {
    const style = getComputedStyle(figure);
    const colour = (name) => style.getPropertyValue(name).trim();
    const write = formats[figure.dataset.unit];
    const bars = "stacked" in figure.dataset;
    const axis = { stroke: colour("--body-quiet-color"), grid: { stroke: colour("--hairline-color"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const inSteps = figure.dataset.unit === "share" ? {} : { incrs: [1, 2, 5].flatMap((one) => [...Array(13).keys()].map((zeros) => one * 10 ** zeros)).sort((a, b) => a - b) };
    return {
      width,
      height: 200,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { drag: { x: false, y: false } },
      legend: { live: true },
      scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, values: "{MMM} {D}" , space: 60 },
        { ...axis, ...inSteps, size: 70, values: (_, splits) => splits.map((value) => (value === null ? "" : write(value))) },
      ],
      series: [
        { label: "day", value: (_, at) => (at === null ? "–" : new Date(at * 1000).toISOString().slice(0, 10)) },
        ...data.names.map((label, place) => ({
          label,
          stroke: colour(`--series-${place + 1}`),
          fill: bars ? colour(`--series-${place + 1}`) : undefined,
          width: bars ? 0 : 2,
          points: { show: !bars, size: 5 },
          paths: bars ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined,
          spanGaps: false,
          value: (_, __, ___, at) => {
            const value = at === null || at === undefined ? null : data.series[place][at];
            return value === null ? "–" : write(value);
          },
        })),
      ],
    };
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const data = read(figure.querySelector("table"));
    const drawn = "stacked" in figure.dataset ? stacked(data.series) : data.series;
    place.replaceChildren();
    const plot = new uPlot(options(figure, data, place.clientWidth), [data.days, ...drawn], place);
    plot.setScale("x", { min: data.days[0] - DAY / 2, max: data.days[data.days.length - 1] + DAY / 2 });
    return plot;
  }

  const figures = [...document.querySelectorAll("figure.chart")];
  if (!figures.length) return;
  const plots = new Map(figures.map((figure) => [figure, draw(figure)]));
  const anew = () => figures.forEach((figure) => {
    plots.get(figure).destroy();
    plots.set(figure, draw(figure));
  });
  new ResizeObserver(() => figures.forEach((figure) => {
    const width = figure.querySelector(".plot").clientWidth;
    if (width && width !== plots.get(figure).width) plots.get(figure).setSize({ width, height: 200 });
  })).observe(figures[0].parentElement);
  new MutationObserver(anew).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
})();
