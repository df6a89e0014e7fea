"""The output of a stage as a tensor, before its values are here."""

import threading

import torch
from torch.utils._pytree import tree_map

from ._epipe import ServerLost


class Arrival:
    """The values of one micro-batch's output: fetched once, whoever asks first."""

    def __init__(self, remote, number, shapes, kind, device, on_their_way):
        self.shape, self.device = shapes[kind], device
        self._remote, self._number, self._shapes, self._kind, self._on_their_way = remote, number, shapes, kind, on_their_way
        self._lock = threading.Lock()  # guards _values and _error
        self._values = self._error = None
        on_their_way[number] = self

    def values(self):
        """Waits for them. Raises ServerFailed, ServerLost, RolledBack, and RuntimeError if the step has ended without them."""
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._values is None:
                try:
                    self._values = self._fetch()
                except ServerLost:
                    raise  # a later use tries again
                except Exception as error:
                    self._error = error
                    raise
                finally:
                    self._on_their_way.pop(self._number, None)
        return self._values

    def _fetch(self):
        with torch.inference_mode(False):  # whoever looks first, the values are for training as well
            values = self._remote.output(self._number).to(self.device).contiguous()
        if tuple(values.shape) != self.shape:
            self._shapes[self._kind] = None
            raise RuntimeError(f"expected an output of shape {list(self.shape)}, as for an earlier input of the same shape, got "
                               f"{list(values.shape)}; stage(x) waits from now on for inputs of this shape")
        return values


class AsyncOutput(torch.Tensor):
    """The output of a `RemoteStage` that may still be on its way: a tensor that waits when its values are first used.

        >>> y = stage(x)              # does not wait
        >>> y.shape                   # nor does this, and nor do dtype, device, requires_grad, grad_fn
        torch.Size([8, 16])
        >>> loss = y.square().mean()  # waits; the results of operators are ordinary tensors

    Operators, modules, autograd, printing, pickling and NumPy take it for the tensor it becomes. What went wrong on the server is raised
    where the values are first used. Its own shape is fixed: y.unsqueeze(0) is allowed, y.unsqueeze_(0) is not.
    """

    @staticmethod
    def __new__(cls, arrival):
        y = torch.Tensor._make_wrapper_subclass(cls, arrival.shape, dtype=torch.float32, device=arrival.device)
        y._arrival = arrival
        return y

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        # Below autograd, which has seen a tensor of this shape; the operator gets the values.
        if func._schema.name.endswith("_") and isinstance(args[0], cls):
            return _in_place(func, args, kwargs or {})
        return func(*tree_map(_values, args), **tree_map(_values, kwargs or {}))

    def wait(self):
        """Waits for the values and returns them as an ordinary tensor, with the same place in autograd's graph.

            >>> type(stage(x)), type(stage(x).wait())
            (<class 'epipe.async_output.AsyncOutput'>, <class 'torch.Tensor'>)

        Only C++ extensions that read a tensor's memory by themselves, without LibTorch's operators, need it.
        """
        return self.view_as(self)


def _values(x):
    return x._arrival.values() if isinstance(x, AsyncOutput) else x


def _in_place(func, args, kwargs):
    changed = _values(args[0]).detach()  # shares the values, but not the shape
    before = changed.shape, changed.stride()
    func(changed, *tree_map(_values, args[1:]), **tree_map(_values, kwargs))
    if (changed.shape, changed.stride()) != before:
        raise RuntimeError(f"{func} would change the shape of a stage's output in place; use the form without the underscore, or y.wait()")
    return args[0]


def _of_the_values(name):
    def method(self, *args, **kwargs):
        return getattr(self.wait(), name)(*args, **kwargs)

    method.__name__ = name
    return method


# What reads memory, or the object itself, without an operator.
for _name in ("__array__", "__deepcopy__", "__dlpack__", "__format__", "__reduce_ex__", "__repr__", "_typed_storage", "apply_", "data_ptr",
              "map2_", "map_", "numpy", "share_memory_", "storage", "tolist", "untyped_storage"):
    if hasattr(torch.Tensor, _name):
        setattr(AsyncOutput, _name, _of_the_values(_name))
