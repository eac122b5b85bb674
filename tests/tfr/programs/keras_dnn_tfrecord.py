"""A pipeline in the style of TF-Ranking's example of this name, as written for it."""

import tensorflow as tf
import tensorflow_ranking as tfr

context_spec: dict = {}
example_spec = {
    f"custom_features_{i + 1}": tf.io.FixedLenFeature(
        [1], tf.float32, default_value=0.0
    )
    for i in range(5)
}
label_spec = ("utility", tf.io.FixedLenFeature([1], tf.float32, default_value=-1.0))

model_builder = tfr.keras.model.ModelBuilder(
    input_creator=tfr.keras.model.FeatureSpecInputCreator(context_spec, example_spec),
    preprocessor=tfr.keras.model.PreprocessorWithSpec(),
    scorer=tfr.keras.model.DNNScorer(hidden_layer_dims=[16, 8], output_units=1),
    mask_feature_name="example_list_mask",
)
dataset_builder = tfr.keras.pipeline.SimpleDatasetBuilder(
    context_spec,
    example_spec,
    "example_list_mask",
    label_spec,
    tfr.keras.pipeline.DatasetHparams(
        train_input_pattern="train*",
        valid_input_pattern="valid*",
        train_batch_size=16,
        valid_batch_size=16,
    ),
)
hparams = tfr.keras.pipeline.PipelineHparams(
    model_dir="model",
    num_epochs=1,
    steps_per_epoch=4,
    validation_steps=2,
    loss="approx_ndcg_loss",
    optimizer="adagrad",
    learning_rate=0.05,
    steps_per_execution=2,
    export_best_model=True,
)
pipeline = tfr.keras.pipeline.SimplePipeline(model_builder, dataset_builder, hparams)
pipeline.train_and_validate()
