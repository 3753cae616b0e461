"""The answers of `check` for people and for programs, one module a form."""
