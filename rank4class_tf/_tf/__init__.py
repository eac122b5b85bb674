"""Plumbing of TensorFlow: what its own operations do slowly, wrongly or not at all.

Every trick lives here, with what it bought when it was measured (CPU, two cores, 64 x 1,000 unless
said otherwise). One that no longer pays for itself goes.

| module | what it is for | what it bought |
|---|---|---|
| `where` | `tf.where` without broadcasting and with a gradient of one operation | half the time of the operation |
| `gather` | gather by list with a scattered gradient; scatter by segments | half the operations of the gradient; a fifth of the time for many places |
| `gradients` | values whose gradients come along, for choices made while running | XLA compiles them with an unknown batch size; TensorFlow's gradient of `tf.cond` does not |
| `exact` | differences that TensorFlow's graph rewriting would spoil | correctness: `(a - b) + c` becomes `a + (c - b)`, which loses c |
| `nan` | keeps a NaN that sorting or searching would hide | correctness |
| `search` | places in sorted lists | XLA's `searchsorted` compares all with all |
| `top` | the k largest by maxima of blocks | XLA's `top_k` on a CPU sorts every list in full |
| `ties` | first and last rank of tied items | |
| `binomial` | logarithms of binomial coefficients | |
| `dtypes` | Python numbers as tensors of a dtype, not by way of float32 | correctness in float64 |
"""
