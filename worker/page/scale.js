/** A common scale of bars, with its range and ticks. */

const MOST_TICKS = 5;

/** Returns a scale over fractions that includes 0; `at` maps a fraction to percent of the width. */
export function scaleOver(fractions) {
  const there = fractions.filter((fraction) => Number.isFinite(fraction));
  const most = Math.max(0, ...there);
  const least = Math.min(0, ...there);
  const span = most - least || 1;
  const power = 10 ** Math.floor(Math.log10(span / MOST_TICKS));
  const step = power * ([1, 2, 5, 10].find((times) => span / (times * power) <= MOST_TICKS) ?? 10);
  // rounded ends, so that the scale does not change with every snapshot
  const end = most === 0 ? 0 : Math.ceil((most * 1.001) / (step / 2)) * (step / 2);
  const begin = Math.floor(least / (step / 5)) * (step / 5);
  const width = end - begin || 1;
  const at = (fraction) => (100 * (Math.min(end, Math.max(begin, fraction)) - begin)) / width;
  const ticks = [];
  for (let tick = Math.ceil(begin / step); tick * step <= end + step / 1000; tick++) ticks.push(tick * step);
  return { at, ticks, step: (100 * step) / width, digits: Math.max(0, -Math.floor(Math.log10(100 * step) + 1e-9)) };
}

/** Sets the position of 0 and the distance of grid lines in a plot. */
export function ruled(plot, scale) {
  const rest = scale.at(0) % scale.step;
  plot.style.setProperty("--zero", `${scale.at(0)}%`);
  plot.style.setProperty("--step", `${Math.min(100, scale.step)}%`);
  // CSS positions a background in percent of the free space: width minus background size
  plot.style.setProperty("--rest", scale.step >= 100 ? "0%" : `${(100 * rest) / (100 - scale.step)}%`);
}

/** Draws a bar from 0 to a fraction. */
export function drawBar(bar, scale, fraction) {
  const there = Number.isFinite(fraction);
  bar.hidden = !there;
  if (!there) return;
  const [zero, end] = [scale.at(0), scale.at(fraction)];
  bar.style.left = `${Math.min(zero, end)}%`;
  bar.style.width = `${Math.abs(end - zero)}%`;
  bar.classList.toggle("below", fraction < 0);
}

/** Draws an interval. */
export function drawWhisker(whisker, scale, low, high) {
  const there = Number.isFinite(low) && Number.isFinite(high);
  whisker.hidden = !there;
  if (!there) return;
  whisker.style.left = `${scale.at(low)}%`;
  whisker.style.width = `${scale.at(high) - scale.at(low)}%`;
}
