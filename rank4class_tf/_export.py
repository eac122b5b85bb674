"""SavedModels that find the best classes, without this package."""

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.core.protobuf import saved_model_pb2

from rank4class_tf import _checks, _files, _keras
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.layers.serving import as_names, check_classes, names_at


def write_top_k(
    path: PathLike,
    model: keras.Model,
    find_best: Callable[[Any, int | Tensor], dict[str, Tensor]],
    features_spec: Any,
    num_classes: int,
    k: int | None,
    class_names: Sequence[str] | None,
    other_layers: Sequence[keras.layers.Layer] = (),
) -> None:
    """Writes a SavedModel with signatures `top_k` and `serving_default` to a folder."""
    # `find_best` maps features and k to a dict of outputs, `class_ids` among them. It
    # may read `other_layers` besides the model. `class_names` add an output.
    if not model.built:
        tf.function(model).get_concrete_function(features_spec)
    if k is None:
        k = min(10, num_classes)
    default_k = _checks.positive_int("k", k)
    names = None
    if class_names is not None:
        class_names = as_names(class_names)
        # A variable, since a constant of the graph may not be larger than 2 GB.
        names = tf.Variable([*class_names, ""], trainable=False, dtype=tf.string)
    check_classes(default_k, class_names, num_classes)
    graphs = _Graphs(find_best, features_spec, num_classes, default_k, names)
    signatures = graphs.signatures()

    # The module holds what the graphs read, but not the model: TensorFlow would trace a
    # model in it again, with dense features. Keras 3's own archive does the same.
    module = tf.Module()
    module.read = [_variables_of(signatures), _tables_of([model, *other_layers])]
    with _files.replacing_saved_model(path) as temporary:
        # A served model needs no gradients.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, temporary, signatures, options)
        _forget_gradients(os.path.join(temporary, _files.SAVED_MODEL))


@dataclasses.dataclass(frozen=True)
class _Graphs:
    """The graphs of the signatures.

    Attributes:
        find_best: as in `write_top_k`.
        features_spec: the specs of the features that `find_best` takes.
        num_classes: the largest k.
        default_k: the k of `serving_default`.
        names: `[num_classes + 1]`, the names of the classes and one for id -1, if any.
    """

    find_best: Callable[[Any, int | Tensor], dict[str, Tensor]]
    features_spec: Any
    num_classes: int
    default_k: int
    names: tf.Variable | None

    def signatures(self) -> dict[str, Any]:
        """The functions, which take the tensors of the features side by side."""
        specs = specs_of_arguments(self.features_spec)
        k_spec = tf.TensorSpec([], tf.int32, name="k")
        return {
            "top_k": tf.function(self.top_k, [specs, k_spec]),
            "serving_default": tf.function(self.serving_default, [specs]),
        }

    def top_k(self, features: list, k: Tensor) -> dict[str, Tensor]:
        rule = f"`k` must be in [1, {self.num_classes}]."
        is_right = (k >= 1) & (k <= self.num_classes)
        in_range = tf.debugging.Assert(is_right, [rule, "Received:", k])
        with tf.control_dependencies([in_range]):
            return self._outputs(features, tf.identity(k))

    def serving_default(self, features: list) -> dict[str, Tensor]:
        return self._outputs(features, self.default_k)

    def _outputs(self, arguments: list, k: int | Tensor) -> dict[str, Tensor]:
        tensors = tf.nest.flatten(arguments, expand_composites=True)
        features = tf.nest.pack_sequence_as(
            self.features_spec, tensors, expand_composites=True
        )
        result = self.find_best(tf.nest.map_structure(_in_order, features), k)
        if self.names is not None:
            result["class_names"] = names_at(self.names, result["class_ids"])
        return result


def _in_order(x: Tensor | tf.SparseTensor) -> Tensor | tf.SparseTensor:
    # A request may list the indices of a sparse tensor in any order.
    if isinstance(x, tf.SparseTensor):
        return tf.sparse.reorder(x)
    return x


def _variables_of(signatures: dict[str, Any]) -> list[tf.Variable]:
    """What the graphs of signatures read; this traces them."""
    variables: list[tf.Variable] = []
    for function in signatures.values():
        variables += function.get_concrete_function().graph.variables
    return variables


def _tables_of(roots: Sequence[keras.layers.Layer]) -> list[Any]:
    """The lookup tables of layers or models and of all layers within them."""
    lookup_table = tf.saved_model.experimental.TrackableResource
    tables: list[Any] = []
    for root in roots:
        for layer in _keras.layers_of(root):
            parts = tf.train.TrackableView(layer).descendants()
            tables += [part for part in parts if isinstance(part, lookup_table)]
    return tables


def _forget_gradients(path: str) -> None:
    """Removes the names of custom gradients, which loading would warn of."""
    with tf.io.gfile.GFile(path, "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if "_gradient_op_type" in node.attr:
                del node.attr["_gradient_op_type"]
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))


def check_integer_specs(argument: str, specs: Any, encoder: keras.Model) -> None:
    """Raises where a spec lets in ids that the encoder's symbolic inputs would cut."""
    given = _keras.symbolic_inputs(encoder)
    inputs = tf.nest.flatten(given)
    leaves = tf.nest.flatten(specs)
    is_alike = isinstance(given, dict) == isinstance(specs, dict)
    if given is None or not is_alike or len(inputs) != len(leaves):
        return  # Keras finds the inputs by their names.

    for tensor, spec in zip(inputs, leaves, strict=True):
        held = tf.as_dtype(tensor.dtype)
        if held.is_integer:
            dtype = spec.dtype
            fits = dtype.is_integer and held.min <= dtype.min and dtype.max <= held.max
            rule = (
                f"`{argument}` must have integers that fit into the {held.name} input."
            )
            _checks.require(fits, rule, dtype.name)


def specs_of_arguments(specs: Any) -> list[Any]:
    """The specs, flattened, and named so that each can be an argument beside `k`."""
    # A spec without a name takes its key in a dictionary, or else `features`,
    # `features_1` and so on. Underscores replace characters that TensorFlow cannot
    # serve in an argument's name.

    def argument_spec(spec: tf.TypeSpec, key: str) -> tf.TypeSpec | list[tf.TypeSpec]:
        name = getattr(spec, "name", None) or key
        name = re.sub("[^0-9A-Za-z_]", "_", name)
        if not name[0].isalpha() or name in ("k", "self"):
            name = f"arg_{name}"
        if isinstance(spec, tf.SparseTensorSpec):
            rank = spec.shape.rank
            return [
                tf.TensorSpec([None, rank], tf.int64, f"{name}_indices"),
                tf.TensorSpec([None], spec.dtype, f"{name}_values"),
                tf.TensorSpec([rank], tf.int64, f"{name}_dense_shape"),
            ]
        if isinstance(spec, tf.TensorSpec):
            return tf.TensorSpec(spec.shape, spec.dtype, name)
        return spec

    arguments = []
    if isinstance(specs, dict):
        for key in sorted(specs):
            leaves = tf.nest.flatten(specs[key])
            arguments += [argument_spec(leaf, str(key)) for leaf in leaves]
    else:
        for i, leaf in enumerate(tf.nest.flatten(specs)):
            key = f"features_{i}" if i else "features"
            arguments.append(argument_spec(leaf, key))
    return arguments
