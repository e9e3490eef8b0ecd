#!/usr/bin/env python3
"""Checks in a browser the pages that lmc writes.

    check_browser.py CHECK LMC

CHECK is one of those below. LMC is the program. CHROMIUM may name the browser; without, it is looked for under its
usual names.
"""

import base64
import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from devtools import INSTALL, Browser, chromium

TENSORS = 2000
# Narrower than most phones, and as wide as a laptop.
WIDTHS = (360, 1280)

# A page that breaks the rules for lmc's pages: the checks below must notice it.
GUILTY = """<!DOCTYPE html><meta charset=utf-8><meta http-equiv=Content-Security-Policy content="default-src 'none'">
<title>x</title><img src="http://127.0.0.1:9/x.png"><script>document.title = "y"</script>"""


def values(number, step):
    """Bytes of a tensor of F32 that differ from tensor to tensor, in a few elements from step to step."""
    elements = [((number * 7919 + i * 104729) % 4096 - 2048) / 65536 for i in range(8 + number * 37 % 57)]
    if number % 3:
        elements[0] += step / 1024
    return struct.pack(f"<{len(elements)}f", *elements)


def checkpoint(path, step, tensors=TENSORS):
    """A safetensors file of many tensors, one of them with a name that means something in HTML."""
    header, data = {}, bytearray()
    for i in range(tensors):
        raw = values(i, step)
        name = f"layers.{i // 10}.{('mlp', 'attn')[i % 2]}.{i % 10}.weight" if i else "<img src=x onerror=alert(1)>"
        header[name] = {"dtype": "F32", "shape": [len(raw) // 4], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


class Page:
    """The page of a study of two checkpoints with many tensors, and the study."""

    def __init__(self, lmc, folder):
        self.lmc = lmc
        self.path = folder / "page.html"
        files = [checkpoint(folder / f"step{step}.safetensors", step) for step in (1, 2)]
        made = [lmc, "analyze", "--json", "--html", self.path, *files]
        self.study = json.loads(subprocess.run(made, check=True, capture_output=True).stdout)
        self.tensors = self.study["tensors"]
        assert len(self.tensors) == TENSORS


# The table of tensors is the last one that can be sorted.
TABLE = "[...document.querySelectorAll('table.s')].at(-1)"
FIELD = f"{TABLE}.parentElement.previousElementSibling"
SHOWN = f"[...{TABLE}.tBodies[0].rows].filter((r) => r.getClientRects().length > 0)"


def head(title):
    """The head of a column."""
    return f"[...{TABLE}.tHead.rows[0].cells].find((c) => c.textContent === {json.dumps(title)})"


def names(browser):
    """The names of the tensors that are shown, in order."""
    return browser.run(f"{SHOWN}.map((r) => r.cells[0].textContent)")


def expect(what, found, expected):
    """Fails unless both are the same."""
    if found != expected:
        sys.exit(f"{what}: expected {str(expected)[:500]}, found {str(found)[:500]}")


def sorts(browser, page):
    """A click or a key on the head of a column sorts by it, the largest first, and again the other way."""
    order = [t["name"] for t in page.tensors]
    expect("the order at first", names(browser), order)
    sizes = {t["name"]: t["raw_size"] for t in page.tensors}
    browser.click(head("size"))
    found = names(browser)
    expect("rows after a click", sorted(found), sorted(order))
    expect("sizes after a click", [sizes[n] for n in found], sorted(sizes.values(), reverse=True))
    expect("the mark", browser.run(f"{head('size')}.getAttribute('aria-sort')"), "descending")
    browser.click(head("size"))
    expect("sizes after two", [sizes[n] for n in names(browser)], sorted(sizes.values()))
    changed = {t["name"]: t["change"]["changed"] / t["change"]["compared"] for t in page.tensors}
    browser.run(f"{head('changed')}.querySelector('button').focus()")
    browser.press("Enter", 13)
    rounded = [round(changed[n], 6) for n in names(browser)]
    expect("changes after a key", rounded, sorted((round(c, 6) for c in changed.values()), reverse=True))
    expect("marks", browser.run(f"{TABLE}.querySelectorAll('[aria-sort]').length"), 1)
    browser.click(head("tensor"))
    browser.click(head("tensor"))
    by_name = browser.run(f"{json.dumps(order)}.sort((a, b) => a.localeCompare(b, undefined, {{numeric: true}}))")
    expect("names", names(browser), by_name)


def filters(browser, page):
    """Text typed above the table hides the rows that lack one of its words."""
    expect("rows at first", len(names(browser)), TENSORS)
    for text, wanted in [
        ("layers.7.", lambda name: "layers.7." in name),
        ("MLP weight .12", lambda name: all(w in name for w in ("mlp", "weight", ".12"))),
        ("<img", lambda name: "<img" in name),
        ("no such tensor", lambda name: False),
    ]:
        browser.click(FIELD)
        browser.run(f"{FIELD}.select()")
        browser.type(text)
        expect(f"rows with {text!r}", names(browser), [t["name"] for t in page.tensors if wanted(t["name"])])
    # Sorted while some are hidden, and shown again.
    browser.click(head("size"))
    browser.run(f"{FIELD}.select()")
    browser.press("Backspace", 8)
    expect("rows at last", len(names(browser)), TENSORS)


def quiet(browser, page):
    """The page requests nothing, and the browser has no complaints."""
    del page
    browser.click(head("size"))
    expect("requests", [url for url in browser.requests() if not url.startswith("file:")], [])
    expect("files", len(browser.requests()), 1)
    expect("complaints", browser.complaints(), [])


def plain(browser, page):
    """Without JavaScript everything can be read, and controls that would not work are hidden."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page.path.as_uri())
    expect("names", names(browser), [t["name"] for t in page.tensors])
    expect("fields", browser.run("document.querySelectorAll('input,button,select').length"), 0)
    expect("heads that look active", browser.run("document.querySelectorAll('th[tabindex],th button').length"), 0)
    headings = browser.run("[...document.querySelectorAll('h1,h2')].filter((h) => h.offsetHeight > 10).length")
    if headings < 5:
        sys.exit(f"only {headings} headings are seen")
    heights = browser.run("[...document.querySelectorAll('svg')].map((s) => s.getBoundingClientRect().height)")
    expect("charts that are not seen", [h for h in heights if h < 5], [])
    last = page.study["checkpoints"][-1]["all"]
    card = browser.run("[...document.querySelectorAll('.cards div')].map((d) => d.innerText).join(' ')")
    expect("the number of tensors", f"{last['tensors']} tensors" in card, True)


def training(browser, page):
    """A click on a tensor shows its curves, one on the name of a line hides that, and both go again."""
    path = page.path.with_name("run.html")
    files = [checkpoint(path.with_name(f"run{step}.safetensors"), step, 30) for step in (1, 2, 3, 4)]
    made = [page.lmc, "analyze", "--json", "--html", path, *files]
    study = json.loads(subprocess.run(made, check=True, capture_output=True).stdout)
    browser.open(path.as_uri())
    named = json.dumps(study["tensors"][1]["name"])
    name = f"{SHOWN}.find((r) => r.cells[0].textContent === {named}).cells[0].firstChild"
    curves = f"{TABLE}.querySelectorAll('tr.p figure').length"
    browser.click(name)
    expect("charts of a tensor", browser.run(curves), 6)
    shown = browser.run(f"[...{TABLE}.querySelectorAll('tr.p circle title')].map((t) => t.textContent)")
    norms = study["tensors"][1]["course"]["norm"]
    expect("norms", shown[:4], [f"{i + 1}: {float(f'{norm:.4g}'):g}" for i, norm in enumerate(norms)])
    browser.run(f"{name}.focus()")
    browser.press("Enter", 13)
    expect("charts after a key", browser.run(curves), 0)
    # Sorted while they are shown, they go.
    browser.click(name)
    browser.click(head("size"))
    expect("charts after sorting", browser.run(curves), 0)
    lines = "[...document.querySelectorAll('figure > svg > g')].filter((g) => g.getClientRects().length).length"
    entry = "document.querySelector('figure > .k > span[role]')"
    # A chart of several lines: of by kind, there is one kind.
    if browser.run(f"{entry} !== null"):
        before = browser.run(lines)
        browser.click(entry)
        expect("lines after a click", browser.run(lines), before - 1)
        expect("the entry", browser.run(f"{entry}.getAttribute('aria-pressed')"), "false")
        browser.click(entry)
        expect("lines after two", browser.run(lines), before)
    else:
        sys.exit("no chart has several lines")
    expect("complaints", browser.complaints(), [])


def inside(browser, page):
    """Charts lie within their cards on a phone, and the table of tensors is whole on a laptop."""
    for width in (390, *WIDTHS):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        browser.open(page.path.as_uri())
        wider = "[...document.querySelectorAll('figure')].filter((f) => f.scrollWidth > f.clientWidth + 1).length"
        expect(f"charts wider than their cards at {width}", browser.run(wider), 0)
        small = (
            "[...document.querySelectorAll('figure svg text')].filter((t) => t.getBoundingClientRect().height)"
            ".map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().d)"
            ".filter((h) => h > 0 && h < 8).length"
        )
        expect(f"texts that are too small at {width}", browser.run(small), 0)
        hint = browser.run("document.querySelector('.hint').getClientRects().length > 0")
        cut = browser.run(f"{TABLE}.parentElement.scrollWidth > {TABLE}.parentElement.clientWidth")
        expect(f"the hint at {width}", hint, width < 600)
        expect(f"the table is cut at {width}", cut, width < 600)


def fits(browser, page):
    """The page is as wide as the window: wider contents have their own scroll bar."""
    for width in WIDTHS:
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        browser.open(page.path.as_uri())
        expect(f"width at {width}", browser.run("document.documentElement.scrollWidth"), width)


def prints(browser, page):
    """Printed, the page has all its headings, charts, and rows of tables, on several sheets of paper."""
    del page
    headings = browser.run("[...document.querySelectorAll('h2')].map((h) => h.textContent)")
    printed = browser.call("Page.printToPDF", generateTaggedPDF=True, generateDocumentOutline=True)
    pdf = base64.b64decode(printed["data"])
    expect("the beginning of the file", pdf[:5], b"%PDF-")
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf))
    # At 8 rows an inch or more of 11, and fewer than 100 on a sheet.
    if not TENSORS / 100 < sheets < TENSORS / 10:
        sys.exit(f"{sheets} sheets for {TENSORS} tensors")
    outline = [title.decode() for title in re.findall(rb"/Title \(([^)]*)\)", pdf)]
    expect("headings", [title for title in outline if title in headings], headings)
    # What is folded away, as numbers of charts are, is not printed.
    rows = browser.run("[...document.querySelectorAll('tr')].filter((e) => e.checkVisibility()).length")
    expect("rows", len(re.findall(rb"/S\s*/TR\b", pdf)), rows)
    charts = browser.run("document.querySelectorAll('svg[aria-label]').length")
    figures = len(re.findall(rb"/S\s*/Figure\b", pdf))
    if not 0 < charts <= figures:
        sys.exit(f"{figures} figures for {charts} charts")


def guilty(browser, page):
    """Requests and violations of a page are noticed: otherwise the other checks would prove nothing."""
    path = page.path.with_name("guilty.html")
    path.write_text(GUILTY)
    browser.open(path.as_uri())
    complaints = browser.complaints()
    if not any("ContentSecurityPolicy" in c for c in complaints):
        sys.exit(f"a violation was not noticed: {complaints}")
    path.write_text(GUILTY.replace("default-src 'none'", "default-src * 'unsafe-inline'"))
    browser.open(path.as_uri())
    if not any(url.startswith("http:") for url in browser.requests()):
        sys.exit(f"a request was not noticed: {browser.requests()}")


CHECKS = {f.__name__: f for f in (sorts, filters, quiet, plain, fits, inside, prints, training, guilty)}


def main():
    """Runs one check."""
    if len(sys.argv) != 3 or sys.argv[1] not in CHECKS:
        sys.exit(f"{__doc__}\nchecks: {', '.join(CHECKS)}")
    path = chromium()
    if path is None:
        sys.exit(INSTALL)
    with tempfile.TemporaryDirectory() as folder, Browser(path) as browser:
        page = Page(sys.argv[2], Path(folder))
        browser.open(page.path.as_uri())
        CHECKS[sys.argv[1]](browser, page)


if __name__ == "__main__":
    main()
