#!/usr/bin/env python3
"""Takes the pictures of docs/img of a page that lmc analyze wrote.

    pictures.py PAGE FOLDER [analyze | study]

As wide as a laptop and as a phone, light and dark: the beginning of the page and the map of bits, or of the study
the map of bits and the curves of its run. CHROMIUM may name the browser.
"""

import base64
import sys
from pathlib import Path

from devtools import INSTALL, Browser, chromium

# Name, width and height in CSS pixels, scheme, and the heading at the top of the picture: none is that of the page.
PICTURES = {
    "analyze": (
        ("analyze-light", (1200, 812), "light", None),
        ("analyze-dark", (1200, 720), "dark", "Which bits change"),
        ("analyze-phone-light", (400, 800), "light", None),
        ("analyze-phone-dark", (400, 800), "dark", "Which bits change"),
    ),
    "study": (
        ("study-light", (1200, 980), "light", "How training went"),
        ("study-dark", (1200, 980), "dark", "From step to step"),
        ("study-phone-light", (400, 800), "light", "How training went"),
        ("study-phone-dark", (400, 800), "dark", "Which bits change"),
    ),
}


def main():
    page, folder = map(Path, sys.argv[1:3])
    pictures = PICTURES[sys.argv[3] if len(sys.argv) > 3 else "analyze"]
    path = chromium() or sys.exit(f"pictures: {INSTALL}")
    with Browser(path) as browser:
        for name, (width, height), scheme, heading in pictures:
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=width < 600,
            )
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.call("Emulation.setEmulatedMedia", features=features)
            browser.open(page.resolve().as_uri())
            top = 0
            if heading:
                all_headings = "[...document.querySelectorAll('h2')]"
                found = f"{all_headings}.find(h => h.textContent == {heading!r})"
                top = browser.run(f"Math.round({found}.getBoundingClientRect().top + window.scrollY - 16)")
            clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
            taken = browser.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
            (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
