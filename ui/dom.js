// Elements are created by function calls and filled with text, so that names chosen by strangers never become markup.

/** @typedef {string | number | bigint | Node | null | undefined | false} Part */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number | boolean | undefined | ((event: any) => void)> | null} [attributes] Functions become event listeners.
 * @param {...(Part | Part[])} parts
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes, ...parts) {
  const element = document.createElement(tag);
  set(element, attributes ?? {});
  fill(element, ...parts);
  return element;
}

/**
 * The same for SVG elements.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | undefined>} [attributes]
 * @param {...(Part | Part[])} parts
 * @returns {SVGElement}
 */
export function s(tag, attributes, ...parts) {
  const element = /** @type {SVGElement} */ (document.createElementNS("http://www.w3.org/2000/svg", tag));
  set(element, attributes ?? {});
  fill(element, ...parts);
  return element;
}

/**
 * @param {Element} element
 * @param {Record<string, string | number | boolean | undefined | ((event: any) => void)>} attributes
 */
function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
}

/**
 * @param {Node} element
 * @param {...(Part | Part[])} parts
 */
export function fill(element, ...parts) {
  for (const part of parts.flat()) {
    if (part === null || part === undefined || part === false || part === "") continue;
    element.appendChild(part instanceof Node ? part : document.createTextNode(plain(String(part))));
  }
}

/**
 * @param {Element} element
 * @param {...(Part | Part[])} parts
 */
export function replace(element, ...parts) {
  const held = document.createDocumentFragment();
  fill(held, ...parts);
  element.replaceChildren(held);
}

// Control characters, and marks that change the direction of the text after them, are shown as escapes.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const LONGEST = 300;

/**
 * Escapes text from strangers so that it cannot disturb the text next to it.
 * @param {string} text
 */
export function plain(text) {
  const seen = text.replace(UNSEEN, (mark) => `\\u{${(mark.codePointAt(0) ?? 0).toString(16)}}`);
  return seen.length > LONGEST ? `${seen.slice(0, LONGEST)}…` : seen;
}

/** A text of several lines from this program or its server. @param {string} text */
export const lines = (text) => text.split("\n").flatMap((line, at) => (at > 0 ? [h("br"), line] : [line]));

/**
 * A section of a page with a question as its title.
 * @param {object} about
 * @param {string} about.id
 * @param {string} about.title
 * @param {[string, string][]} [about.links] The sources of its figures: text and address.
 * @param {string} [about.className]
 */
export function panel({ id, title, links = [], className = "" }) {
  const body = h("div", { class: "body" });
  const sources = links.map(([text, to]) => h("a", { href: to, target: "_blank", rel: "noopener" }, text));
  const missing = h("span", { class: "missing", role: "status" });
  const head = h("div", { class: "head" }, h("h2", { id: `${id}-title` }, title), missing, h("span", { class: "sources" }, ...sources));
  const root = h("section", { id, class: `panel ${className}`, "aria-labelledby": `${id}-title` }, head, body);

  /** @type {(() => void) | null} */
  let latest = null;
  let isSeen = false;
  const seen = new IntersectionObserver((entries) => {
    isSeen = entries.some((entry) => entry.isIntersecting);
    if (isSeen) latest?.();
  }, { rootMargin: "100px" });
  seen.observe(root);
  const draw = () => latest?.();
  const resized = new ResizeObserver(() => isSeen && latest?.());
  resized.observe(body);
  // Print shows every panel, visible or not.
  addEventListener("beforeprint", draw);

  return {
    root,
    body,
    head,
    /** @param {() => void} paint Called now if the panel is visible, and whenever it becomes visible. */
    show(paint) {
      latest = paint;
      if (isSeen) paint();
    },
    /** @param {string} text Says next to the title what the figures lack. */
    lacks(text) {
      if (missing.textContent !== text) missing.textContent = text;
    },
    stop() {
      seen.disconnect();
      resized.disconnect();
      removeEventListener("beforeprint", draw);
    },
  };
}
