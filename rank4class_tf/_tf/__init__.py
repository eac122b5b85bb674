"""Plumbing of TensorFlow: what its own operations do slowly, wrongly or not at all.

Every trick lives here, with what it bought when it was measured (CPU, two cores, 64 x 1,000 unless
said otherwise). One that no longer pays for itself goes.

- `where`: `tf.where` without broadcasting and with a gradient of one operation; half the time.
- `gather`: gather by list with a scattered gradient, half the operations; scatter by segments, a
  fifth of the time for many places.
- `gradients`: values whose gradients come along, for choices made while running. XLA compiles them
  with an unknown batch size, which it does not for the gradient of `tf.cond`.
- `exact`: differences that graph rewriting would spoil: `(a - b) + c` becomes `a + (c - b)`, which
  loses c where b is large; sums of many numbers in integers and parts of float32.
- `scan`: running maxima and sums of rows, which lose no digits to what is far above them.
- `repeats`: tells repeated numbers apart by sorting, since `tf.unique` has no static shape.
- `replicas`: rows of all replicas of a strategy, and where a replica's begin.
- `nan`: keeps a NaN that sorting or searching would hide.
- `search`: places in sorted lists; XLA's `searchsorted` compares all with all.
- `top`: the k largest by the maxima of blocks; XLA's `top_k` on a CPU sorts every list in full.
- `ties`: first and last rank of tied items.
- `raising`: errors of values from graphs, where XLA does not compile them; of sizes, from XLA too.
- `dtypes`: Python numbers as tensors of a dtype, not by way of float32.
"""
