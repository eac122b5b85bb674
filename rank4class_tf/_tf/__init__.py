"""Plumbing of TensorFlow: what its own operations do slowly, wrongly or not at all.

Every trick lives here, one file for each kind, and a comment there says what it gained (CPU, two
cores, 64 x 1,000 unless said otherwise). A trick that gains less than a tenth goes.

- `gather`: items by their places, with scattered gradients; what repeats.
- `search`: the highest of a list, or of a million by blocks; places in sorted lists; running sums.
- `gradients`: values whose gradients come along, for choices made while running; NaN kept.
- `loops`: blocks one after the other, and pieces of a batch that the gradient computes again.
- `exact`: differences that graph rewriting would spoil; sums of many numbers beyond float32.
- `exchange`: what replicas of a strategy give each other, in code that all of them run alike.
- `raising`: errors of values from graphs, where XLA does not compile them; of sizes, from XLA too.
- `seeds`: a new seed from a seed and a number.
"""
