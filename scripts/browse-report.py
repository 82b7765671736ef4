#!/usr/bin/env python3
"""browse-report.py BROWSER DIR PAGE...

Opens pages of 'pgseal lab' in a headless chromium, at 1400 and at 400 pixels, light and dark
(emulated as the system's setting, so that prefers-color-scheme answers), checks them there, and
writes a picture of each to DIR. scripts/test-report.sh runs it.
"""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

SIZES = [(1400, 900), (400, 844)]
SCHEMES = ["light", "dark"]
TALLEST = 9000

# Runs in the page, whose console must stay silent; returns what is wrong with it.
CHECKS = r"""
(want) => {
  const wrong = [];
  const need = (good, text) => { if (!good) wrong.push(text); };
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const box = (element) => element.getBoundingClientRect();
  const seen = (element) => box(element).width > 0 && box(element).height > 0;
  const named = (element) => (element.textContent || "").trim().slice(0, 50);

  need(matchMedia("(prefers-color-scheme: dark)").matches === (want.scheme === "dark"), "the scheme is not emulated");
  need(document.documentElement.dataset.script === "done", "its script did not come to its end");
  need(innerWidth === want.width, "the width is " + innerWidth);
  need(document.documentElement.scrollWidth <= innerWidth, "wider than its screen: " + document.documentElement.scrollWidth);
  for (const card of all(".tile, .card, .banner"))
    need(card.scrollWidth <= card.clientWidth + 1, "text runs out of a card: " + named(card));

  // Charts are drawn once, tables sort, values show where one points.
  const charts = all("figure.chart");
  need(charts.every((chart) => all("svg.plot", chart).filter((s) => box(s).height > 80).length === 1), "a chart is not drawn once");
  const sort = all("table.sortable th button").find(seen);
  if (sort) { sort.click(); need(sort.parentNode.getAttribute("aria-sort") === "ascending", "tables do not sort"); }
  const point = all(".p").find(seen);
  if (point) {
    point.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
    const tip = document.getElementById("tip");
    need(!tip.hidden, "no value where one points");
    tip.hidden = true;
  }

  // Cards of a row are equally high.
  for (const grid of all(".tiles, .charts, .summary")) {
    const rows = {};
    for (const card of grid.children) (rows[Math.round(box(card).top)] ||= []).push(box(card).height);
    for (const heights of Object.values(rows))
      need(Math.max(...heights) - Math.min(...heights) <= 1.5, "cards of a row differ in height: " + heights);
  }

  // The navigation: every link can be seen, touched, and leads somewhere.
  const links = all("nav a");
  need(links.length > 1, "no navigation");
  for (const link of links) {
    const { left, right, height, width } = box(link);
    need(left >= 0 && right <= innerWidth && height >= 28 && width >= 28, "a link cannot be touched: " + named(link));
    need(document.getElementById(link.getAttribute("href").slice(1)), "a link leads nowhere: " + named(link));
    const hit = document.elementFromPoint((left + right) / 2, box(link).top + height / 2);
    need(hit === link, "a link is covered: " + named(link));
  }

  // The first screen: tiles, and whether the machine was too noisy.
  const tiles = all(".tile");
  const banner = document.querySelector(".banner");
  need(tiles.length > 0, "no tile");
  if (banner) need(box(banner).top < want.height * 0.6, "the banner is not on the first screen");
  if (want.width > 1000 && !banner) {
    need(tiles.every((tile) => box(tile).bottom <= want.height), "the tiles are not on the first screen");
    need(box(document.querySelector(".onetable")).top < want.height, "the table is not on the first screen");
  }
  for (const verdict of all(".tile .verdict"))
    need(named(verdict).split(/\s+/).length === 5, "a verdict has not five words: " + named(verdict));

  // Findings: twenty words, one number and perhaps one comparison; none bold where noise rules.
  const number = (word) => /^[0-9][0-9.,]*$/.test(word.replace(/^[(+,-]+|[),.:;]+$/g, "").replace(/\/s$/, ""));
  for (const finding of all(".findings li > p:first-child")) {
    const words = finding.textContent.trim().split(/\s+/);
    const figures = words.filter((word, at) => number(word) && !(at && words[at + 1] === "times" && words[at + 2] === "as"));
    need(words.length <= 20, "a finding has " + words.length + " words: " + named(finding));
    need(figures.length <= 1, "a finding has " + figures.length + " numbers: " + named(finding));
  }
  if (banner && all(".experiment").length === 1) need(all(".findings b").length === 0, "a finding is bold");

  // Colours.
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const solid = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const colors = {};
  for (const chart of charts) {
    const here = {};
    for (const button of all(".legend button", chart)) {
      const color = getComputedStyle(button.querySelector("svg")).getPropertyValue("--c").trim();
      const arm = button.dataset.arm;
      need(color && arm, "a series without a colour");
      need((colors[arm] ??= color) === color, "two colours for one arm: " + arm);
      need((here[color] ??= arm) === arm, "one colour for two arms: " + arm + ", " + here[color]);
      const [r, g, b] = solid(color);
      need(!(r > 150 && g < 0.42 * r && b < 0.5 * r), "an arm is red: " + arm);
    }
  }
  const light = (color) => {
    const of = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * of(color[0]) + 0.7152 * of(color[1]) + 0.0722 * of(color[2]);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.nodeValue.trim() || ["SCRIPT", "STYLE", "TITLE", "title"].includes(element.tagName) || !seen(element)) continue;
    const style = getComputedStyle(element);
    const ink = rgb(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [one, other] = [light(ink), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.add(ratio.toFixed(1) + " " + element.tagName + " " + named(element));
  }
  for (const one of [...poor].slice(0, 5)) wrong.push("too little contrast: " + one);
  scrollTo(0, 0);
  return {
    wrong, charts: charts.length, tables: all("table").length, findings: all(".findings li").length,
    tiles: tiles.length, tall: document.documentElement.scrollHeight,
  };
}
"""


class Browser:
    """A chromium that is driven through a pipe (Chrome DevTools Protocol), without a port."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp()
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def pipes():
            # The browser reads descriptor 3 and writes descriptor 4.
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars",
                "--user-data-dir=" + self.profile, "--remote-debugging-pipe",
            ],
            close_fds=False, preexec_fn=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.ids = itertools.count(1)
        self.buffer = b""
        self.events = []
        self.session = None

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.read_end, 1 << 20)
            if not more:
                sys.exit("browse-report.py: the browser has ended")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        number = next(self.ids)
        request = {"id": number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        while True:
            answer = self.message()
            if answer.get("id") == number:
                if "error" in answer:
                    sys.exit("browse-report.py: %s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        while True:
            for event in self.events:
                if event.get("method") == method:
                    self.events.remove(event)
                    return event
            self.events.append(self.message())

    def open_tab(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def screen(browser, size, scheme):
    width, height = size
    phone = width < 600
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone,
    )
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def said(events):
    """What the console was told, and exceptions."""
    lines = []
    for event in events:
        params = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            lines.append(params["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            lines.append(str(params["args"]))
        elif event.get("method") == "Runtime.exceptionThrown":
            lines.append(params["exceptionDetails"]["text"])
    return lines


def look(browser, page, size, scheme, picture):
    """Checks a page and takes its picture; returns the figures of the check."""
    screen(browser, size, scheme)
    browser.events.clear()
    browser.call("Page.navigate", url="file://" + page)
    browser.wait_for("Page.loadEventFired")
    want = json.dumps({"width": size[0], "height": size[1], "scheme": scheme})
    done = browser.call(
        "Runtime.evaluate", expression="(%s)(%s)" % (CHECKS, want), returnByValue=True, awaitPromise=True,
    )
    if "exceptionDetails" in done:
        sys.exit("browse-report.py: %s: %s" % (page, done["exceptionDetails"]["exception"]["description"]))
    found = done["result"]["value"]
    found["wrong"] += ["the console says: " + line for line in said(browser.events)]
    take(browser, picture, size[0], min(found["tall"], TALLEST), 1)
    # What is seen without scrolling, smaller: for a page of the documentation.
    take(browser, picture.replace(".png", "-first.png"), size[0], size[1], 0.6)
    return found


def take(browser, picture, width, height, scale):
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
    shot = browser.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
    with open(picture, "wb") as file:
        file.write(base64.b64decode(shot["data"]))


def main():
    program, directory, pages = sys.argv[1], sys.argv[2], sys.argv[3:]
    browser = Browser(program)
    failed = False
    try:
        browser.open_tab()
        for page, size, scheme in itertools.product(pages, SIZES, SCHEMES):
            stem = os.path.splitext("-".join(page.strip("/").split("/")[-3:]))[0]
            picture = os.path.join(directory, "%s-%d-%s.png" % (stem, size[0], scheme))
            found = look(browser, os.path.realpath(page), size, scheme, picture)
            place = "%s, %d pixels, %s" % ("/".join(page.split("/")[-3:]), size[0], scheme)
            for line in found["wrong"]:
                print("%s: %s" % (place, line), file=sys.stderr)
            failed = failed or bool(found["wrong"])
            print(
                "%s: %d tiles, %d findings, %d charts, %d tables%s"
                % (place, found["tiles"], found["findings"], found["charts"], found["tables"],
                   ": NOT as it should be" if found["wrong"] else "")
            )
    finally:
        browser.end()
    sys.exit(1 if failed else 0)


main()
