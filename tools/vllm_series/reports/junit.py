"""JUnit XML, which every CI service shows: a suite a release, a case a patch.

The form is that of Jenkins' xUnit schema (`testsuites`, `testsuite`, `properties`, `testcase`,
`failure`, `error`, `skipped`). A failure is what makes `check` fail: a patch that is not clean on a
supported release. What is not clean elsewhere is skipped, with the reason, so that a question about
an old release turns no build red.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from vllm_series.checking.answers import ReleaseAnswer
from vllm_series.reports.details import passages
from vllm_series.reports.marks import mark
from vllm_series.reports.reasons import problem

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 text may hold, escaped or not (W3C, Extensible Markup Language, 2.2)."""


def junit(answers: Sequence[ReleaseAnswer]) -> bytes:
    """The document, UTF-8 with its declaration."""
    root = ElementTree.Element("testsuites", {"name": "vllm-series check"})
    for answer in answers:
        root.append(_suite(answer))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(answer: ReleaseAnswer) -> ElementTree.Element:
    suite = _element("testsuite", {"name": f"vllm {answer.release}"})
    if answer.date:
        suite.set("timestamp", f"{_text(answer.date)}T00:00:00")
    told = {
        "release": answer.release,
        "judged": answer.label,
        "series": answer.series,
        "supported": "yes" if answer.is_supported else "no",
    }
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in told.items():
        if value:
            properties.append(_element("property", {"name": name, "value": value}))
    texts = dict(_by_patch(answer))
    cases = [_case(answer, patch.name, problem(patch), texts[patch.name], mark(patch).word)
             for patch in answer.patches]  # fmt: skip
    if answer.error:
        cases = [_case(answer, "release", answer.error, "", "not judged", broken=True)]
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(sum(case.find(tag) is not None for case in cases)))
    return suite


def _by_patch(answer: ReleaseAnswer) -> list[tuple[str, str]]:
    """The details of each patch; a release has one passage a patch, in their order."""
    told = (f"{head}\n{body}" for head, body in passages([answer]))
    return [(patch.name, text) for patch, text in zip(answer.patches, told, strict=True)]


def _case(
    answer: ReleaseAnswer, name: str, trouble: str, text: str, kind: str, *, broken: bool = False
) -> ElementTree.Element:
    case = _element("testcase", {"classname": f"vllm-{answer.release}", "name": name, "time": "0"})
    if not trouble:
        return case
    if not answer.is_supported:
        message = f"{trouble} (not supported, so it does not count)"
        case.append(_element("skipped", {"message": message}))
        return case
    outcome = _element("error" if broken else "failure", {"message": trouble, "type": kind})
    outcome.text = _text(text)
    case.append(outcome)
    return case


def _element(tag: str, attributes: dict[str, str]) -> ElementTree.Element:
    return ElementTree.Element(tag, {name: _text(value) for name, value in attributes.items()})


def _text(text: str) -> str:
    """Text that XML can hold: control characters and halves of characters as escapes."""
    return _FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
