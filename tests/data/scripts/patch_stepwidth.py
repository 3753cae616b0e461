"""Follow the width of each request's draft.

What a step accepts is told to a counter of ours, and the draft that the next step checks
is handed to a hook that may shorten it. Both do nothing here: this script stands for the
many that edit an installed vLLM by texts that they look for.

Note: the hook is reached under either way of scheduling.
Idempotent: yes.
"""

import ast
import os
import sysconfig
from pathlib import Path

ROOT = Path(sysconfig.get_paths()["purelib"])
PLACE = ROOT / "vllm/v1/core/sched/scheduler.py"
DONE = "_stepwidth_seen"

COUNT = """                num_rejected = num_draft_tokens - num_accepted
"""
COUNT_MORE = """                self._stepwidth_seen(request, num_accepted)
"""
DRAFT = """            request.spec_token_ids = self.structured_output_manager.validate_tokens(
                request, spec_token_ids
            )

    def update_draft_token_ids_in_output("""
DRAFT_MORE = """            request.spec_token_ids = self.structured_output_manager.validate_tokens(
                request, spec_token_ids
            )
            self._stepwidth_cut(request)

    def update_draft_token_ids_in_output("""

END = """

import os as _stepwidth_os

_STEPWIDTH = _stepwidth_os.environ.get("STEPWIDTH", "0") == "1"


def _stepwidth_seen(self, request, accepted):
    if _STEPWIDTH:
        request._stepwidth = accepted


def _stepwidth_cut(self, request):
    return


Scheduler._stepwidth_seen = _stepwidth_seen
Scheduler._stepwidth_cut = _stepwidth_cut
"""

text = PLACE.read_text()
if DONE in text:
    print("nothing to do")
    raise SystemExit(0)
for anchor, replacement, name in (
    (COUNT, COUNT + COUNT_MORE, "count"),
    (DRAFT, DRAFT_MORE, "draft"),
):
    if text.count(anchor) != 1:
        print(f"{name}: found {text.count(anchor)} times")
        raise SystemExit(3 if os.environ.get("STRICT") else 0)
    text = text.replace(anchor, replacement, 1)
text += END
ast.parse(text)
PLACE.write_text(text)
print("done")
