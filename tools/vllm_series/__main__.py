"""`python -m vllm_series`, the same as the command `vllm-series`."""

from vllm_series.cli import main

main()
