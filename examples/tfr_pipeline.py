"""Trains TF-Ranking pipelines on classification, with its losses and this package's.

    TF_USE_LEGACY_KERAS=1 python examples/tfr_pipeline.py --out out/tfr

writes scikit-learn's digits as ExampleListWithContext files (an image is a context, the
ten digits are its examples), trains the same pipeline with each loss, exports the best
model of each by NDCG@5 on the validation images, and prints Top-1 accuracy and NDCG@5
of that model on the test images. The exported models are in
<out>/<loss>/export/best_model_by_metric.

It prints (a little else in each run, since TF-Ranking reads files in random order):

    | loss | Top-1 | NDCG@5 | seconds |
    |---|---|---|---|
    | rankmax_loss | 0.9583 | 0.9801 | 37 |
    ...
    | tfr.approx_ndcg_loss | 0.9472 | 0.9741 | 41 |
    ...
"""

import argparse
import pathlib
import time
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, metrics, tfr
from rank4class_tf.data import elwc

LOSSES = (
    "rankmax_loss",
    "approx_ndcg_loss",
    "tfr.approx_ndcg_loss",
    "tfr.softmax_loss",
)
METRICS = ("top_k_accuracy_at_1", "ndcg_at_5")
WIDTH = 64

CONTEXT_SPEC = {elwc.FEATURES: tf.io.FixedLenFeature([64], tf.float32)}
EXAMPLE_SPEC = {elwc.CLASS_ID: tf.io.FixedLenFeature([1], tf.int64, default_value=0)}
LABEL_SPEC = (elwc.LABEL, tf.io.FixedLenFeature([1], tf.float32, default_value=-1.0))


def write_files(out):
    """Writes the three parts; returns the number of lists in each."""
    splits = data.digits()
    return {
        name: elwc.write(
            elwc.lists(getattr(splits, name), splits.num_classes), out / name
        )
        for name in ("train", "validation", "test")
    }


def build_pipeline(out, loss, sizes, args):
    """The pipeline: encoder, interaction, data, loss, metrics."""
    tf_ranking: Any = tfr.load()

    def encoder(features):
        hidden = keras.layers.Dense(WIDTH, "relu")(features)
        return keras.layers.Dense(WIDTH, "relu")(hidden)

    def class_encoder(class_ids):
        return keras.layers.Embedding(10, WIDTH)(class_ids)

    model_builder = tf_ranking.keras.model.ModelBuilder(
        input_creator=tf_ranking.keras.model.FeatureSpecInputCreator(
            CONTEXT_SPEC, EXAMPLE_SPEC
        ),
        preprocessor=tf_ranking.keras.model.PreprocessorWithSpec(),
        scorer=tfr.InteractionScorer(
            encoder, class_encoder, "latent_cross", units=(WIDTH,)
        ),
        mask_feature_name=elwc.MASK,
    )
    dataset_hparams = tf_ranking.keras.pipeline.DatasetHparams(
        train_input_pattern=str(out / "train-*"),
        valid_input_pattern=str(out / "validation-*"),
        train_batch_size=args.batch_size,
        valid_batch_size=args.batch_size,
        list_size=10,
    )
    dataset_builder = tfr.RankingDatasetBuilder(
        CONTEXT_SPEC, EXAMPLE_SPEC, elwc.MASK, LABEL_SPEC, dataset_hparams
    )
    hparams = tf_ranking.keras.pipeline.PipelineHparams(
        model_dir=str(out / loss),
        num_epochs=args.epochs,
        steps_per_epoch=sizes["train"] // args.batch_size,
        validation_steps=sizes["validation"] // args.batch_size,
        learning_rate=args.learning_rate,
        loss=loss,
        export_best_model=True,
        best_exporter_metric="ndcg_at_5",
        best_exporter_metric_higher_better=True,
    )
    return tfr.RankingPipeline(model_builder, dataset_builder, hparams, metrics=METRICS)


def evaluate(export, out):
    """Test metrics of an exported model, which is called as a server would call it."""
    predict = tf.saved_model.load(export).signatures["predict_tensors"]
    spec = {**EXAMPLE_SPEC, LABEL_SPEC[0]: LABEL_SPEC[1]}
    results = [metrics.get(name) for name in METRICS]
    for batch in elwc.read(
        out / "test-*", CONTEXT_SPEC, spec, batch_size=128, list_size=10
    ):
        labels = batch.pop(elwc.LABEL)[..., 0]
        scores = predict(**batch)[tf.saved_model.PREDICT_OUTPUTS]
        for metric in results:
            metric.update_state(labels, scores)
    return [float(metric.result()) for metric in results]


def main(argv=None):
    """Trains with each loss and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--loss",
        nargs="+",
        default=list(LOSSES),
        help="names of losses, as in the pipeline",
    )
    add("--epochs", type=int, default=8, help="epochs")
    add("--batch-size", type=int, default=32, help="lists a step")
    add("--learning-rate", type=float, default=0.003, help="of the optimizer")
    add("--seed", type=int, default=0, help="of weights and batches")
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/tfr"),
        help="folder of checkpoints",
    )
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    sizes = write_files(args.out)
    if args.batch_size > (most := sizes["validation"]):
        parser.error(
            f"--batch-size must be at most {most}, the lists of the validation part, "
            f"not {args.batch_size}"
        )
    try:
        pipelines = {
            loss: build_pipeline(args.out, loss, sizes, args) for loss in args.loss
        }
    except ValueError as error:
        parser.error(f"--loss: {error}")
    print("| loss | Top-1 | NDCG@5 | seconds |\n|---|---|---|---|")
    for loss, pipeline in pipelines.items():
        start = time.perf_counter()
        keras.utils.set_random_seed(args.seed)
        pipeline.train_and_validate()
        export = str(args.out / loss / "export" / "best_model_by_metric")
        top_1, ndcg = evaluate(export, args.out)
        seconds = time.perf_counter() - start
        print(f"| {loss} | {top_1:.4f} | {ndcg:.4f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (
        ImportError
    ) as error:  # An extra that is not installed: the message says which.
        raise SystemExit(error) from None
