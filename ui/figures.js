// Formats numbers for people. Counts keep every digit; rates and times have three significant ones.

/**
 * A count with all its digits, as in `weir ledger`.
 * @param {bigint | number | string} value
 */
export function grouped(value) {
  const text = String(value);
  const [, sign = "", digits = text] = /^(-?)(\d+)$/.exec(text) ?? [];
  return sign + digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** @param {number} value */
function threeDigits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

/**
 * @param {number} value
 * @param {[number, string][]} units In descending order.
 */
function scaled(value, units) {
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size) ?? units[units.length - 1] ?? [1, ""];
  return threeDigits(value / size) + unit;
}

/** @param {number} value A number without a unit, such as 12.3k. */
export const short = (value) => scaled(value, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);

/** @param {number} value A rate, on a chart's scale. */
export const each = (value) => `${short(value)}/s`;

/** @param {number | null} value */
export function perSecond(value) {
  return value === null ? "–" : `${short(Math.abs(value) < 0.005 ? 0 : value)}/s`;
}

/**
 * The rate between two counts. A count may go back when datagrams turn out undeliverable; the rate is then 0, not negative.
 * @param {bigint} before
 * @param {bigint} now
 * @param {number} seconds
 */
export const perSecondBetween = (before, now, seconds) => (now > before ? Number(now - before) / seconds : 0);

/** @param {number | bigint} value */
export const size = (value) =>
  scaled(Number(value), [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"], [1, " B"]]);

/** @param {number} value */
export const bitsPerSecond = (value) =>
  scaled(value, [[1e12, " Tbit/s"], [1e9, " Gbit/s"], [1e6, " Mbit/s"], [1e3, " kbit/s"], [1, " bit/s"]]);

/** @param {number} us */
export const microseconds = (us) => scaled(us, [[1e6, " s"], [1e3, " ms"], [1, " µs"]]);

/** @param {number} ms */
export function lasting(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${seconds % 60} s`;
  return ms > 0 && ms < 1000 ? `${Math.round(ms)} ms` : `${seconds} s`;
}

/** The zone of the times that are shown, such as UTC or GMT+1. */
export const zone = () => new Date().toLocaleTimeString("en", { timeZoneName: "short" }).split(" ").at(-1) ?? "";

/** @param {number} unixMs */
export const clock = (unixMs) => new Date(unixMs).toLocaleTimeString(undefined, { hour12: false });

/**
 * A part of a whole, in percent. A part above nothing never shows as 0%, and a part below the whole never as 100%.
 * @param {bigint} part
 * @param {bigint} whole
 */
export function share(part, whole) {
  if (whole === 0n || part === 0n) return "0%";
  if (part === whole) return "100%";
  const percent = Number((part * 1_000_000n) / whole) / 10_000;
  if (percent < 0.01) return "<0.01%";
  if (percent > 99.9) return ">99.9%";
  return `${threeDigits(percent)}%`;
}

/**
 * @param {bigint | number} count
 * @param {string} one
 * @param {string} many
 */
export const plural = (count, one, many) => `${grouped(count)} ${BigInt(count) === 1n ? one : many}`;

/** @param {string} address @param {number} port */
export const endpoint = (address, port) => (String(address).includes(":") ? `[${address}]:${port ?? "?"}` : `${address ?? "*"}:${port ?? "?"}`);
