"""The answers of `check` and `drift` for people and for programs, one module a form."""
