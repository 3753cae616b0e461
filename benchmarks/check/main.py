"""The tables: one release, every release since 0.27, a cold check of the whole index, growth,
memory. Each is printed with its aims; `--json` prints all figures as one object instead."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import stock
from check import ours, samples, tools, wire
from check.measure import Aim, Case, measured, peak_megabytes

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = "0.32.0", "0.33.0"
SINCE = ("0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
RANGE = "0.27..0.33"
PATCHES = 200
BYTES_AIM = 1.2
COLD_AIM, WARM_AIM = 20.0, 1.5
MEMORY_AIM = 400
PARTS = ("local", "releases", "index", "growth", "memory")


class Bench:
    """One run: where the scratch files are, how often each row runs, and what was found."""

    def __init__(self, folder: Path, runs: int, patches: int, out: TextIO) -> None:
        self.folder = folder
        self.runs = runs
        self.out = out
        self.old, self.new = stock.release(OLD), stock.release(NEW)
        self.texts = samples.split(self.old, self.new, patches)
        self.series = samples.series(folder / "foreign", self.texts)
        self.own = samples.series(folder / "own", samples.with_base(self.texts, self.old, OLD))
        self.found: dict[str, Any] = {
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "runs": runs,
            "patches": patches,
            "hunks": sum(text.count(b"\n@@ ") for text in self.texts),
        }

    def cache(self, name: str) -> ours.Cache:
        """A cache folder with that name, under the scratch folder."""
        return ours.Cache(self.folder / "cache" / name)

    def source(self, series: Path, tree: Path) -> list[str]:
        """The options for a check of one local tree."""
        return ["--series-dir", str(series), "--source", f"dir:{tree}"]

    # -- one release ------------------------------------------------------------------------------

    def local(self) -> None:
        """The series on the release that it was made on."""
        cases = [
            *ours.first_and_again(
                self.source(self.series, self.old), self.folder, self.folder / "cache/local"
            ),
            ours.dry_run(self.series, self.old, self.folder),
            *tools.judging(self.series, [self.old], self.folder),
            *tools.writing(self.series, self.old, self.folder),
        ]
        first, again = cases[:2]
        others = tuple(case.name for case in cases[3:])
        first.aim = Aim("before all but the patch loop", others[:1] + others[2:3] + others[4:])
        again.aim = Aim("before all", others)
        measured(cases, self.runs)
        self.table(f"{len(self.texts)} one-file patches on vllm {OLD}", cases)

    # -- releases ---------------------------------------------------------------------------------

    def releases(self) -> None:
        """The same on every release since 0.27; loops in unpacked trees, ours from its cache."""
        trees = [stock.release(version) for version in SINCE]
        for series, form in ((self.series, "foreign"), (self.own, "with their base")):
            words = ["--series-dir", str(series), "--releases", RANGE]
            cases = ours.first_and_again(words, self.folder, self.folder / f"cache/{series.name}")
            cases += tools.judging(series, trees, self.folder)
            loops = tuple(case.name for case in cases[2:])
            for case in cases[:2]:
                case.aim = Aim("a tenth of each loop", loops, 10)
            measured(cases, max(2, self.runs // 2))
            self.table(f"the same ({form}) on {len(SINCE)} releases, {RANGE}", cases)

    # -- the index --------------------------------------------------------------------------------

    def index(self) -> None:
        """The project's own series on every release of the index."""
        words = ["--series-dir", str(ROOT / "series"), "--series", "vllm-0.33", "--releases", "all"]
        cold, warm = self.cache("cold"), self.cache("warm")
        cases = [
            ours.check("vllm-series check, cold", words, self.folder, cold, cold.empty),
            ours.check("vllm-series check, warm", words, self.folder, warm),
        ]
        cases[0].aim = Aim(f"{COLD_AIM:g} s", seconds=COLD_AIM)
        cases[1].aim = Aim(f"{WARM_AIM:g} s", seconds=WARM_AIM)
        measured(cases, min(self.runs, 3))
        self.table("dynwidth on all releases of the index", cases)
        counted = self.cache("counted")
        with wire.mirror() as (address, counter):
            case = ours.check(
                "counted", [*words, "--index-url", address], self.folder, counted, counted.empty
            )
            case.run()
        patch = (ROOT / "series/vllm-0.33/dynwidth.patch").read_bytes()
        needed = wire.needed(counter.files, samples.touched(patch))
        ratio = counter.file_bytes / needed.total
        self.found["wire"] = {
            "files": len(counter.files),
            "requests": counter.requests,
            "page_bytes": counter.page_bytes,
            "file_bytes": counter.file_bytes,
            "central_directories": needed.directories,
            "records": needed.records,
            "members": needed.members,
            "archives": needed.archives,
            "ratio": ratio,
            "aim": BYTES_AIM,
            "met": ratio <= BYTES_AIM,
        }
        self.say(
            f"\nbytes of that cold check: {counter.file_bytes / 1e6:.2f} MB in {counter.requests} "
            f"requests from {len(counter.files)} files,\n"
            f"{ratio:.2f} x what is needed ({needed.directories / 1e6:.2f} MB central directories, "
            f"{needed.records / 1e6:.2f} MB RECORD, {needed.members / 1e6:.2f} MB members,\n"
            f"{needed.archives / 1e6:.2f} MB source archives of releases without a wheel)\n"
            f"aim {BYTES_AIM} x: {_word(ratio <= BYTES_AIM)}; "
            f"the index page is {counter.page_bytes / 1e6:.2f} MB more",
        )

    # -- growth -----------------------------------------------------------------------------------

    def growth(self) -> None:
        """Medians over the number of patches, hunks, bytes of a file, and releases."""
        rows: list[tuple[str, str, float, float]] = []

        def row(kind: str, size: str, series: Path, words: Sequence[str]) -> None:
            cache = f"cache/growth/{kind}-{size}"
            cases = ours.first_and_again(
                ["--series-dir", str(series), *words], self.folder, self.folder / cache
            )
            measured(cases, max(2, self.runs // 2))
            rows.append((kind, size, cases[0].median, cases[1].median))

        local = ["--source", f"dir:{self.new}"]
        for count in (25, 50, 100, 200):
            if count <= len(self.texts):
                series = samples.series(self.folder / f"patches-{count}", self.texts[:count])
                row("patches", str(count), series, ["--source", f"dir:{self.old}"])
        large = samples.path_of_size(self.old, 160_000)
        for hunks in (1, 10, 100):
            text = samples.edited(self.old, large, hunks)
            row("hunks", str(hunks), samples.series(self.folder / f"hunks-{hunks}", [text]), local)
        for size in (4_000, 16_000, 64_000, 256_000):
            path = samples.path_of_size(self.old, size)
            text = samples.edited(self.old, path, 1)
            series = samples.series(self.folder / f"size-{size}", [text])
            row("bytes", str((self.old / path).stat().st_size), series, local)
        for count in (1, 2, 4, 8):
            row("releases", str(count), self.series, ["--releases", ",".join(SINCE[-count:])])
        self.found["growth"] = [
            {"over": kind, "size": int(size), "first": first, "again": again}
            for kind, size, first, again in rows
        ]
        self.say(f"\n{'growth over':<12}{'':>9}  {'first ms':>9}  {'again ms':>9}")
        for kind, reached, first, again in rows:
            self.say(f"{kind:<12}{reached:>9}  {first * 1000:>9.0f}  {again * 1000:>9.0f}")

    # -- memory -----------------------------------------------------------------------------------

    def memory(self) -> None:
        """The most that each kind of check holds, children included."""
        dynwidth = ["--series-dir", str(ROOT / "series"), "--series", "vllm-0.33"]
        kinds = {
            "200 patches, one release": self.source(self.series, self.old),
            "200 patches, every release since 0.27": [
                "--series-dir", str(self.own), "--releases", RANGE,
            ],
            "dynwidth, cold, every release": [*dynwidth, "--releases", "all"],
        }  # fmt: skip
        self.say(f"\n{'memory':<40}{'MB':>6}  aim {MEMORY_AIM} MB")
        cache = self.cache("memory")
        for name, words in kinds.items():
            if "cold" in name:
                cache.empty()
            cache.forget_answers()
            peak = peak_megabytes([tools.OURS, "check", *words], self.folder, cache.environment)
            self.found.setdefault("memory", {})[name] = {"mb": peak, "met": peak < MEMORY_AIM}
            self.say(f"{name:<40}{peak:>6.0f}  {_word(peak < MEMORY_AIM)}")

    # -- tables -----------------------------------------------------------------------------------

    def table(self, title: str, cases: Sequence[Case]) -> None:
        """Medians, the fastest and the slowest run, and the aim beside them."""
        medians = {case.name: case.median for case in cases}
        load = os.getloadavg()[0]
        width = max(map(len, medians))
        self.say(f"\n{title} (load {load:.1f})\n")
        self.say(f"{'':<{width}}  {'median ms':>9}  {'min':>7}  {'max':>7}  aim")
        rows: list[dict[str, Any]] = []
        for case in cases:
            low, high, met, aim = min(case.seconds), max(case.seconds), None, ""
            if case.aim:
                met = case.aim.is_met(case.median, medians)
                aim = f"{case.aim.words}: {_word(met)}"
            rows.append(
                {"name": case.name, "median": case.median, "min": low, "max": high, "aim": aim,
                 "met": met}
            )  # fmt: skip
            self.say(
                f"{case.name:<{width}}  {case.median * 1000:>9.0f}  {low * 1000:>7.0f}  "
                f"{high * 1000:>7.0f}  {aim}".rstrip()
            )
        self.found.setdefault("tables", []).append({"title": title, "load": load, "rows": rows})

    def say(self, text: str) -> None:
        """On stdout, which is kept free for the JSON object where that is asked for."""
        print(text, file=self.out, flush=True)


def _word(is_met: bool) -> str:
    return "met" if is_met else "not met"


def main() -> int:
    """Run the parts that were asked for; 0 also where an aim is missed, since a busy machine misses
    any."""
    parser = argparse.ArgumentParser(prog="benchmarks/check", description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="rounds of each table")
    parser.add_argument("--quick", action="store_true", help="40 patches, 3 rounds")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may repeat")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON on stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        count = 40 if options.quick else PATCHES
        out = sys.stderr if options.json else sys.stdout
        bench = Bench(Path(name), 3 if options.quick else options.runs, count, out)
        parts: dict[str, Callable[[], None]] = {
            "local": bench.local,
            "releases": bench.releases,
            "index": bench.index,
            "growth": bench.growth,
            "memory": bench.memory,
        }
        for part in options.only or PARTS:
            parts[part]()
        if options.json:
            print(json.dumps({"schema": 1, **bench.found}, indent=2))
    return 0
