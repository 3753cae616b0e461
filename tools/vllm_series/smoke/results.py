"""What is known of one scenario in one mode, and of a whole smoke run. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Mode(Enum):
    """With which code a scenario ran; the values are words of a report."""

    STOCK = "stock"
    OFF = "off"
    """Patched, and switched off."""
    ON = "on"
    """Patched, and switched on by the patches' `Activate:` trailers."""


class Outcome(Enum):
    """What became of a scenario in a mode, or of one check of it."""

    PASSED = "passed"
    TIE = "tie"
    """The tokens differ where two logits were as good as equal."""
    FAILED = "failed"
    STOCK_FAILED = "stock fails"
    """It fails with the series as it does without: not the series' doing, and no proof of it."""
    NOT_RUN = "not run"
    INFO = "not promised"
    """It differs, and nobody promised that it would not."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a traceback; `line` is 1-based."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a scenario did not come to its end. `log` are the last lines that the engine wrote."""

    kind: str
    message: str
    frames: tuple[Frame, ...]
    log: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decode:
    """One scenario in one mode. `tokens` and `prompts` are those of each request (None where only
    text is known), `metrics` what was counted, `seconds` the times of the repeats."""

    scenario: str
    mode: Mode
    tokens: tuple[tuple[int, ...], ...] | None = None
    prompts: tuple[tuple[int, ...], ...] | None = None
    texts: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()
    engine_seconds: float = 0.0
    log: str = ""
    log_file: str | None = None
    failure: Failure | None = None
    skipped: str | None = None
    """Why it was not tried."""

    @property
    def drafted(self) -> int | None:
        """Tokens that a drafter proposed."""
        return self._counter("vllm:spec_decode_num_draft_tokens")

    @property
    def accepted(self) -> int | None:
        """Tokens of those that the model agreed with."""
        return self._counter("vllm:spec_decode_num_accepted_tokens")

    def _counter(self, name: str) -> int | None:
        value = self.metrics.get(name)
        return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the tokens of a request first differ; places count from 0. For text, where only that
    is known, the two are characters."""

    request: int
    position: int
    stock: int | str | None
    patched: int | str | None
    gap: float | None = None
    """How far apart the logits of the two are, where it was asked for."""

    @property
    def words(self) -> str:
        """In words of a report."""
        what = f"request {self.request}, token {self.position}: {self.stock} became {self.patched}"
        return what if self.gap is None else f"{what}, logits {self.gap:.2g} apart"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was held against another. `patch` is who promised it, where one did."""

    name: str
    outcome: Outcome
    detail: str = ""
    patch: str | None = None
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the report: a scenario in a mode, and what was checked."""

    decode: Decode
    outcome: Outcome
    checks: tuple[Check, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Blame:
    """The patch that makes a scenario fail, found by leaving out patches. `frame` is the innermost
    line of a crash that the patch has written or changed the file of."""

    patch: str
    scenario: str
    mode: Mode
    what: str
    runs: int
    difference: Difference | None = None
    frame: Frame | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Smoke:
    """All that one release gave."""

    release: str
    device: str
    outcome: Outcome
    reason: str = ""
    wheel: str = ""
    torch: str | None = None
    series: str | None = None
    patches: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    promises: tuple[Check, ...] = ()
    blames: tuple[Blame, ...] = ()
    seconds: float = 0.0
    install_seconds: float = 0.0
    disk: int | None = None
    logs: str | None = None
