"""What a rebase carries, how often it is wrong, and how long it takes.

Real history is the judge: a change that upstream made is carried to a release that does not have
it, and what comes out is held against what is known without any of the tools. See README.md.
"""
