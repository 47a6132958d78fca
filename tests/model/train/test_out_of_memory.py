"""What counts as too little memory, whoever says so."""

import pytest
import torch

from scalevec.model.train.devices import is_out_of_memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
)
def test_too_little_memory_is_known_whoever_says_so(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("CUDA error: out of memory"),
    ],
)
def test_other_errors_are_not_taken_for_it(error):
    assert not is_out_of_memory(error)
