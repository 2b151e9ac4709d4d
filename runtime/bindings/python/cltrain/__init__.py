"""Trains neural networks on every device that has an OpenCL driver. See docs/python.md."""
from . import errors, layers
from ._api import VERSION as __version__
from .arrays import Buffer
from .data import Dataset
from .devices import Devices, available, set_cache
from .errors import *  # noqa: F401,F403
from .graph import Graph, Value
from .history import Callback, History, Progress
from .layers import Sequential
from .log import set_compile, set_log
from .metrics import Metrics
from .models import load_model, mlp, models
from .policy import Policy
from .predictor import Predictor
from .reservoir import Reservoir
from .steps import Step
from .store import Store
from .tensorboard import TensorBoard
from .trainer import Trainer
from .world import World

__all__ = ["Buffer", "Callback", "Dataset", "Devices", "Graph", "History", "Metrics", "Policy", "Predictor", "Progress", "Reservoir",
           "Sequential", "Step", "Store", "TensorBoard", "Trainer", "Value", "World", "available", "errors", "layers",
           "load_model", "mlp", "models", "set_cache", "set_compile", "set_log", "__version__"] + errors.__all__
