"""What XLA would run on a GPU: steps over all classes, compiled without a GPU.

    pip install -e '.[gpu]'
    python -m scripts.benchmarks.gpu
    python -m scripts.benchmarks.gpu --shapes 256x1x1000000x128 --losses list_mle

A step is a loss over all classes with its gradients, as Keras's `fit` hands it to XLA,
for `DotProductHead` by blocks and for Keras's `Dense` with its softmax, both without
biases. XLA's own compiler for GPUs, which comes with JAX (1.2 GB), compiles it for an
H200 on a CPU.

- Launches and temporary memory are XLA's. A loop whose length XLA does not know counts
  once, a condition as its longer branch.
- The time is an estimate, never measured: a kernel takes as long as its bytes, its
  products or its launch, whichever is longest. It compares forms of one step. Nothing
  is autotuned, and XLA is JAX's version, not TensorFlow's.

A row takes about a minute, nearly all of it imports and the table of classes. `--quick`
compiles one small loss.
"""

import importlib.util
import json
import math
import os
import pathlib
import re
from typing import NamedTuple

from scripts import command_line
from scripts.benchmarks import harness

LOSSES = [
    "softmax",
    "rankmax",
    "list_mle",
    "approx_ndcg",
    "pairwise_hinge",
    "sigmoid_cross_entropy",
    "sparsemax",
    "ordered_weighted",
]

# XLA's description of an H200, and what one reaches: bytes and products a second, about
# .8 and .5 of the data sheet's, and the seconds to launch a kernel.
TARGET = pathlib.Path(__file__).with_name("h200.txtpb")
BYTES = 3.8e12
PRODUCTS_OF_HALVES = 500e12
PRODUCTS = 250e12  # In TF32.
LAUNCH = 4e-6

# What starts no kernel.
FREE = {
    "after-all",
    "bitcast",
    "constant",
    "copy-done",
    "get-tuple-element",
    "parameter",
    "tuple",
}


def step_for_xla(shape, loss, policy, known_batch):
    """XLA's serialized program of a step; without a loss, of Keras's `Dense`."""
    import tensorflow as tf
    from tensorflow import keras

    from rank4class_tf import layers, losses
    from rank4class_tf._tf import sizes

    sizes.device_type = lambda: "GPU"
    keras.mixed_precision.set_global_policy(policy)
    batch, positions, classes, width = shape
    if loss is None:
        head = keras.layers.Dense(classes, use_bias=False, kernel_initializer="zeros")
        compute = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        scores = head
    else:
        head = layers.DotProductHead(layers.ClassTable(classes, use_bias=False))
        compute = losses.get(f"{loss}_loss")
        scores = head.over_classes
    head.build((None, width))

    lists = [batch, positions] if positions > 1 else [batch]
    dtype = tf.as_dtype(head.compute_dtype)
    given = [tf.TensorSpec([*lists, width], dtype), tf.TensorSpec(lists, tf.int32)]

    def as_in_fit(x):
        # XLA knows the size of the batch, but the graph that it compiles does not.
        known = [batch if known_batch else None, *x.shape[1:]]
        return tf.compat.v1.placeholder_with_default(x, known)

    @tf.function(jit_compile=True, autograph=False)
    def step(encodings, class_ids):
        encodings = as_in_fit(encodings)
        class_ids = as_in_fit(class_ids)
        with tf.GradientTape() as tape:
            tape.watch(encodings)
            value = compute(class_ids, scores(encodings))
        return value, *tape.gradient(value, [encodings, *head.trainable_variables])

    return step.experimental_get_compiler_ir(*given)(stage="hlo_serialized")


def use_assembler():
    """Puts NVIDIA's assembler, which XLA calls, on the path."""
    nvcc = importlib.util.find_spec("nvidia.cuda_nvcc")
    if nvcc is None:
        raise ModuleNotFoundError("No module named 'nvidia.cuda_nvcc'")
    folder = pathlib.Path(nvcc.submodule_search_locations[0], "bin")
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def stable_hlo(program):
    """A serialized program of XLA as the text that JAX reads."""
    from jax._src.lib import xla_client

    computation = xla_client.XlaComputation(program)
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    # StableHLO has no copies, which TensorFlow adds to what a function returns.
    copy = r"mhlo\.copy (%\w+) : (\S+)"
    return re.sub(copy, r"stablehlo.reshape \1 : (\2) -> \2", text)


def compiled_for_gpu(program):
    """XLA's optimized program, as its protobuf, and the MB of temporary memory."""
    use_assembler()
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"

    import jax_cuda12_plugin  # noqa: F401
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies
    from tensorflow.compiler.xla.service import hlo_pb2

    topology = topologies.get_topology_desc(
        platform="cuda", topology="1x1x1", target_config=TARGET.read_text()
    )
    (device,) = topology.devices
    text = stable_hlo(program)
    with mlir.make_ir_context():
        executable = device.client.compile(
            ir.Module.parse(text),
            _jax.DeviceList((device,)),
            xla_client.CompileOptions(),
        )
    (module,) = executable.hlo_modules()
    serialized = module.as_serialized_hlo_module_proto()
    memory = executable.get_compiled_memory_stats().temp_size_in_bytes / 1e6
    return hlo_pb2.HloModuleProto.FromString(serialized), memory


class Cost(NamedTuple):
    """How many kernels are launched, and the seconds that they take."""

    launches: int
    seconds: float


class Program:
    """An optimized program: its launches, and an estimate of its time."""

    def __init__(self, module):
        from tensorflow.compiler.xla import xla_data_pb2

        self._type_name = xla_data_pb2.PrimitiveType.Name
        self._entry = module.entry_computation_id
        self._computations = {
            computation.id: {x.id: x for x in computation.instructions}
            for computation in module.computations
        }

    def cost(self, computation=None):
        """The cost of a computation, of all by default."""
        operations = self._computations[computation or self._entry]
        costs = [self._cost_of_one(x, operations) for x in operations.values()]
        return Cost(
            launches=sum(cost.launches for cost in costs),
            seconds=sum(cost.seconds for cost in costs),
        )

    def _cost_of_one(self, operation, operations):
        called = operation.called_computation_ids
        if operation.opcode == "while":
            body = self.cost(called[0])
            times = self._trips(operation)
            return Cost(times * body.launches, times * body.seconds)
        if operation.opcode == "conditional":
            return max(map(self.cost, called), key=lambda cost: cost.seconds)
        if operation.opcode == "call":
            return self.cost(called[0])
        if operation.opcode in FREE:
            return Cost(0, 0.0)
        seconds = max(
            self._moved(operation, operations) / BYTES,
            self._seconds_of_products(operation, operations),
            LAUNCH,
        )
        return Cost(1, seconds)

    def _trips(self, loop):
        known = json.loads(loop.backend_config or "{}").get("known_trip_count")
        return int(known["n"]) if known else 1

    def _inside(self, operation):
        """The operations of a kernel, by their ids; none if it is one operation."""
        if operation.opcode != "fusion":
            return {}
        return self._computations[operation.called_computation_ids[0]]

    def _bytes(self, shape):
        name = self._type_name(shape.element_type)
        if name == "TUPLE":
            return sum(map(self._bytes, shape.tuple_shapes))
        bits = int(re.sub(r"\D", "", name.partition("E")[0]) or 8)
        return math.prod(shape.dimensions) * bits // 8

    def _moved(self, operation, operations):
        """The bytes that a kernel reads and writes: of a table, only rows it uses."""
        written = self._bytes(operation.shape)
        read = 0
        inside = self._inside(operation)
        if not inside:
            inside = {**operations, operation.id: operation}
            sources = [inside[x] for x in operation.operand_ids]
            readers = [operation]
        else:
            sources = [x for x in inside.values() if x.opcode == "parameter"]
            readers = list(inside.values())
        for source in sources:
            users = [x for x in readers if source.id in x.operand_ids]
            firsts = [x for x in users if x.operand_ids[0] == source.id]
            kinds = {x.opcode for x in users} if len(firsts) == len(users) else set()
            if kinds and kinds <= {"gather", "dynamic-slice", "slice"}:
                read += sum(self._bytes(x.shape) for x in users)
            elif kinds == {"dynamic-update-slice"}:
                written = self._bytes(inside[users[0].operand_ids[1]].shape)
            elif kinds == {"scatter"}:
                written = self._bytes(inside[users[0].operand_ids[2]].shape)
            else:
                read += self._bytes(source.shape)
        return read + written

    def _seconds_of_products(self, operation, operations):
        if inside := self._inside(operation):
            return sum(self._seconds_of_products(x, inside) for x in inside.values())
        if operation.opcode == "dot":
            contracted = operation.dot_dimension_numbers.lhs_contracting_dimensions
        elif operation.custom_call_target.startswith("__cublas$"):
            config = json.loads(operation.backend_config)["gemm_backend_config"]
            contracted = config["dot_dimension_numbers"]["lhs_contracting_dimensions"]
        else:
            return 0.0
        left = operations[operation.operand_ids[0]].shape
        result = operation.shape.tuple_shapes or [operation.shape]
        number = math.prod(result[0].dimensions)
        number *= math.prod(left.dimensions[int(axis)] for axis in contracted)
        is_half = self._type_name(left.element_type) in ("BF16", "F16")
        return 2 * number / (PRODUCTS_OF_HALVES if is_half else PRODUCTS)


def measure(**settings):
    """Launches, MB of temporary memory and estimated seconds of a step."""
    module, memory = compiled_for_gpu(step_for_xla(**settings))
    return Program(module).cost()._asdict() | {"MB": memory}


def parser():
    """The command line."""
    quick = {"shapes": [(16, 1, 4096, 32)], "losses": ["softmax"]}
    result = harness.parser(
        __spec__, __doc__, quick, None, time_limit=600.0, memory_limit=24.0
    )
    shapes = [
        (16, 2048, 256_000, 1024),
        (256, 1, 1_000_000, 128),
        (16, 256, 50_000, 128),
    ]
    harness.add_shapes(result, "batch x positions x classes x width", shapes)
    result.add_names("--losses", LOSSES, "rows beside `Dense`")
    policies = ("mixed_bfloat16", "mixed_float16", "float32")
    add = result.add_argument
    add("--policy", choices=policies, default=policies[0], help="Keras's")
    known = "the graph knows the size of the batch, as with `drop_remainder=True`"
    add("--known-batch", action="store_true", help=known)
    return result


def measured(args):
    """Yields a table for each shape."""
    options = command_line.chosen(args, "policy", "known_batch", "memory_limit")
    for shape in args.shapes:
        rows = []
        for loss in (None, *args.losses):
            settings = {"shape": shape, "loss": loss, **options}
            found = harness.in_process(
                __spec__.name, settings, time_limit=args.time_limit
            )
            rows.append(
                [
                    f"{loss}, by blocks" if loss else "`Dense` and softmax",
                    f"{found['launches']:,}" if "launches" in found else found["error"],
                    harness.number(found.get("MB"), digits=0),
                    harness.number(found.get("seconds"), 1e3),
                ]
            )
        batch, positions, classes, width = shape
        title = f"{batch} × {positions:,} positions, {classes:,} classes, d = {width:,}"
        head = ["step", "launches", "MB", "ms, estimated"]
        yield harness.Table(f"{title}, {args.policy}", head, rows, 3)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
