"""An mbox for `git am`: the patches, each with the name of its file in a header of its own.

A mail says nowhere what its patch is called, and `Needs:` trailers of others speak of the name. So
it goes into `Content-Disposition` (RFC 2183), which git passes over and `import` takes out again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_series.diffs.mail import MBOX_FROM
from vllm_series.errors import RefusedError
from vllm_series.patch import Patch


def as_mbox(patches: Sequence[Patch]) -> bytes:
    """The patches as one mailbox. Raises RefusedError for one that is no mail."""
    return b"".join(_mail(patch) for patch in patches)


def _mail(patch: Patch) -> bytes:
    head, gap, body = patch.text.partition(b"\n\n")
    if not patch.headers or not MBOX_FROM.match(head) or not gap:
        raise RefusedError(
            f"{patch.name} is no mail, so git am does not take it. Bring it into its one form: "
            f"vllm-series refresh {patch.name}."
        )
    if re.fullmatch(r"[A-Za-z0-9._/-]+", patch.name):
        head += f"\nContent-Disposition: inline; filename={patch.name}".encode()
    end = b"" if body.endswith(b"\n") else b"\n"
    return head + gap + body + end
