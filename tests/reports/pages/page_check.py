#!/usr/bin/env python3
"""page_check.py [--axe FILE] PAGE...: opens each report page in Chromium, wide and narrow, light and dark, and prints what
cannot be read there: cells narrower than four letters, text beyond its box, what scrolls without a sign, and what axe-core
calls serious or critical. Exit status 1 if there is anything, 77 without Chromium. Needs nothing but Python's own library:
it talks to the browser's DevTools over two pipes, which the page's Content-Security-Policy does not concern."""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Each width and each scheme once; LOCKSTEP_WHOLE=1 asks all four.
VIEWS = [(1300, "light"), (390, "dark")]
if os.environ.get("LOCKSTEP_WHOLE") == "1":
    VIEWS += [(1300, "dark"), (390, "light")]
HEIGHT_PX = 900
# A gradient behind a text, as .scroll has it at its edges, makes axe-core leave out the text's contrast.
AXE_RUN = """(async () => {
  const shaded = [...document.querySelectorAll('.scroll')];
  shaded.forEach(each => each.style.background = 'none');
  const found = await axe.run(document, {resultTypes: ['violations']});
  shaded.forEach(each => each.style.background = '');
  return found.violations.filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => `axe: ${each.id}, ${each.nodes.length} places: ${each.nodes[0].html.slice(0, 120)}`);
})()"""


class Browser:
    """One Chromium with one page, spoken to in DevTools messages that end in NUL."""

    def __init__(self, program, folder):
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()

        def place_pipes():  # DevTools reads descriptor 3 and writes 4
            for descriptor in (os.dup2(os.dup(to_read), 3), os.dup2(os.dup(to_write), 4)):
                os.set_inheritable(descriptor, True)

        # The copies keep clear of 3 and 4 while they are placed.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen([program, *options], preexec_fn=place_pipes, close_fds=False,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def _receive(self):
        while b"\0" not in self._buffer:
            more = os.read(self._from, 1 << 16)
            if not more:
                sys.exit("page_check: Chromium ended")
            self._buffer += more
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data):]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    sys.exit(f"page_check: {method}: {answer['error']}")
                return answer["result"]

    def value_of(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"page_check: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def end(self):
        self._session = None
        self.call("Browser.close")
        self._process.wait()


def script_faults(page):
    """Scripts whose SHA-256 the page's policy does not have, or more than one: then none, or another, would run."""
    text = page.read_text(encoding="utf-8")
    named = [f"sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}"
             for each in re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)]
    allowed = re.findall(r"sha256-[\w+/=]+", text)
    return [] if named == allowed and len(named) <= 1 else [f"scripts {named}, and its policy lets {allowed} run"]


def faults_of(browser, page, measure, axe):
    """What cannot be read, each with the views that have it; folded parts are opened too."""
    browser.call("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": "light"}])
    browser.open(page.resolve().as_uri())
    browser.value_of("document.querySelectorAll('details').forEach(each => each.open = true)")
    if axe:
        browser.value_of(axe + ";0")
    found = {}
    for width, scheme in VIEWS:
        browser.call("Emulation.setEmulatedMedia", media="screen", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT_PX, deviceScaleFactor=1, mobile=width < 500)
        for fault in browser.value_of(measure) + (browser.value_of(AXE_RUN) if axe else []):
            found.setdefault(fault, []).append(f"{width} px {scheme}")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--axe", type=pathlib.Path, help="axe.min.js; without it its rules are not asked")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("page_check: skipped: no Chromium here (Debian: apt-get install chromium)", file=sys.stderr)
        return 77
    axe = arguments.axe.read_text(encoding="utf-8") if arguments.axe and arguments.axe.exists() else None
    if axe is None:
        print("page_check: axe-core is not asked: ci/bootstrap could not fetch it", file=sys.stderr)
    measure = pathlib.Path(__file__).with_name("page_faults.js").read_text(encoding="utf-8")
    bad = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        for page in arguments.pages:
            found = faults_of(browser, page, measure, axe) | {fault: ["its text"] for fault in script_faults(page)}
            bad += bool(found)
            for fault, views in found.items():
                print(f"{page}: {fault} ({', '.join(views)})", flush=True)
        browser.end()
    print(f"page_check: {len(arguments.pages)} pages, {len(VIEWS)} views each: {bad} cannot be read")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
