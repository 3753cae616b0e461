"""Lifting: what is run is the file's own text, and what is missing is named."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from vllm_series.testing import LiftError, lift, lift_class, load_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Stock

SOURCE = """\
import torch  # not installed where this is tested

from vllm.somewhere import Base, cached, limit

LIMIT = 7


def double(value: torch.Tensor) -> NotEvenDefined:
    return value * 2


def capped(value, most=LIMIT):
    local: Undefined = min(value, most)
    return local


def countdown(n):
    return 0 if n == 0 else countdown(n - 1)


def outer(step):
    def inner(value):
        return value + step

    return inner


@cached
def decorated():
    return "plain"


def scale(value):
    return limit(value) + limit(value)


if LIMIT > 3:

    def twice():
        return "first"

else:

    def twice():
        return "second"


async def later():
    return 5


class Counter(Base, flavour="sweet"):
    __secret = 41

    def __init__(self):
        super().__init__()
        self.__hidden = 1

    def __bump(self):
        self.__hidden += 1
        return self.__hidden

    def bump(self):
        return self.__bump()

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self._value = new

    @staticmethod
    def zero():
        return 0

    @classmethod
    @cached
    def named(cls):
        return cls.__name__

    @cached
    def decorated(self, start=LIMIT):
        return start

    def again(self):
        return Counter

    class Inner:
        def answer(self):
            return 42


class Colour(enum.Enum):
    RED = 1


@dataclass
class Pair:
    left: torch.Tensor
    right: int = LIMIT
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "source.py").write_text(SOURCE)
    return tmp_path


def test_annotations_are_never_evaluated(root: Path) -> None:
    assert lift(root, "vllm/source.py", "double")(4) == 8
    assert lift(root, "vllm/source.py", "capped", names={"LIMIT": 3})(4) == 3


def test_defaults_come_from_the_given_names_alone(root: Path) -> None:
    with pytest.raises(LiftError, match=r"capped uses LIMIT, which was not given"):
        lift(root, "vllm/source.py", "capped")


def test_a_name_nobody_gave_is_named_when_it_is_used(root: Path) -> None:
    scale = lift(root, "vllm/source.py", "scale")
    with pytest.raises(
        LiftError, match=r"vllm/source.py: scale uses limit, which was not given. Pass it in names."
    ):
        scale(1)


def test_the_fallback_answers_once_for_each_name(root: Path) -> None:
    asked: list[str] = []

    def missing(name: str) -> Callable[[int], int]:
        asked.append(name)
        return lambda value: value + 1

    assert lift(root, "vllm/source.py", "scale", missing=missing)(1) == 4
    assert asked == ["limit"]


def test_given_names_come_before_builtins_and_builtins_before_the_fallback(root: Path) -> None:
    capped = lift(root, "vllm/source.py", "capped", names={"LIMIT": 3}, missing=pytest.fail)
    assert capped(9) == 3
    capped = lift(root, "vllm/source.py", "capped", names={"LIMIT": 3, "min": max})
    assert capped(9) == 9


def test_bound_names_can_be_changed_later(root: Path) -> None:
    scale = lift(root, "vllm/source.py", "scale", names={"limit": lambda value: value})
    scale.__globals__["limit"] = lambda value: 10 * value
    assert scale(1) == 20


def test_a_function_finds_itself(root: Path) -> None:
    assert lift(root, "vllm/source.py", "countdown")(3) == 0


def test_given_names_are_not_changed(root: Path) -> None:
    names = {"LIMIT": 3}
    lift(root, "vllm/source.py", "capped", names=names)
    assert names == {"LIMIT": 3}


def test_a_nested_function_takes_the_outer_variables_from_names(root: Path) -> None:
    inner = lift(root, "vllm/source.py", "outer.inner", names={"step": 10})
    assert inner(1) == 11
    assert inner.__qualname__ == "outer.inner"


def test_redefinitions_are_told_apart(root: Path) -> None:
    assert lift(root, "vllm/source.py", "twice")() == "first"
    assert lift(root, "vllm/source.py", "twice#2")() == "second"


def test_decorators_are_dropped_unless_asked_for(root: Path) -> None:
    assert lift(root, "vllm/source.py", "decorated")() == "plain"

    def loud(function: Callable[[], str]) -> Callable[[], str]:
        return lambda: function().upper()

    kept = lift(root, "vllm/source.py", "decorated", names={"cached": loud}, decorators=True)
    assert kept() == "PLAIN"
    value = lift(root, "vllm/source.py", "Counter.value")
    counter: Any = type("Fake", (), {"_value": 6})()
    assert value(counter) == 6


def test_coroutines_stay_coroutines(root: Path) -> None:
    coroutine = lift(root, "vllm/source.py", "later")()
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == 5


def test_private_names_are_those_of_the_class(root: Path) -> None:
    counter: Any = type("Fake", (), {"_Counter__hidden": 8})()
    assert lift(root, "vllm/source.py", "Counter.__bump")(counter) == 9


def test_tracebacks_point_into_the_file(root: Path) -> None:
    double = lift(root, "vllm/source.py", "double")
    with pytest.raises(TypeError) as error:
        double(None)
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert frame.filename == str(root / "vllm" / "source.py")
    assert frame.line == "return value * 2"
    assert SOURCE.splitlines()[(frame.lineno or 0) - 1].strip() == frame.line


def test_super_needs_its_class(root: Path) -> None:
    with pytest.raises(LiftError, match=r"Counter.__init__ uses super\(\).*lift_class"):
        lift(root, "vllm/source.py", "Counter.__init__")


class Base:
    started = False

    def __init_subclass__(cls, flavour: str = "none") -> None:
        cls.flavour = flavour

    flavour: str

    def __init__(self) -> None:
        self.started = True


def test_a_lifted_class_stands_on_the_given_bases(root: Path) -> None:
    counter = lift_class(
        root, "vllm/source.py", "Counter", methods=["bump", "__init__", "__bump"], bases=(Base,)
    )
    made = counter()
    assert made.started
    assert made.bump() == 2
    assert (counter.__name__, counter.__module__) == ("Counter", "vllm.source")
    assert counter.flavour == "none"
    assert not hasattr(counter, "zero")


def test_bindings_survive_and_other_decorators_do_not(root: Path) -> None:
    counter = lift_class(
        root,
        "vllm/source.py",
        "Counter",
        methods=["value", "value#2", "zero", "named", "decorated", "again"],
        bases=(),
        names={"LIMIT": 4},
    )
    made = counter()
    made.value = 3
    assert made.value == 3
    assert counter.zero() == 0
    assert counter.named() == "Counter"
    assert made.decorated() == 4
    assert made.again() is counter


def test_a_whole_class_takes_its_bases_from_names(root: Path) -> None:
    names = {"Base": Base, "LIMIT": 4, "cached": lambda function: function}
    counter = lift_class(root, "vllm/source.py", "Counter", names=names, decorators=True)
    assert counter.flavour == "sweet"
    assert counter.Inner().answer() == 42
    with pytest.raises(LiftError, match="Counter uses Base, which was not given"):
        lift_class(root, "vllm/source.py", "Counter")


def test_enums_and_dataclasses_can_be_lifted_whole(root: Path) -> None:
    colour = lift_class(root, "vllm/source.py", "Colour", names={"enum": enum})
    assert colour["RED"].value == 1
    before = sys.modules.get("vllm.source")
    pair = lift_class(
        root,
        "vllm/source.py",
        "Pair",
        names={"dataclass": dataclasses.dataclass, "LIMIT": 7},
        decorators=True,
    )
    assert dataclasses.astuple(pair(1)) == (1, 7)
    assert sys.modules.get("vllm.source") is before


def test_a_nested_class_is_reached_by_its_qualified_name(root: Path) -> None:
    inner = lift_class(root, "vllm/source.py", "Counter.Inner", methods=["answer"], bases=())
    assert inner().answer() == 42
    assert inner.__qualname__ == "Counter.Inner"
    assert lift(root, "vllm/source.py", "Counter.Inner.answer")(None) == 42


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Counter.bmp", r"there is no Counter.bmp. Near it: Counter.bump"),
        ("twice#3", r"there is no twice#3"),
        ("twice#0", r"there is no twice#0"),
        ("nothing.at.all", r"there is no nothing.at.all"),
        ("Counter", r"Counter is a class. Use lift_class"),
    ],
)
def test_what_cannot_be_lifted_is_said(root: Path, name: str, reason: str) -> None:
    with pytest.raises(LiftError, match=reason):
        lift(root, "vllm/source.py", name)


def test_a_function_is_no_class_and_a_class_no_method(root: Path) -> None:
    with pytest.raises(LiftError, match=r"double is a function. Use lift"):
        lift_class(root, "vllm/source.py", "double")
    with pytest.raises(LiftError, match=r"Counter.Inner is a class, not a method"):
        lift_class(root, "vllm/source.py", "Counter", methods=["Inner"])


def test_files_that_cannot_be_used_are_named(root: Path) -> None:
    with pytest.raises(LiftError, match=r"cannot be read .*the folder that contains vllm/"):
        lift(root, "vllm/gone.py", "f")
    (root / "vllm" / "broken.py").write_text("def f(:\n")
    with pytest.raises(LiftError, match=r"vllm/broken.py: it does not parse .*line 1"):
        lift(root, "vllm/broken.py", "f")
    for path in ("/etc/passwd", "../x.py"):
        with pytest.raises(LiftError, match="not below the tree"):
            lift(root, path, "f")
    (root / "vllm" / "nonlocal.py").write_text(
        "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g\n"
    )
    with pytest.raises(LiftError, match="does not compile alone"):
        lift(root, "vllm/nonlocal.py", "f.g")


def test_a_module_is_fresh_each_time_and_sees_the_given_environment(root: Path) -> None:
    (root / "vllm" / "knob.py").write_text(
        "import os\nseen = dict(os.environ)\nflag = seen.get('FLAG')\n"
    )
    before = dict(os.environ)
    off = load_module(root, "vllm/knob.py", environ={})
    on = load_module(root, "vllm/knob.py", environ={"FLAG": "1"})
    assert (off.flag, on.flag) == (None, "1")
    assert off.seen == {}
    assert dict(os.environ) == before
    assert load_module(root, "vllm/knob.py").seen == before
    assert (on.__name__, on.__file__) == ("vllm.knob", str(root / "vllm" / "knob.py"))
    assert "vllm.knob" not in sys.modules


def test_a_module_that_needs_vllm_says_so(root: Path) -> None:
    (root / "vllm" / "heavy.py").write_text("import no_such_module_as_this\n")
    with pytest.raises(LiftError, match=r"vllm/heavy.py: it imports what is not there"):
        load_module(root, "vllm/heavy.py")


def test_errors_of_a_module_come_through(root: Path) -> None:
    (root / "vllm" / "angry.py").write_text("raise ValueError('KNOB=x')\n")
    with pytest.raises(ValueError, match="KNOB=x"):
        load_module(root, "vllm/angry.py", environ={})


def test_the_first_example_of_the_docs_runs(stock: Stock) -> None:
    page = Path(__file__).parents[1] / "docs" / "testing-patches.md"
    example = page.read_text().partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(example, str(page), "exec"), names)
    names["test_drafts_that_break_the_grammar_are_not_counted"](stock("0.33.0"))


def test_real_methods_run_on_a_fake(stock: Stock) -> None:
    tree = stock("0.33.0")
    cdiv = lift(tree, "vllm/utils/math_utils.py", "cdiv")
    assert cdiv(7, 2) == 4
    status = lift_class(
        tree, "vllm/v1/request.py", "RequestStatus", names={"enum": enum}, missing=lambda _: {}
    )
    assert status.is_finished(status.FINISHED_ABORTED)
    assert not status.is_finished(status.RUNNING)
