// Figures for people.

const UNKNOWN = "not known";

export function count(number) {
  return number === null || number === undefined ? UNKNOWN : number.toLocaleString("en-US");
}

export function rate(number) {
  if (number === null || number === undefined) return UNKNOWN;
  return number.toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 1 : 0 });
}

export function bytes(number) {
  if (number === null || number === undefined) return UNKNOWN;
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (number >= size) return `${(number / size).toFixed(number / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${number} B`;
}

export function seconds(number) {
  if (number === null || number === undefined) return UNKNOWN;
  if (number < 0.0995) return `${(number * 1000).toFixed(number < 0.00995 ? 1 : 0)} ms`;
  if (number < 10) return `${number.toFixed(1)} s`;
  if (number < 120) return `${Math.round(number)} s`;
  if (number < 7200) return `${Math.round(number / 60)} min`;
  if (number < 172800) return `${Math.round(number / 3600)} h`;
  return `${Math.round(number / 86400)} days`;
}

export function percent(part, whole) {
  return part === null || !whole ? UNKNOWN : `${Math.round((100 * part) / whole)} %`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
