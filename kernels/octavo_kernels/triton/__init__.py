"""Kernels in Triton for GPUs; in Triton's interpreter, for tests, on CPUs too."""

from octavo_kernels.ops import Ops


def build(device: str, invariant: bool) -> Ops:
    """The Triton kernels on a device: "cuda", "cuda:1", or "cpu" where they are interpreted.

    Raises KernelsUnavailable if the GPU is too old.
    """
    if device == "cpu":
        from octavo_kernels.triton.door import open_door
        from octavo_kernels.triton.paper import Paper

        return open_door(Paper(), invariant=invariant)

    from octavo_kernels.triton.cuda import Cuda
    from octavo_kernels.triton.door import open_door

    return open_door(Cuda(device), invariant=invariant)
