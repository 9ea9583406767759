// Returns the window as an SVG that needs nothing else: the elements that are seen, as XHTML, and the styles that
// they use. Scripts, links and what lies below the window are left out.
([title, labels]) => {
  const { innerWidth: width, innerHeight: height } = window;
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

  const isUsed = (selector) => {
    const ofElements = selector.replace(/::[\w-]+(\([^)]*\))?/g, "").replace(/(^|,)\s*(?=,|$)/g, "$1*");
    try {
      return document.querySelector(ofElements) !== null;
    } catch {
      return false; // a selector of another browser
    }
  };
  const used = [];
  const collect = (rules, layers) => {
    for (const rule of rules) {
      if (rule instanceof CSSStyleRule) {
        if (isUsed(rule.selectorText)) used.push([layers, rule.cssText]);
      } else if (rule instanceof CSSLayerStatementRule) used.push([layers, rule.cssText]);
      else if (rule instanceof CSSLayerBlockRule) collect(rule.cssRules, [...layers, rule.name]);
      else if (rule instanceof CSSMediaRule) {
        if (matchMedia(rule.conditionText).matches) collect(rule.cssRules, layers);
      } else if (rule instanceof CSSSupportsRule) {
        if (CSS.supports(rule.conditionText)) collect(rule.cssRules, layers);
      }
    }
  };
  for (const sheet of [...document.styleSheets, ...document.adoptedStyleSheets]) collect(sheet.cssRules, []);
  const wrapped = ([layers, text]) => layers.reduceRight((inner, name) => `@layer ${name}{${inner}}`, text);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(used.map(wrapped).join("\n"));

  // Of thousands of variables of the theme, those stay that something refers to, directly or through others.
  const styles = [];
  const stylesOf = (rules) => {
    for (const rule of rules) {
      if (rule.style) styles.push(rule.style);
      if (rule.cssRules) stylesOf(rule.cssRules);
    }
  };
  stylesOf(sheet.cssRules);
  const references = (text) =>
    [...(text || "").matchAll(/var\((--(?:[\w-]|\\.)+)/g)].map((found) => found[1].replace(/\\/g, "")); // --a\.5
  const through = new Map();
  const wanted = [];
  for (const style of styles) {
    for (const name of style) {
      if (name.startsWith("--")) {
        through.set(name, [...(through.get(name) || []), ...references(style.getPropertyValue(name))]);
      }
    }
    wanted.push(...references(style.cssText.replace(/--(?:[\w-]|\\.)+:[^;]*;/g, "")));
  }
  for (const element of document.querySelectorAll("[style], [fill], [stroke], [color]")) {
    for (const name of ["style", "fill", "stroke", "color"]) wanted.push(...references(element.getAttribute(name)));
  }
  const needed = new Set();
  while (wanted.length > 0) {
    const name = wanted.pop();
    if (needed.has(name)) continue;
    needed.add(name);
    wanted.push(...(through.get(name) || []));
  }
  for (const style of styles) {
    for (const name of [...style]) if (name.startsWith("--") && !needed.has(name)) style.removeProperty(name);
  }
  const rules = [...sheet.cssRules].map((rule) => rule.cssText).filter((text) => !/^[^{]*\{\s*\}$/.test(text));

  const below = [...document.querySelectorAll("body *")].filter((element) => {
    const place = element.getBoundingClientRect();
    return place.height > 0 && place.top > height;
  });
  const copy = document.documentElement.cloneNode(true);
  const elements = [...document.documentElement.querySelectorAll("*")];
  const copies = [...copy.querySelectorAll("*")];
  for (const [at, element] of elements.entries()) {
    if (element instanceof HTMLInputElement) copies[at].setAttribute("value", element.value);
    if (element instanceof HTMLTextAreaElement) copies[at].textContent = element.value;
  }
  const left = new Set(below);
  for (const [at, element] of elements.entries()) if (left.has(element)) copies[at].remove();
  for (const each of copy.querySelectorAll("head, script, style, link, meta, noscript, img")) each.remove();
  for (const each of copy.querySelectorAll("[href]")) each.removeAttribute("href");

  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">
<title>${escaped(title)}</title>
<desc>${escaped(labels)}</desc>
<style>
${escaped(rules.join("\n"))}
* { scrollbar-width: none }
</style>
<foreignObject width="${width}" height="${height}">${new XMLSerializer().serializeToString(copy)}</foreignObject>
</svg>
`;
}
