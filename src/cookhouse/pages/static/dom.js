// Nodes made of text, never of markup. Control characters are spelled out, as on every page.

const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}]/gu;

export function printable(text, keep = "\n\t") {
  return String(text).replace(CONTROL, (c) => {
    if (keep.includes(c)) return c;
    const code = c.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
  });
}

// make("a", { href: "/", class: "dim" }, "text", node): a child that is no node becomes text; null and false are left out.
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  fill(node, ...children);
  return node;
}

export function fill(node, ...children) {
  const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  node.replaceChildren(...shown.map((child) => (child instanceof Node ? child : printable(child))));
  return node;
}

export function runAddress(name, rest = "") {
  return `/runs/${name.split("/").map(encodeURIComponent).join("/")}/-/${rest}`;
}
