"""Plumbing of TensorFlow: what its own operations do slowly, wrongly or not at all.

Every trick lives here, one file for each kind, with what it gained when it was measured (CPU, two
cores, 64 x 1,000 unless said otherwise). A trick that gains less than a tenth goes.

- `gather`: gather by list with a scattered gradient, half the operations; scatter by segments, a
  fifth of the time for many places; `where` without broadcasting, half the time; repeated numbers
  told apart by sorting, since `tf.unique` has no static shape.
- `search`: the k largest by the maxima of blocks, where XLA's `top_k` on a CPU sorts every list in
  full; the k largest of a million by blocks, a third of the time; places in sorted lists, where
  XLA's `searchsorted` compares all with all; running maxima and sums that lose no digits.
- `gradients`: values whose gradients come along, for choices made while running: XLA compiles them
  with an unknown batch size, which it does not for the gradient of `tf.cond`. A NaN that sorting or
  searching would hide.
- `loops`: blocks one after the other, and pieces of a batch that the gradient computes again: the
  memory of one of them.
- `exact`: differences that graph rewriting would spoil: `(a - b) + c` becomes `a + (c - b)`, which
  loses c where b is large; sums of many numbers in integers and parts of float32.
- `exchange`: what replicas of a strategy give each other, in code that all of them run alike.
- `raising`: errors of values from graphs, where XLA does not compile them; of sizes, from XLA too.
- `math`: the namespace of elementwise mathematics that formulas read.
"""
