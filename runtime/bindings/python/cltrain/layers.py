"""Layers to be put together by `Sequential`: each operator and layer of a graph, without its operand.

    from cltrain import layers as L
    L.conv2d(6, 5, padding=2), L.relu(), L.max_pool2d(), L.linear(10, name="fc")

Names and arguments are those of the methods of `Graph`.
"""
from .errors import failure
from .graph import Graph, Value, operator_named

LOSSES = ("cross_entropy", "mse", "huber", "smooth_l1", "bce_with_logits", "kl_div")


class Layer:
    """A layer that waits for its operand."""

    def __init__(self, op, arguments, keywords):
        self.op, self.arguments, self.keywords = op, arguments, keywords

    def __call__(self, graph, x, name=None):
        keywords = dict(self.keywords)
        keywords.setdefault("name", name)
        result = operator_named(self.op)(graph, x, *self.arguments, **keywords)
        return result[0] if isinstance(result, tuple) else result

    def __repr__(self):
        shown = [repr(a) for a in self.arguments] + [f"{k}={v!r}" for k, v in self.keywords.items()]
        return f"{self.op}({', '.join(shown)})"


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    method = operator_named(name)

    def layer(*arguments, **keywords):
        return Layer(name, arguments, keywords)

    layer.__name__, layer.__doc__ = name, method.__doc__
    return layer


def Sequential(*layers, input, input_dtype="f32", loss=None, names=("x", "y"), output="output",
               class_weights=None):
    """Makes a model of layers that follow each other.

    layers: of `cltrain.layers`, or functions of (graph, value). A layer without a name has its place as
    name, so parameters are named as those of torch.nn.Sequential: "0.weight", "3.bias".
    input: the shape of a sample.
    loss: cross_entropy (labels; adds the metric "accuracy"), mse, huber, smooth_l1, bce_with_logits or kl_div.
    class_weights: numbers for the classes of cross_entropy, see Graph.cross_entropy.
    names: of the inputs with samples and with targets.
    """
    graph = Graph()
    x = graph.input(names[0], input, input_dtype)
    for place, layer in enumerate(layers):
        x = layer(graph, x, str(place)) if isinstance(layer, Layer) else layer(graph, x)
        if not isinstance(x, Value):
            raise failure("invalid_argument", f"layer {place} of Sequential gave {x!r}, not a value")
    graph.output(x, output)
    if class_weights is not None and loss != "cross_entropy":
        raise failure("invalid_argument", "class_weights belong to the loss cross_entropy")
    if loss is not None:
        if loss not in LOSSES:
            raise failure("not_found", f"loss '{loss}': it must be one of {', '.join(LOSSES)}")
        shape, dtype = x.shape[1:], "f32"
        if loss == "cross_entropy":
            shape, dtype = x.shape[2:], "i32"
        target = graph.input(names[1], shape, dtype)
        weights = {} if class_weights is None else {"class_weights": class_weights}
        graph.loss("loss", getattr(graph, loss)(x, target, **weights))
        if loss == "cross_entropy":
            graph.metric("accuracy", graph.correct(x, target))
    return graph
