"""`try_out`: does a loss or a head help on the user's own data?

`run` screens the candidates and confirms the best: `data` are read and split,
`candidates` are trained and measured, `report` compares them and shows the result.
"""

from rank4class_tf.trials.report import Trial, TryOut
from rank4class_tf.trials.run import try_out

__all__ = ["try_out", "TryOut", "Trial"]
