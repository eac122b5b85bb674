"""Plumbing of TensorFlow: what its own operations do slowly, wrongly or not at all.

Each kind of work has a file, and a comment there says what a way of ours gained (CPU,
two cores, 64 x 1,000 unless said otherwise). One that gains less than a tenth is
removed.

- `gather`: items by position, with scattered gradients; repeated values.
- `search`: the highest of a list, or of a million by blocks; ranks in sorted lists;
  running sums.
- `gradients`: values that carry their gradients, for choices made at run time; NaN
  kept.
- `loops`: blocks one after the other, and pieces of a batch that the gradient
  recomputes.
- `exact`: differences that graph rewriting would spoil; sums beyond float32.
- `exchange`: tensors between the replicas of a strategy, in code that all of them run
  alike.
- `checksums`: whether weights have changed.
- `memory`: copies of what a caller's arrays share with a batch.
- `private`: names that are not public. There should be few.
- `raising`: errors for bad values, from graphs that XLA does not compile; for sizes,
  also from XLA.
- `seeds`: a new seed from a seed and a number.
- `shapes`: sizes as Python numbers where these are known.
- `sizes`: how many numbers a block or a chunk holds, by the kind of device.
"""
