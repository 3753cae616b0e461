"""How long it takes to say where a series stands, on one release and on every one.

Whole processes side by side in one run: `vllm-series check` and `apply --dry-run` beside loops of
`git apply` and `patch`, `git am` and quilt; the bytes that come over the wire for a check of every
release; and the memory of all processes together.
"""
