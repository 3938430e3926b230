// Requests to the server of this page. Nothing is requested elsewhere, and nothing is changed.

/** Whether this page looks at a fleet, through `weir view`, and not at one daemon. */
export const isFleet = document.documentElement.dataset["view"] === "fleet";

/** The server refused the request. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} text
   */
  constructor(status, text) {
    super(text.trim() || `the server answered ${status}`);
    this.status = status;
  }
}

const TIMEOUT_MS = 2_500;
const TOKEN = "weir.token";

/** Takes an access token from the fragment of the address, where a link may carry it, and keeps it for this tab. */
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  keepToken(token);
  history.replaceState(null, "", location.pathname + location.search);
}

/** @param {string} token Sent with every later request of this tab. */
export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

/**
 * Turns whole numbers beyond 2^53 into BigInt, in browsers that give access to their digits, so that no digit is lost.
 * @param {string} _key
 * @param {unknown} value
 * @param {{source?: string}} [context]
 */
function exact(_key, value, context) {
  const isInexact = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isInexact && context?.source && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
}

/**
 * @param {string} path
 * @param {{signal?: AbortSignal, timeoutMs?: number}} [how]
 * @returns {Promise<any>} JSON, in the shape that the caller expects.
 */
export async function ask(path, { signal, timeoutMs = TIMEOUT_MS } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const limit = AbortSignal.timeout(timeoutMs);
  const response = await fetch(path, {
    cache: "no-store",
    credentials: "omit",
    headers: token ? { authorization: `Bearer ${token}` } : {},
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
  const text = await response.text();
  if (!response.ok) throw new Refused(response.status, text);
  return JSON.parse(text, exact);
}

/** Whether the server keeps the answer from clients that it does not know: the page says so once, for all. @param {unknown} error */
export const isHidden = (error) => error instanceof Refused && error.status === 403;

/**
 * Why there is no answer, in words.
 * @param {unknown} error
 */
export function why(error) {
  if (error instanceof Refused) return error.message;
  if (error instanceof DOMException && error.name === "TimeoutError") return `${SERVER} takes long to answer`;
  if (error instanceof TypeError) return `${SERVER} cannot be reached`;
  return String(error);
}

const SERVER = isFleet ? "weir view" : "the daemon";
