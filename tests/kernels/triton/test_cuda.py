"""The device that is a GPU, as far as one can tell without any."""

import pytest
import torch
from octavo_kernels.choice import KernelsUnavailable, pick
from octavo_kernels.triton.cuda import check_is_new_enough


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (6, 1)])
def test_gpus_older_than_ampere_are_refused_with_a_sentence(capability: tuple[int, int]) -> None:
    with pytest.raises(KernelsUnavailable, match=r"Tesla has compute capability \d\.\d, and these kernels need 8\.0"):
        check_is_new_enough("Tesla", capability)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (9, 0), (10, 0), (12, 0)])
def test_ampere_and_what_came_after_are_taken(capability: tuple[int, int]) -> None:
    check_is_new_enough("a GPU", capability)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_with_a_sentence() -> None:
    with pytest.raises(KernelsUnavailable, match="there is no GPU for --device cuda:1 that torch"):
        pick("cuda:1")
