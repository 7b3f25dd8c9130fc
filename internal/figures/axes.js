// Axes of the figures: where values lie, ticks, and curves over another measure of x. Nothing here knows the page.
const axes = (() => {
  "use strict";
  const share = (axis, v) => axis.log ? Math.log(v / axis.low) / Math.log(axis.high / axis.low) :
    (v - axis.low) / (axis.high - axis.low);
  const value = (axis, s) => axis.log ? axis.low * (axis.high / axis.low) ** s : axis.low + s * (axis.high - axis.low);
  const drawable = (axis, y) => y !== null && !(axis.log && y <= 0);

  // part returns the axis between two shares of its length.
  const part = (axis, from, to) => ({ ...axis, low: value(axis, from), high: value(axis, to) });

  // nearest returns the place in an ascending list that is nearest to a value.
  function nearest(list, v) {
    const [low, high] = around(list, v);
    return v - list[low] <= list[high] - v ? low : high;
  }

  // around returns the neighbours in an ascending list between which a value lies, or the two at an end.
  function around(list, v) {
    let low = 0, high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle] < v) low = middle; else high = middle;
    }
    return [low, high];
  }

  // along returns what stands in one ascending list where a value stands in another, on straight lines between.
  function along(from, to, v) {
    const [i, j] = around(from, v);
    if (j < 0) return null;
    const way = from[j] - from[i];
    return way > 0 ? to[i] + (to[j] - to[i]) * (v - from[i]) / way : to[j];
  }

  // fitted returns the axis over values, with some room. A logarithmic one is null where it makes no sense: with values
  // below 0, or all of one size.
  function fitted(axis, ys, log) {
    if (!log && !ys.length) return axis;
    if (!log) {
      const low = Math.min(...ys), high = Math.max(...ys), room = (high - low || Math.abs(high) / 5 || 1) * 0.07;
      return { ...axis, low: low >= 0 ? Math.max(0, low - room) : low - room, high: high + room, log: false };
    }
    const above = ys.filter((y) => y > 0).sort((a, b) => a - b);
    const low = above[Math.floor(above.length / 100)], high = above.at(-1);
    if (ys.some((y) => y < 0) || above.length < 0.8 * ys.length || above.length < 3 || high < 8 * low) return null;
    const room = (high / low) ** 0.05;
    return { ...axis, low: low / room, high: high * room, log: true };
  }

  // ticks returns about as many round values as wanted. Those of a whole axis are whole.
  function ticks(axis, most, whole) {
    if (axis.log) {
      const list = logTicks(axis);
      if (list.length > 1) return list;
    }
    const finest = (axis.high - axis.low) / most, power = 10 ** Math.floor(Math.log10(finest));
    let step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= finest * (1 - 1e-9));
    if (whole) step = Math.max(1, step === 2.5 ? 5 : step);
    const list = [];
    for (let k = Math.ceil(axis.low / step - 1e-9); k <= axis.high / step + 1e-9 && list.length <= 2 * most; k++)
      list.push(Number((k * step).toPrecision(12)));
    return list;
  }

  function logTicks(axis) {
    let ticks = [];
    for (const steps of [[1, 2, 5], [1, 3], [1]]) {
      ticks = [];
      for (let p = Math.floor(Math.log10(axis.low)); p <= Math.log10(axis.high); p++)
        for (const step of steps) ticks.push(Number((step * 10 ** p).toPrecision(3)));
      ticks = ticks.filter((v) => v >= axis.low && v <= axis.high);
      if (ticks.length <= 7) return ticks;
    }
    const every = Math.ceil(ticks.length / 6);
    return ticks.filter((_, i) => i % every === 0);
  }

  // smoothed returns the moving average of a curve with exponential weights, which halve over a share of the axis. A
  // point counts as much as what it is the mean of: the way from the point before.
  function smoothed(axis, curve, half) {
    let sum = 0, weight = 0, before = share(axis, curve.x[0]);
    const y = (curve.mean || curve.y).map((v, i) => {
      if (v === null) return null;
      const at = share(axis, curve.x[i]), kept = 2 ** (-(at - before) / half);
      const counts = at - before || share(axis, curve.x[1] ?? curve.x[0]) - at || 1;
      [sum, weight, before] = [sum * kept + v * counts, weight * kept + counts, at];
      return sum / weight;
    });
    return { ...curve, y, low: null };
  }

  // unpacked returns the numbers that package figures has written as steps.
  function unpacked(steps) {
    let x = 0;
    return Array.isArray(steps) ? steps.map((step) => x += step) : steps.at;
  }

  return { share, value, drawable, part, nearest, around, along, fitted, ticks, smoothed, unpacked };
})();
