"""One module a command of `vllm-series`; each has its click command under the name `command`."""
