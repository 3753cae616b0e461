"""Two series as people keep them, ported by hand to every line from 0.14 to 0.25.

`options` are four small patches over seven files: an option by environment, a line of log, a
counter of metrics and an option of the command line. `ends` are four that put something where
upstream puts its own: last in a signature, a call, a class, a constructor, and into a block of
imports. What a person would write for each line is said here by anchors in that line's own files,
with what upstream forced: a helper that was renamed in 0.19, an import that the scheduler lost in
0.22. No tool that carries takes part, so that each step from one line to the next has a known
result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
ENVS = "vllm/envs.py"
CORE = "vllm/v1/engine/core.py"
STATS = "vllm/v1/metrics/stats.py"
LOGGERS = "vllm/v1/metrics/loggers.py"
CONFIG = "vllm/config/scheduler.py"
ARGUMENTS = "vllm/engine/arg_utils.py"
CACHE = "vllm/v1/core/kv_cache_manager.py"
REQUEST = "vllm/v1/request.py"
OUTPUT = "vllm/v1/core/sched/output.py"
PATHS = (SCHEDULER, ENVS, CORE, STATS, LOGGERS, CONFIG, ARGUMENTS, CACHE, REQUEST, OUTPUT)
RELEASES = (
    "0.14.1", "0.15.1", "0.16.0", "0.17.1", "0.18.1", "0.19.1",
    "0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1",
)  # fmt: skip
"""The last of each line."""

Texts = Mapping[str, bytes]


def behind(text: str, anchor: str, added: str) -> str:
    """`text` with lines behind the one place that the pattern `anchor` matches, to its line's end.

    Raises ValueError where it does not match once.
    """
    found = list(re.finditer(anchor, text, re.M | re.S))
    if len(found) != 1:
        raise ValueError(f"{len(found)} places for {anchor!r}")
    end = text.index("\n", found[0].end() - 1) + 1
    return text[:end] + added + text[end:]


def option_by_environment(files: dict[str, str]) -> None:
    """Start no more requests while as many as the variable says are running."""
    text = files[ENVS]
    text = behind(
        text,
        r"^    VLLM_V1_OUTPUT_PROC_CHUNK_SIZE: int = 128\n",
        "    VLLM_RUNNING_LIMIT: int = 0\n",
    )
    files[ENVS] = behind(
        text,
        r'^    "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE": lambda: int\(\n[^\n]*\n    \),\n',
        "    # If set, no waiting request is started while that many are running.\n"
        '    "VLLM_RUNNING_LIMIT": lambda: int(os.getenv("VLLM_RUNNING_LIMIT", "0")),\n',
    )
    text = files[SCHEDULER]
    if "\nfrom vllm import envs\n" not in text:
        text = text.replace(
            "from vllm.compilation.cuda_graph import CUDAGraphStat\n",
            "from vllm import envs\nfrom vllm.compilation.cuda_graph import CUDAGraphStat\n",
        )
    files[SCHEDULER] = behind(
        text,
        r"^        # Next, schedule the WAITING requests\..*?^                    break\n",
        "                if 0 < envs.VLLM_RUNNING_LIMIT <= len(self.running):\n"
        "                    break\n",
    )


def line_of_log(files: dict[str, str]) -> None:
    """Say which request is preempted, and that the engine ends."""
    files[SCHEDULER] = behind(
        files[SCHEDULER],
        r"^        request\.num_preemptions \+= 1\n",
        "        logger.info(\n"
        '            "Preempted %s (%d times).", request.request_id, request.num_preemptions\n'
        "        )\n",
    )
    files[CORE] = behind(
        files[CORE],
        r"^    def shutdown\(self\):\n(?=(        logger[^\n]*\n)?"
        r"        self\.structured_output_manager)",
        '        logger.info("The engine core is shutting down.")\n',
    )


def counter(files: dict[str, str]) -> None:
    """Count the tokens that preemptions throw away."""
    text = behind(
        files[STATS],
        r"^        self\.num_preempted_reqs = 0\n",
        "        self.num_discarded_tokens = 0\n",
    )
    files[STATS] = behind(
        text,
        r"^                self\.num_preempted_reqs \+= 1\n",
        "                self.num_discarded_tokens += req_stats.num_generation_tokens\n",
    )
    text = files[LOGGERS]
    made = re.search(
        r"^        self\.counter_num_preempted_reqs = (\w+)\(\n"
        r"            counter_num_preempted_reqs, ([\w, ]+)\n        \)\n",
        text,
        re.M,
    )
    assert made is not None
    helper, values = made.groups()
    text = behind(
        text,
        re.escape(made[0]),
        "\n        counter_discarded_tokens = self._counter_cls(\n"
        '            name="vllm:discarded_tokens",\n'
        '            documentation="Tokens that preemptions have thrown away.",\n'
        "            labelnames=labelnames,\n"
        "        )\n"
        f"        self.counter_discarded_tokens = {helper}(\n"
        f"            counter_discarded_tokens, {values}\n"
        "        )\n",
    )
    files[LOGGERS] = behind(
        text,
        r"^        self\.counter_num_preempted_reqs\[engine_idx\]\.inc\(\n"
        r"            iteration_stats\.num_preempted_reqs\n        \)\n",
        "        self.counter_discarded_tokens[engine_idx].inc(\n"
        "            iteration_stats.num_discarded_tokens\n"
        "        )\n",
    )


def option_by_argument(files: dict[str, str]) -> None:
    """An option that says after how many preemptions a request goes to the front."""
    files[CONFIG] = behind(
        files[CONFIG],
        r'^    async_scheduling: bool[^\n]*\n    """.*?"""\n',
        "\n    preemption_limit: int = 0\n"
        '    """After how many preemptions a request is not preempted again; 0 for never."""\n',
    )
    text = behind(
        files[ARGUMENTS],
        r"^    async_scheduling: bool \| None = SchedulerConfig\.async_scheduling\n",
        "    preemption_limit: int = SchedulerConfig.preemption_limit\n",
    )
    text = behind(
        text,
        r'^            "--async-scheduling"[^\n]*\n        \)\n',
        "        scheduler_group.add_argument(\n"
        '            "--preemption-limit", **scheduler_kwargs["preemption_limit"]\n'
        "        )\n",
    )
    files[ARGUMENTS] = behind(
        text,
        r"^            async_scheduling=self\.async_scheduling,\n",
        "            preemption_limit=self.preemption_limit,\n",
    )


def last_parameter(files: dict[str, str]) -> None:
    """The cache gets a parameter, the scheduler passes it."""
    text = _in_signature(files[CACHE], "KVCacheManager", "        headroom: int = 0,\n")
    files[CACHE] = behind(
        text,
        r"^        self\.max_model_len = max_model_len\n",
        "        self.headroom = headroom\n",
    )
    files[SCHEDULER] = _in_call(
        files[SCHEDULER], "KVCacheManager", "            headroom=self.max_num_running_reqs,\n"
    )


def last_attribute(files: dict[str, str]) -> None:
    """A request gets a parameter, and keeps it."""
    text = _in_signature(files[REQUEST], "Request", "        tenant: str | None = None,\n")
    end = _constructor(text, "Request").end_lineno or 0
    files[REQUEST] = _at(text, end, "\n        self.tenant = tenant\n")


def last_field(files: dict[str, str]) -> None:
    """What a step schedules says one thing more."""
    text = files[OUTPUT]
    fields = [one for one in _class(text, "SchedulerOutput").body if isinstance(one, ast.AnnAssign)]
    end = fields[-1].end_lineno or 0
    files[OUTPUT] = _at(
        text, end, "\n    # Requests that wait when the step is made.\n    num_waiting: int = 0\n"
    )
    files[SCHEDULER] = _in_call(
        files[SCHEDULER], "SchedulerOutput", "            num_waiting=len(self.waiting),\n"
    )


def import_in_block(files: dict[str, str]) -> None:
    """The scheduler asks a module of ours, which it imports in its place by the alphabet."""
    files["vllm/v1/core/sched/fairness.py"] = (
        "def in_turn(requests):\n    return sorted(requests, key=lambda one: one.arrival_time)\n"
    )
    text = files[SCHEDULER]
    at = text.index("from vllm.v1.core.sched.interface import")
    files[SCHEDULER] = behind(
        text[:at] + "from vllm.v1.core.sched.fairness import in_turn\n" + text[at:],
        r"^        # First, schedule the RUNNING requests\.\n",
        "        self.running = in_turn(self.running)\n",
    )


def _class(text: str, name: str) -> ast.ClassDef:
    return next(
        one for one in ast.parse(text).body if isinstance(one, ast.ClassDef) and one.name == name
    )


def _constructor(text: str, name: str) -> ast.FunctionDef:
    return next(
        one
        for one in _class(text, name).body
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    )


def _in_signature(text: str, name: str, added: str) -> str:
    made = _constructor(text, name)
    lines = text.splitlines(keepends=True)
    ends: list[ast.arg | ast.expr] = [*made.args.args, *made.args.defaults]
    last = max(one.end_lineno or 0 for one in ends)
    assert lines[last].startswith("    )"), lines[last]
    return _at(text, last, added)


def _in_call(text: str, name: str, added: str) -> str:
    calls = [
        one
        for one in ast.walk(ast.parse(text))
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == name
    ]
    assert len(calls) == 1, f"{len(calls)} calls of {name}"
    return _at(text, (calls[0].end_lineno or 0) - 1, added)


def _at(text: str, line: int, added: str) -> str:
    """`text` with lines behind a 1-based line."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:line], added, *lines[line:]])


Patches = Mapping[str, Callable[[dict[str, str]], None]]
SERIES: Mapping[str, Patches] = {
    "options": {
        "running-limit.patch": option_by_environment,
        "say-preempted.patch": line_of_log,
        "discarded-tokens.patch": counter,
        "preemption-limit.patch": option_by_argument,
    },
    "ends": {
        "headroom.patch": last_parameter,
        "tenant.patch": last_attribute,
        "waiting.patch": last_field,
        "fairness.patch": import_in_block,
    },
}


def ported(stock: Texts, patches: Patches) -> dict[str, dict[str, bytes]]:
    """The files that each patch changes, as it leaves them on a release, by its name, in order."""
    files = {path: text.decode() for path, text in stock.items()}
    found = {}
    for name, change in patches.items():
        before = dict(files)
        change(files)
        found[name] = {
            path: text.encode() for path, text in files.items() if text != before.get(path)
        }
    return found
