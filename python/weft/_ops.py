"""Models as Python functions: the layers and ops of weft/nn.h and weft/graph.h.

    def net(x, y):
        hidden = weft.relu(weft.linear(x, "net1", 10))
        return weft.cross_entropy(weft.linear(hidden, "net2", 5), y)

    trainer = weft.Trainer(net, "batch=20,lr=0.01", inputs=dict(x=pixels, y=labels))

The library calls the function with symbolic tensors, once for each size of a microbatch. Dim 0 of every
tensor is the microbatch. Layers declare parameters under the names they are given, as in PyTorch.
"""
import contextlib
import ctypes as C
from typing import Iterator, List, Optional, Sequence

from ._graph import CTensor, Tensor, current, integer, of_tensor, op
from ._library import P, S, Shape, function, text

__all__ = [
    "add", "avg_pool", "batch_norm", "binary_cross_entropy", "cached_attention", "concat",
    "conv2d", "conv2d_with", "conv_transpose2d_with", "cross_entropy", "cut", "dropout",
    "embedding", "embedding_with", "gather", "gelu", "gelu_tanh", "global_avg_pool",
    "is_training", "layer_norm", "layer_norm_with", "leaky_relu", "linear", "linear_in_out",
    "linear_in_out_with", "linear_with", "log_softmax", "loss", "loss_by", "lstm", "matmul",
    "max_pool", "mean", "mse", "mul", "next_stage", "output", "parameter", "relu", "reshape",
    "rms_norm", "rms_norm_with", "rotary", "rotary_scaled", "scale", "scope", "self_attention", "sigmoid", "silu",
    "slice", "smooth_l1",
    "smoothed_cross_entropy", "softmax", "split", "sum", "tanh", "transpose",
]


class _Init(C.Structure):
    _fields_ = [("kind", C.c_int), ("value", C.c_float)]


_parameter = function("wf_parameter", P, S, Shape, _Init, result=CTensor)
_scope = function("wf_scope", P, S, S, result=None)
_scope_end = function("wf_scope_end", P, result=None)
_is_training = function("wf_graph_is_training", P)
_loss = function("wf_loss", CTensor, result=None)
_loss_by = function("wf_loss_by", CTensor, CTensor, result=None)
_concat = function("wf_concat", C.POINTER(CTensor), C.c_int, C.c_int, result=CTensor)
_split = function("wf_split", CTensor, C.c_int, C.c_int, C.POINTER(CTensor), result=None)


# ---- declarations ----

def parameter(name: str, shape: Sequence[int], init: str = "constant", value: float = 0.0) -> Tensor:
    """A trained parameter. init: "constant" is `value`, "uniform" within +-value, "normal" with that
    standard deviation. The same name and shape again is the same parameter (a tied weight)."""
    kinds = "constant", "uniform", "normal"
    if init not in kinds:
        raise ValueError(f"init is {init!r}; it is one of {', '.join(kinds)}")
    graph = current(is_needed=True)
    return graph.tensor(_parameter(graph.at, text(name), Shape.of(shape), _Init(kinds.index(init), value)))


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Prefixes the names inside: with weft.scope("layer1"): ..."""
    graph = current(is_needed=True)
    _scope(graph.at, b"%s", text(name))
    try:
        yield
    finally:
        _scope_end(graph.at)


def is_training() -> bool:
    """Whether the graph is for steps; False: it is for eval and forward."""
    return bool(_is_training(current(is_needed=True).at))


@op("ts")
def cut(x: Tensor, name: str) -> Tensor:
    """x. The unit `name` begins: a place where a plan may cut the model."""


@op("ts")
def next_stage(x: Tensor, name: str) -> Tensor:
    """x. The next pipeline stage begins: .to("cuda:1") elsewhere."""


@op("ts", gives=False)
def output(x: Tensor, name: str) -> None:
    """Names a value for Trainer.forward."""


def loss(loss: Tensor) -> None:
    """Trains on the mean of `loss` [rows]; the loss that a model function returns needs no call."""
    _loss(of_tensor(loss, "loss"))
    current().has_loss = True


def loss_by(loss: Tensor, labels: Tensor) -> None:
    """Trains on a sum of cross entropies with different labels: `labels` decide which rows count. The
    model function returns None then, or a tuple of None and outputs."""
    _loss_by(of_tensor(loss, "loss_by: loss"), of_tensor(labels, "loss_by: labels"))
    current().has_loss = True


# ---- layers: they declare parameters, with PyTorch's names and initial values ----

@op("tsi")
def linear(x: Tensor, name: str, n_out: int) -> Tensor:
    """nn.Linear"""


@op("tsif")
def linear_in_out(x: Tensor, name: str, n_out: int, std: float) -> Tensor:
    """GPT-2's Conv1D: the weight is [n_in, n_out], normal(0, std), the bias zero."""


@op("tsiic")
def conv2d(x: Tensor, name: str, n_out: int, kernel: int, stride: int = 1, pad: int = 0, groups: int = 1,
           dilation: int = 1) -> Tensor:
    """nn.Conv2d without bias, of x [n, c, h, w]"""


@op("ts")
def batch_norm(x: Tensor, name: str) -> Tensor:
    """nn.BatchNorm2d or 1d, of x [n, c, h, w] or [n, c]"""


@op("ts")
def layer_norm(x: Tensor, name: str) -> Tensor:
    """nn.LayerNorm over the last dim"""


@op("tsf")
def rms_norm(x: Tensor, name: str, eps: float = 1e-5) -> Tensor:
    """nn.RMSNorm over the last dim"""


@op("tsiif")
def embedding(ids: Tensor, name: str, n_rows: int, n: int, std: float) -> Tensor:
    """nn.Embedding with a weight [n_rows, n], normal(0, std)"""


@op("tsdi")
def lstm(x: Tensor, name: str, layer: int, hidden: int) -> Tensor:
    """One layer of nn.LSTM, counted from 0: x [n, tokens, in] -> [n, tokens, hidden]. It goes on from
    the batch before: Trainer.reset_hidden."""


# ---- ops; x is [..., n] unless said ----

@op("tt")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """[.., m, k] @ [.., k, n], with equal batch dims"""


@op("tto")
def linear_with(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """F.linear: weight [out, in], bias [out]"""


@op("tto")
def linear_in_out_with(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """x @ weight + bias, with a weight [in, out]"""


@op("ttoc")
def conv2d_with(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: int = 1, pad: int = 0,
                groups: int = 1, dilation: int = 1) -> Tensor:
    """F.conv2d: x [n, c, h, w], weight [out, c / groups, kh, kw]"""


@op("ttc")
def conv_transpose2d_with(x: Tensor, weight: Tensor, stride: int = 1, pad: int = 0, groups: int = 1,
                          dilation: int = 1) -> Tensor:
    """F.conv_transpose2d: weight [in, out / groups, k, k]"""


@op("tttf")
def layer_norm_with(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """F.layer_norm over the last dim; scale and shift [n]"""


@op("ttf")
def rms_norm_with(x: Tensor, scale: Tensor, eps: float = 1e-5) -> Tensor:
    """F.rms_norm over the last dim; scale [n]"""


@op("t")
def relu(x: Tensor) -> Tensor:
    """F.relu"""


@op("tf")
def leaky_relu(x: Tensor, slope: float) -> Tensor:
    """F.leaky_relu; 0 <= slope < 1"""


@op("t")
def gelu(x: Tensor) -> Tensor:
    """F.gelu"""


@op("t")
def silu(x: Tensor) -> Tensor:
    """F.silu"""


@op("t")
def gelu_tanh(x: Tensor) -> Tensor:
    """F.gelu(approximate="tanh"), as in GPT-2"""


@op("t")
def tanh(x: Tensor) -> Tensor:
    """torch.tanh"""


@op("t")
def sigmoid(x: Tensor) -> Tensor:
    """torch.sigmoid"""


@op("tt")
def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b; b's dims equal a's last dims"""


@op("tt")
def mul(a: Tensor, b: Tensor) -> Tensor:
    """a * b, of equal shapes"""


@op("tf")
def scale(x: Tensor, factor: float) -> Tensor:
    """factor * x"""


@op("t")
def softmax(x: Tensor) -> Tensor:
    """F.softmax over the last dim"""


@op("t")
def log_softmax(x: Tensor) -> Tensor:
    """F.log_softmax over the last dim"""


@op("tt")
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy(reduction="none") with labels [...]; negative labels are ignored: [rows]"""


@op("ttg")
def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The same with label_smoothing, in training"""


@op("tt")
def mse(prediction: Tensor, target: Tensor) -> Tensor:
    """F.mse_loss, the mean over each sample: [rows]"""


@op("tt")
def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """F.binary_cross_entropy_with_logits, the mean over each sample: [samples]"""


@op("tt")
def smooth_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """F.smooth_l1_loss, the mean over each sample: [samples]"""


@op("tt")
def gather(x: Tensor, index: Tensor) -> Tensor:
    """Of each row the element `index` [...]; 0 where the index is out of range"""


@op("tiii")
def max_pool(x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
    """F.max_pool2d"""


@op("tiii")
def avg_pool(x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
    """F.avg_pool2d"""


@op("t")
def global_avg_pool(x: Tensor) -> Tensor:
    """[n, c, h, w] -> [n, c]"""


@op("tt")
def embedding_with(ids: Tensor, table: Tensor) -> Tensor:
    """F.embedding: ids [...], table [rows, n] -> [..., n]"""


@op("tsf")
def dropout(x: Tensor, name: str, p: float) -> Tensor:
    """F.dropout in training; the mask is a function of the seed, the name, the step and the sample"""


@op("th")
def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """torch.reshape; one dim may be -1"""


@op("tdd")
def transpose(x: Tensor, dim_a: int, dim_b: int) -> Tensor:
    """torch.transpose"""


@op("tdii")
def slice(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """torch.narrow"""


@op("td")
def sum(x: Tensor, dim: int) -> Tensor:
    """torch.sum over one dim, which is removed"""


@op("td")
def mean(x: Tensor, dim: int) -> Tensor:
    """torch.mean over one dim, which is removed"""


@op("tttoiif")
def rotary(q: Tensor, k: Tensor, v: Tensor, positions: Optional[Tensor], n_heads: int, n_keys: int,
           theta: float) -> Tensor:
    """Rotary positions of grouped heads, for self_attention: q [n, t, n_heads d], k and v [n, t, n_keys d]"""


@op("tttoiifgggi")
def rotary_scaled(q: Tensor, k: Tensor, v: Tensor, positions: Optional[Tensor], n_heads: int, n_keys: int,
                  theta: float, factor: float, low: float, high: float, n_positions: int) -> Tensor:
    """rotary with Llama 3's scaling to longer texts"""


@op("tid")
def self_attention(qkv: Tensor, n_heads: int, causal: int = False) -> Tensor:
    """F.scaled_dot_product_attention of queries, keys and values side by side: [n, t, 3 c] -> [n, t, c]. With
    causal=w > 1 a token attends to the last w only."""


@op("ttsii")
def cached_attention(qkv: Tensor, position: Tensor, name: str, n_heads: int, n_positions: int) -> Tensor:
    """Causal attention of one text token by token, with a cache of keys and values; for eval and forward"""


def concat(parts: Sequence[Tensor], dim: int) -> Tensor:
    """torch.cat"""
    given = (CTensor * len(parts))(*(of_tensor(part, "concat: a part") for part in parts))
    return current(is_needed=True).tensor(_concat(given, len(parts), integer(C.c_int, dim, "concat: dim")))


def split(x: Tensor, dim: int, n_parts: int) -> List[Tensor]:
    """torch.chunk into equal parts"""
    parts = (CTensor * integer(C.c_int, n_parts, "split: n_parts"))()
    _split(of_tensor(x, "split: x"), integer(C.c_int, dim, "split: dim"), len(parts), parts)
    return [current().tensor(CTensor(part.graph, part.id)) for part in parts]
