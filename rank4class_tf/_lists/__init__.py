"""Lists of scored items and positives, between what users give and what formulas read.

`labels` is the grammar: which forms of labels are accepted, and what is wrong with any
other. `lists` is the type that formulas read; `dense`, and `blocked` with `classes`,
are its two kinds, and `block_rows` says what a pass over blocks sums for. `positives`
is policy: how to sum over the items for few and for many positives.
"""
