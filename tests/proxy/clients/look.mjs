// Opens a page in Chromium, on a narrow and a wide screen, light and dark, and writes what a reader would see of it.
import { createRequire } from "node:module";

const [modules, page_path] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { default: chromium } = await import(require.resolve(`${modules}/@sparticuz/chromium`));
const { default: puppeteer } = await import(require.resolve(`${modules}/puppeteer-core`));

const seen = () => {
  const box = (node) => node.getBoundingClientRect();
  const style = getComputedStyle(document.body);
  const inside = (svg) => [...svg.querySelectorAll("*")].filter((node) => box(node).right > box(svg).right + 1).length;
  return {
    title: document.title,
    text: document.body.innerText,
    pictures: [...document.querySelectorAll("svg")].map((svg) => [box(svg).width, box(svg).height, inside(svg)]),
    overflow: document.documentElement.scrollWidth - innerWidth,
    colours: [style.color, style.backgroundColor],
    dead: [...document.querySelectorAll("a[href^='#']")].filter((a) => !document.querySelector(a.hash)).length,
  };
};

const options = { args: [...chromium.args, "--no-sandbox"], executablePath: await chromium.executablePath() };
const browser = await puppeteer.launch({ ...options, headless: "shell" });
const found = [];
for (const [width, scheme] of [[400, "light"], [1200, "light"], [1200, "dark"]]) {
  const page = await browser.newPage();
  const [fetched, complaints] = [[], []];
  page.on("request", (request) => fetched.push(request.url()));
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.setViewport({ width, height: 800 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(`file://${page_path}`);
  found.push({ ...(await page.evaluate(seen)), fetched, complaints });
}
await browser.close();
console.log(JSON.stringify(found));
