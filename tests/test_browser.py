"""The explorer in a real browser: JupyterLab and Voila, by mouse and keyboard, at two widths."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace

import pytest
from browser import FOREIGN, ROOT, browser, missing, serving

from verifylab.cache_player import play
from verifylab.explain import explain
from verifylab.exploration import Exploration
from verifylab.gate import Gate
from verifylab.keyspace import key_space
from verifylab.live_throughput import curves, simulate
from verifylab.sharing import sharing

LACKING = missing()
pytestmark = [
    pytest.mark.skipif(bool(LACKING), reason=LACKING or "all there"),
    # Sockets of the browser's driver are closed by its own process.
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]
PATIENCE_MS = 20_000
STORED = "width_gate/fixed-7a04fb32"


class Page:
    """The explorer as somebody sees it."""

    def __init__(self, page):
        self.page = page

    def tab(self, name):
        self.page.locator(".lm-TabBar-tab").filter(has_text=name).first.click()

    def text(self, label):
        return self.page.locator(".widget-text:visible", has_text=label).locator("input")

    def press(self, label, key, times=1):
        """Move a slider by keyboard alone."""
        line = self.page.locator(".vl-number:visible, .widget-hslider:visible", has_text=label)
        handle = line.locator(".noUi-handle").first
        handle.focus()
        for _ in range(times):
            handle.press(key)

    def types(self, label, text):
        """Type a number and leave its field."""
        field = self.page.locator(".vl-number:visible", has_text=label).locator("input")
        field.select_text()
        field.press_sequentially(text)
        field.press("Enter")
        assert field.input_value() == text

    def shows(self, selector, text):
        from playwright.sync_api import expect

        expect(self.page.locator(f"{selector}:visible").first).to_contain_text(
            text, timeout=PATIENCE_MS, ignore_case=True
        )

    def has_no_mistake(self):
        from playwright.sync_api import expect

        expect(self.page.locator("[role=alert]:visible")).to_have_count(0, timeout=PATIENCE_MS)

    def picture(self):
        return self.page.locator("svg[role=img]:visible").first.inner_html()

    def nothing_sticks_out(self):
        """No picture is wider than the pane it stands in."""
        self.page.wait_for_function(
            """() => [...document.querySelectorAll('svg[role=img]')]
            .map(e => [e, e.closest('.widget-tab, .jupyter-widget-tab')])
            .filter(([e, tab]) => tab && e.getBoundingClientRect().width > 0)
            .every(([e, tab]) =>
              e.getBoundingClientRect().right < tab.getBoundingClientRect().right)""",
            timeout=5000,
        )


def one_batch(page):
    page.tab("One batch")
    before = page.picture()
    page.text("depths").fill("4, 4, 3, 3, 4, 3, 4, 3")
    slots, depths = list(range(8)), [4, 4, 3, 3, 4, 3, 4, 3]
    page.shows(".vl-shared", f"{sharing(slots, depths).count}")
    page.page.get_by_role("button", name="arrangement", exact=True).click()
    arrangement, canonical = explain(slots, depths, Gate())
    page.shows(".vl-launches", str(arrangement.launches_per_layer))
    assert page.picture() != before
    page.page.get_by_role("button", name="canonical", exact=True).click()
    page.shows(".vl-launches", str(canonical.launches_per_layer))
    page.text("depths").fill("4, x")
    page.shows("[role=alert]", "depths must be whole numbers")
    page.text("depths").fill("4, 2, 4, 3, 4, 3, 4, 4")
    page.shows(".vl-shared", "168")
    page.has_no_mistake()


def key_space_tab(page, width):
    page.tab("Key space")
    page.shows(".vl-arrangement", f"{key_space(width, 3).arrangement_keys:,}")
    before = page.picture()
    page.press("width n", "ArrowLeft")
    page.shows(".vl-arrangement", f"{key_space(width - 1, 3).arrangement_keys:,}")
    page.shows(".vl-canonical", f"{key_space(width - 1, 3).canonical_keys:,}")
    assert page.picture() != before


def throughput(page, settings):
    page.tab("Throughput")
    runs = simulate(settings)
    page.shows(".vl-gate", curves(runs, settings.profile(), 8).recommendation.sentence())
    before = page.picture()
    page.press("gate opens at", "ArrowLeft")
    shown = curves(runs, settings.profile(), 7)
    rate = shown.rates.set_index(["policy", "width"]).tok_s["canonical", 7]
    page.shows(".vl-rates", f"{rate:.1f}{rate:.1f}")  # canonical, and with the gate
    page.press("graph cost", "Home")
    free = curves(runs, replace(settings, graph_ms=0.0).profile(), 7)
    page.shows(".vl-gate", free.recommendation.sentence())
    assert page.picture() != before
    page.press("gate opens at", "ArrowRight")
    page.page.get_by_role("button", name="As calibrated").click()
    page.shows(".vl-gate", curves(runs, settings.profile(), 8).recommendation.sentence())


def typed(page, settings):
    """Numbers beside the sliders count when typed; wrong ones are marked and stay as typed."""
    page.types("confidence spread", "0.37")
    page.types("graph cost", "500")
    dear = replace(settings, confidence_spread=0.37, graph_ms=500.0)
    shown = curves(simulate(dear), dear.profile(), 8)
    page.shows(".vl-gate", shown.recommendation.sentence())
    page.shows(".vl-stamp", "500.0 ms a graph")
    page.types("confidence spread", "7")
    page.shows("[role=alert]", "confidence_spread must be from 0 to 1, got 7")
    page.shows(".vl-stamp", "500.0 ms a graph")
    page.page.get_by_role("button", name="As calibrated").click()
    page.shows(".vl-stamp", "31.3 ms a graph")
    page.has_no_mistake()


def full_run(page, settings):
    status = page.page.locator(".widget-label:visible")
    page.page.get_by_role("button", name="Run in full").click()
    runs = simulate(settings, full=True)
    page.shows(".vl-gate", curves(runs, settings.profile(), 8).recommendation.sentence())
    status.filter(has_text="done").wait_for(timeout=PATIENCE_MS)
    page.press("drafts a sequence", "ArrowLeft")
    page.shows(".vl-stamp", "quick look")
    status.filter(has_text="done").wait_for(state="hidden", timeout=PATIENCE_MS)
    page.press("drafts a sequence", "ArrowRight")


def copied(page):
    """Both texts are put on the clipboard and can be read, whole, in boxes that follow."""
    seen = page.page
    seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for name, word in (("Copy as parameters", "threshold = 8"), ("Copy as grid file", "[[rows]]")):
        seen.get_by_role("button", name=name).click()
        seen.get_by_text("Copied.").wait_for(timeout=PATIENCE_MS)
        assert word in seen.evaluate("() => navigator.clipboard.readText()")
    seen.get_by_role("button", name="Show as text").click()
    cell = seen.locator("textarea:visible").first
    cell.wait_for()
    assert "threshold = 8" in cell.input_value()
    page.types("your gate opens at", "6")
    seen.wait_for_function(
        """() => [...document.querySelectorAll('textarea')]
        .some(e => e.value.includes('threshold = 6'))""",
        timeout=PATIENCE_MS,
    )
    assert cell.evaluate(
        """e => e.getBoundingClientRect().right <=
        e.closest('.widget-vbox').getBoundingClientRect().right"""
    )
    page.types("your gate opens at", "8")


def stopped(page):
    """A full run that would take long ends where it is told to, and leaves the quick look."""
    status = page.page.locator(".widget-label:visible")
    page.page.get_by_role("button", name="Run in full").click()
    status.filter(has_text="running").wait_for()
    page.page.get_by_role("button", name="Stop").click()
    status.filter(has_text="stopped").wait_for(timeout=PATIENCE_MS)
    page.page.get_by_text("quick look: ").first.wait_for(timeout=PATIENCE_MS)
    assert page.page.get_by_role("button", name="Run in full").is_enabled()


def stored_overlay(page):
    """A stored run is laid over the curves, by name."""
    before = page.picture()
    chosen = page.page.locator(".widget-dropdown:visible", has_text="stored run").locator("select")
    chosen.select_option(STORED)
    legend = page.page.get_by_text(f"stored {STORED}", exact=False).first
    legend.wait_for(timeout=PATIENCE_MS)
    assert page.picture() != before
    chosen.select_option("none")
    legend.wait_for(state="hidden", timeout=PATIENCE_MS)
    assert page.picture() == before


def cache_live(page, settings):
    page.tab("Cache live")
    played = play(settings)
    page.shows(".vl-frame", "Step 1 of")
    before = page.picture()
    page.press("step", "ArrowRight", 5)
    page.shows(".vl-frame", f"Step 6 of {settings.play_steps}")
    page.press("step", "End")
    last = played.frames[-1]
    page.shows(
        ".vl-frame",
        f"{last.hits} hits, {last.captures} captures, {last.evictions} evictions",
    )
    assert page.picture() != before
    page.press("step", "Home")
    page.shows(".vl-frame", "Step 1 of")
    more = page.text("steps")
    more.select_text()
    more.press_sequentially("200")
    more.press("Enter")
    page.shows(".vl-frame", "Step 1 of 200")
    page.press("step", "End")
    page.shows(".vl-frame", "Step 200 of 200")


def run_all(seen):
    """Run all cells by JupyterLab's own command, once the notebook has its kernel.

    Before that JupyterLab would ask for one.
    """
    seen.wait_for_function(
        """() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel
        ?.connectionStatus === 'connected'""",
        timeout=60_000,
    )
    seen.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")


@pytest.mark.parametrize("kind", ["lab", "voila"])
def test_the_explorer_answers(kind, tmp_path):
    if kind == "voila" and importlib.util.find_spec("voila") is None:
        pytest.skip("no voila (pip install voila)")
    from playwright.sync_api import TimeoutError as TimedOut

    source = (ROOT / "notebooks" / "explorer.ipynb").read_text()
    if kind == "voila":  # its full run is there to be stopped
        assert source.count("steps = 2000 ") == 1
        source = source.replace("steps = 2000 ", "steps = 100000 ")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "explorer.ipynb").write_text(source)
    shutil.copytree(ROOT / "tests" / "fixtures" / "stored", tmp_path / "runs")
    settings = Exploration()
    said, broken = [], []
    with serving(kind, tmp_path / "notebooks") as address, browser() as chrome:
        seen = chrome.new_page(viewport={"width": 1400, "height": 1200})
        seen.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        seen.on("pageerror", lambda error: broken.append(str(error)))
        seen.goto(address)
        if kind == "lab":
            seen.wait_for_selector(".jp-NotebookPanel-toolbar", timeout=60_000)
            seen.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
            seen.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(
                timeout=60_000
            )
            run_all(seen)
            # A loaded machine may still be settling the kernel: the command is then asked again.
            for _ in range(2):
                try:
                    seen.wait_for_selector(".vl-launches", timeout=45_000)
                    break
                except TimedOut:
                    run_all(seen)
        seen.wait_for_selector(".vl-launches", timeout=60_000)
        seen.locator("img[src^='data:image/png']").nth(3).wait_for(timeout=60_000)
        page = Page(seen)
        one_batch(page)
        key_space_tab(page, 8)
        throughput(page, settings)
        typed(page, settings)
        stored_overlay(page)
        if kind == "lab":
            full_run(page, settings)
        else:
            stopped(page)
        seen.set_viewport_size({"width": 1000, "height": 1200})
        for name in ("One batch", "Key space", "Throughput"):
            page.tab(name)
            page.nothing_sticks_out()
        key_space_tab(page, 7)
        page.press("width n", "ArrowRight", 2)
        cache_live(page, settings)
        page.nothing_sticks_out()
        copied(page)
        assert seen.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
        assert seen.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    ours = [text for text in said if not any(word in text for word in FOREIGN)]
    assert ours == []
    if kind == "lab":
        assert broken == []
