"""cpu-rejection-sampler: what the CPU runner of 0.30.0 sets is what the launchers run.

Launchers, dispatchers and C++ kernels' wrappers are the release's own; only torch and the modules
that the runner imports are stand-ins, and the C++ operators note what they are called with.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache, cached_property
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from vllm_series.testing import lift, lift_class, load_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.since("0.30.0"), pytest.mark.before("0.30.1")]

RUNNER = "vllm/v1/worker/cpu_model_runner.py"
HELPER = "vllm/model_executor/warmup/jit_warmup_triton_helper.py"
KERNELS = "vllm/utils/cpu_triton_utils.py"
SAMPLER = "vllm/v1/sample/rejection_sampler.py"
DRAFTER = "vllm/v1/spec_decode/utils.py"
FILES = {
    "rejection_greedy_sample": SAMPLER,
    "rejection_random_sample": SAMPLER,
    "expand": SAMPLER,
    "sample_recovered_tokens": SAMPLER,
    "eagle_step_slot_mapping_metadata": DRAFTER,
}
"""The kernels that the patch sets, by the file of their launchers."""


class Argument:
    """A tensor that is told from the others, and stays itself in any dtype."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = "int64"
        self.shape = (8, 16)

    def to(self, dtype: object) -> Argument:
        return self

    def __repr__(self) -> str:
        return self.name


class Launcher:
    """A launcher as vLLM's decorator makes it: its kernel, and the function that says how."""

    def __init__(self, tree: Path, kernel: Any, dispatch: Callable[..., Any]) -> None:
        plan = lift_class(tree, HELPER, "_LaunchBindingPlan", decorators=True, names=NAMES)
        names = NAMES | {
            "_launch_binding_plan": lift(
                tree, HELPER, "_launch_binding_plan", names={"_LaunchBindingPlan": plan}
            )
        }
        base = lift_class(
            tree,
            HELPER,
            "VllmTritonJitKernel",
            methods=["_kernel_arg_names", "_prepare_launch_kwargs", "launch"],
            bases=(),
            names=names,
            decorators=True,
        )
        base._warming = False
        whole = lift_class(
            tree, HELPER, "_DecoratedTritonJitKernel", methods=["__call__"], bases=(base,),
            names=names,
        )  # fmt: skip
        self.own = whole()
        self.own.kernel = kernel
        self.own._dispatch_fn = dispatch
        self.own._dispatch_arg_names = tuple(inspect.signature(dispatch).parameters)
        self.own._dispatch_defaults = {}


def _dataclass(**_: object) -> Callable[[type], type]:
    from dataclasses import dataclass

    return dataclass(frozen=True)


NAMES = {"cached_property": cached_property, "cache": cache, "inspect": inspect,
         "dataclass": _dataclass}  # fmt: skip


class Line:
    """vLLM on CPU as far as the runner's kernels go."""

    def __init__(self, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree = tree
        self.called: dict[str, tuple[Any, ...]] = {}
        self.launchers = {
            name: Launcher(
                tree,
                lift(tree, path, f"{name}_kernel", missing=MagicMock),
                lift(tree, path, f"_{name}", names={"MAX_SPEC_LEN": 128, "torch": torch(self)}),
            ).own
            for name, path in FILES.items()
        }
        monkeypatch.setitem(sys.modules, "torch", torch(self))
        self.kernels = load_module(tree, KERNELS)
        for name, module in self.modules().items():
            monkeypatch.setitem(sys.modules, name, module)

    def modules(self) -> dict[str, ModuleType]:
        """What `_postprocess_triton` imports: packages down to modules with launchers in them."""
        made: dict[str, ModuleType] = {}
        for name in (
            "vllm", "vllm.triton_utils", "vllm.v1", "vllm.v1.worker", "vllm.v1.worker.block_table",
            "vllm.v1.worker.mamba_utils", "vllm.v1.sample", "vllm.v1.sample.rejection_sampler",
            "vllm.v1.spec_decode", "vllm.v1.spec_decode.utils",
        ):  # fmt: skip
            made[name] = ModuleType(name)
            package, _, last = name.rpartition(".")
            if package:
                setattr(made[package], last, made[name])
        vars(made["vllm.triton_utils"])["HAS_TRITON"] = False
        vars(made["vllm.v1.worker.block_table"])["_COMPUTE_SLOT_MAPPING_KERNEL"] = MagicMock()
        for name, path in FILES.items():
            module = path.removesuffix(".py").replace("/", ".")
            vars(made[module])[f"_{name}"] = self.launchers[name]
        for other in ("_eagle_prepare_inputs_padded", "_eagle_prepare_next_token_padded",
                      "_copy_and_expand_eagle_inputs"):  # fmt: skip
            vars(made["vllm.v1.spec_decode.utils"])[other] = MagicMock()
        return made

    @cached_property
    def runner_names(self) -> dict[str, Any]:
        """What the runner's module holds by the time that a runner is made."""
        names = {"cpu_tl": self.kernels, "sys": sys, "inspect": inspect, "Any": Any}
        names["_InPlaceOf"] = lift_class(self.tree, RUNNER, "_InPlaceOf", names=names)
        names["_launch_instead"] = lift(self.tree, RUNNER, "_launch_instead", names=names)
        return names

    def start(self) -> None:
        """What the runner does when it is made."""
        start = lift(
            self.tree, RUNNER, "CPUModelRunner._postprocess_triton", names=self.runner_names
        )
        start(None)

    def launch(self, name: str) -> tuple[Any, ...]:
        """Launch one with an argument for each parameter; what its C++ operator was given."""
        launcher = self.launchers[name]
        launcher(**{one: argument(one) for one in launcher._dispatch_arg_names})
        return self.called[f"{name}_kernel_impl"]


def argument(name: str) -> Any:
    """A tensor for a parameter, or what it must be where that decides the way."""
    if name == "synthetic_conditional_rates":
        return None
    return 8 if name in ("batch_size", "input_batch_size") else Argument(name)


def torch(line: Line) -> Any:
    """The little of torch that is asked for; operators note their arguments."""

    class Operators:
        def __getattr__(self, name: str) -> Callable[..., None]:
            def note(*given: Any) -> None:
                line.called[name] = given

            return note

    made = ModuleType("torch")
    vars(made).update(
        ops=SimpleNamespace(_C=Operators()),
        int64="int64",
        float32="float32",
        float64="float64",
        Tensor=Argument,
    )
    return made


@pytest.fixture
def line(patched: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(patched, monkeypatch)


@pytest.mark.parametrize("name", FILES)
def test_before_the_runner_starts_a_launcher_cannot_launch(line: Line, name: str) -> None:
    """The fault itself: on CPU what stands for a Triton kernel is a plain function."""
    with pytest.raises(TypeError, match="Cannot inspect kernel parameters for function"):
        line.launch(name)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (
            "rejection_greedy_sample",
            "output_token_ids cu_num_draft_tokens draft_token_ids target_argmax bonus_token_ids "
            "is_greedy max_spec_len",
        ),
        (
            "rejection_random_sample",
            "output_token_ids cu_num_draft_tokens draft_token_ids draft_probs target_probs "
            "bonus_token_ids recovered_token_ids uniform_probs is_greedy max_spec_len 16 False",
        ),
        ("expand", "output input cu_num_tokens replace_from replace_to"),
        (
            "sample_recovered_tokens",
            "output_token_ids cu_num_draft_tokens draft_token_ids draft_probs target_probs inv_q "
            "16 False",
        ),
        (
            "eagle_step_slot_mapping_metadata",
            "positions block_table seq_lens out_clamped_positions out_slot_mapping block_size "
            "max_model_len PAD_ID",
        ),
    ],
)
def test_a_launcher_gives_the_operator_every_argument_in_its_place(
    line: Line, name: str, given: str
) -> None:
    line.start()
    assert list(map(str, line.launch(name))) == given.split()


def test_a_second_runner_in_the_process_launches_the_same(line: Line) -> None:
    line.start()
    first = line.launch("expand")
    line.start()
    assert list(map(str, line.launch("expand"))) == list(map(str, first))
