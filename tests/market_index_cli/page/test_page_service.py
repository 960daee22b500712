"""The JavaScript module service.js of the page, run by node against a real service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from market_index import LiveIndex
from tests.page import PAGE, app_with_page, sample
from tests.service import Service, served
from tests.waiting import DEADLINE_SECONDS, eventually

IMPORTS = """
import { Follower, orderBook, pairList, sleep } from "./service.mjs";
const [base] = process.argv.slice(2);
const send = fetch;
const preferred = [];
globalThis.fetch = (path, options) => {
  preferred.push(options.headers.Prefer ?? null);
  return send(base + path, options);
};
const { signal } = new AbortController();
const print = (value) => console.log(JSON.stringify(value));
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the modules, for node."""
    for name in ("service", "exact", "names"):
        text = (PAGE / f"{name}.js").read_text()
        (tmp_path / f"{name}.mjs").write_text(re.sub(r'"(\./\w+)\.js"', r'"\1.mjs"', text))
    return tmp_path


def started(folder: Path, program: str, service: Service | None = None) -> subprocess.Popen[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the requests of the page are not tested")
    (folder / "program.mjs").write_text(IMPORTS + program)
    base = f"http://127.0.0.1:{service.port}/" if service else ""
    return subprocess.Popen([node, folder / "program.mjs", base], stdout=subprocess.PIPE, text=True)


def printed(process: subprocess.Popen[str]) -> list[Any]:
    output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


def test_a_request_that_waits_is_answered_by_a_change(folder: Path):
    program = """
const list = pairList();
print(await list.refresh(signal, 30));  // nothing is known yet, so there is nothing to wait for
const waiting = list.refresh(signal, 30);
print("waiting");
print(await waiting);
print([list.value.length, list.pause, list.changed !== null, preferred]);
process.exit();
"""
    live = LiveIndex(sample())
    app = app_with_page(live)
    with served(app) as service, started(folder, program, service) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines == ["true\n", '"waiting"\n']
        eventually(lambda: app._waits._watches)
        live.retract(live.current.pair_list()[0].pair)
        assert printed(process) == [True, [len(live.current), 200, True, [None, "wait=30"]]]


def test_a_service_that_lets_no_request_wait_is_polled(folder: Path):
    program = """
const list = pairList();
await list.refresh(signal);
print([await list.refresh(signal, 30), list.pause]);
process.exit();
"""
    with served(app_with_page(LiveIndex(sample()), max_wait=0)) as service:
        assert printed(started(folder, program, service)) == [[False, 2000]]


def test_the_pause_follows_from_the_last_response(folder: Path):
    program = """
const answers = [
  ["200", { ETag: '"a"' }],  // no wait was asked for
  ["304", { "Preference-Applied": "wait=30" }],
  ["200", { ETag: '"b"' }],  // it had changed before it could wait
  ["304", {}],
  ["200", { ETag: '"c"', "Preference-Applied": "wait=5" }],
  ["200", {}],  // without a tag no request can wait
];
globalThis.fetch = async () => {
  const [status, headers] = answers.shift();
  return new Response(status === "200" ? '{"pairs":[]}' : null, { status: Number(status), headers });
};
const list = pairList();
const pauses = [];
while (answers.length) {
  await list.refresh(signal, 30);
  pauses.push(list.pause);
}
print(pauses);
"""
    assert printed(started(folder, program)) == [[2000, 200, 200, 2000, 200, 2000]]


def test_a_follower_restarts_with_backoff_and_holds_no_request_while_hidden(folder: Path):
    program = """
globalThis.document = new EventTarget();
document.hidden = false;
const delays = [];
const signals = [];
const real = setTimeout;
globalThis.setTimeout = (task, delay) => {
  delays.push(delay);
  return real(task, 0);
};
const moment = () => new Promise((resolve) => real(resolve, 20));
const show = (hidden) => {
  document.hidden = hidden;
  document.dispatchEvent(new Event("visibilitychange"));
};
let failures = 6;
const follower = new Follower(
  async (signal) => {
    signals.push(signal);
    if (failures-- > 0) throw new Error("not now");
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  },
  () => {},
);
await follower.restart();
while (signals.length < 7) await moment();
print(delays);
print(signals.map((signal) => signal.aborted));
show(true);
await moment();
print([signals.length, signals.at(-1).aborted]);
show(false);
follower.succeed();
await moment();
print([signals.length, signals.at(-1).aborted]);
follower.restart();
failures = 1;
follower.restart();
while (signals.length < 11) await moment();
print([delays.length, delays.at(-1), signals.slice(7).map((signal) => signal.aborted)]);
process.exit();
"""
    assert printed(started(folder, program)) == [
        [2000, 4000, 8000, 16000, 30000, 30000],
        [True] * 6 + [False],
        [7, True],
        [8, False],
        [7, 2000, [True, True, True, False]],
    ]


def test_a_sleep_ends_with_its_signal(folder: Path):
    program = """
const controller = new AbortController();
const sleeping = sleep(3600000, controller.signal).catch((error) => error.name);
controller.abort();
print(await sleeping);
print(await sleep(0, controller.signal).catch((error) => error.name));
print((await sleep(0, signal)) ?? "slept");
"""
    assert printed(started(folder, program)) == ["AbortError", "AbortError", "slept"]
