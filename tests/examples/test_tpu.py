"""The example for TPUs learns on one CPU, where XLA compiles its steps."""

from examples import tpu as example


def test_learns():
    options = ["--classes", "20", "--examples", "512", "--batch-size", "64", "--epochs", "5"]
    results = example.main(options)
    # Chance is 0.05.
    assert results["classifier"]["top_k_accuracy_at_1"] > 0.5
    assert results["classifier of many"]["precision_at_1"] > 0.5
