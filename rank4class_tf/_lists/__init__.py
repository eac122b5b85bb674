"""Lists of scored items with their positives, between what users give and what formulas read.

`labels` is the grammar: which forms of labels are accepted, and what is wrong with one that is not.
`lists` is the type that formulas read; `dense`, and `blocked` with `classes`, are its two kinds.
`positives` is policy: how much work few and many positives take.
"""
