"""The step of an optimizer of matrices, shared out: each rank takes some and sends them to the others."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from scalevec.model.train.optim import Together


class SharedMatrices:
    """Which matrices are this rank's, by the cost of making one orthogonal; all else every rank does.

    A matrix is stepped whole by one rank, so its bits do not depend on the size of the world. Only that rank
    has its state.
    """

    def __init__(self, optimizer: Together, rank: int, size: int) -> None:
        self._optimizer = optimizer
        matrices = [matrix for group in optimizer.of_matrices.param_groups for matrix in group["params"]]
        owners = owners_of([tuple(matrix.shape) for matrix in matrices], size)
        pairs = list(zip(matrices, owners, strict=True))
        self._by_owner = [[matrix for matrix, owner in pairs if owner == index] for index in range(size)]
        self._others = [matrix for matrix, owner in pairs if owner != rank]

    @torch.no_grad()
    def step(self) -> None:
        """Step this rank's matrices and everything that is none, and exchange what came of the matrices."""
        self._optimizer.spread_gradients()
        for matrix in self._others:
            matrix.grad = None  # which an optimizer passes by
        self._optimizer.step_members()
        for owner, matrices in enumerate(self._by_owner):
            if matrices:
                _send_out(matrices, owner)

    def forget_others(self) -> None:
        """Drop the state of matrices that are other ranks'."""
        for matrix in self._others:
            self._optimizer.state.pop(matrix, None)


def owners_of(shapes: Sequence[tuple[int, ...]], size: int) -> list[int]:
    """The rank of each matrix [rows, columns], such that all have about as much to do.

    The product of a matrix with its transpose costs rows x columns x the smaller of them. The costliest
    matrix is given away first, always to the rank with least.
    """
    loads, owners = [0] * size, [0] * len(shapes)
    costs = [rows * columns * min(rows, columns) for rows, columns in shapes]
    for index in sorted(range(len(shapes)), key=lambda index: (-costs[index], index)):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += costs[index]
    return owners


def _send_out(matrices: Sequence[torch.nn.Parameter], owner: int) -> None:
    flat = torch.cat([matrix.reshape(-1) for matrix in matrices])
    dist.broadcast(flat, owner)
    for matrix, part in zip(matrices, torch.split(flat, [m.numel() for m in matrices]), strict=True):
        matrix.copy_(part.view_as(matrix))
