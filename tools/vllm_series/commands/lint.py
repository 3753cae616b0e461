"""`vllm-series lint`: series folders before anyone applies them."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_series.commands.options import (
    json_option,
    looked_at,
    loudness_options,
    series_options,
    tree_options,
)
from vllm_series.series import chosen_folder, every_folder


@click.command("lint")
@tree_options
@series_options
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Check series folders: complete, in their one form, true.

    Every patch is listed once and none is left over, has its why-text and its trailers, and is
    written in the one form. With --target or --python, the blob ids, scopes and contracts of the
    patches whose base is that release are held against its stock files too.
    """
    from vllm_series.errors import RefusedError
    from vllm_series.installation.stack import read_stack
    from vllm_series.lint import lint
    from vllm_series.report import as_json as rendered
    from vllm_series.report import counted, table

    read = version = None
    if target is not None or python is not None:
        tree = looked_at(target, python)
        if read_stack(tree):
            raise RefusedError(f"{tree.label} is patched. Run vllm-series revert first.")
        read, version = tree.read, tree.version
    if series_name is not None:
        chosen = [chosen_folder(series_dir, series_name, None)]
    else:
        chosen = every_folder(series_dir)
    reports = [lint(folder, read, version) for folder in chosen]
    problems = [problem for report in reports for problem in report.problems]
    if version is not None and not any(report.base for report in reports):
        click.echo(
            f"vllm-series: no patch has vllm {version} as its base: nothing was held against it.",
            err=True,
        )
        unheld = True
    else:
        unheld = False
    if as_json:
        click.echo(
            rendered(
                {
                    "command": "lint",
                    "series": [
                        {
                            "name": report.folder.name,
                            "patches": report.patches,
                            "hunks": report.hunks,
                            "base": report.base,
                            "problems": [
                                {"path": str(p.path), "line": p.line, "text": p.text}
                                for p in report.problems
                            ],
                        }
                        for report in reports
                    ],
                }
            )
        )
    else:
        for problem in problems:
            click.echo(str(problem))
        if any(problem.is_form for problem in problems):
            click.echo(
                "vllm-series: vllm-series refresh PATCH writes ids, line numbers, scopes and form "
                "as they must be.",
                err=True,
            )
        if not quiet:
            click.echo(
                table(
                    (
                        report.folder.name,
                        "ok" if not report.problems else counted(len(report.problems), "problem"),
                        counted(report.patches, "patch"),
                        counted(report.hunks, "hunk"),
                        f"held against vllm {report.base}" if report.base else "text alone",
                    )
                    for report in reports
                )
            )
    return 1 if problems or unheld else 0
