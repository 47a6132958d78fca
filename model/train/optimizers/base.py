"""What optimizers share: the shape of a group, methods without guards, and several optimizers as one."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

Kind = Literal["matrix", "stack", "other"]
"""A matrix of a block, a stack [experts, rows, columns] of such matrices, or anything else."""
Group = dict[str, Any]
"""``params``, ``weight_decay``, ``learning_rate_factor``, ``kind`` and options of the optimizer."""
Factory = Callable[..., torch.optim.Optimizer]
"""Of groups, the configuration and, of a plugin, its options by name."""

Stack = tuple[torch.nn.Parameter, list[torch.nn.Parameter]]
"""A parameter [experts, rows, columns], and views of its matrices that are parameters themselves."""


class WithoutCompilerGuards(torch.optim.Optimizer):
    """torch's own methods without the guards that keep torch.compile out of them.

    The first call of a guard imports the compiler, ``torch._dynamo``: 1.9 s of a processor (median of five)
    on top of the 2.2 s in which a fresh worker loads all else, and nothing here is ever compiled. The guards
    are plain ``functools.wraps`` decorators; what they wrap runs the same arithmetic.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class Together(WithoutCompilerGuards):
    """Optimizers with parameters of their own, that of the matrices first, behind the interface of one.

    The matrices of ``stacks`` are given their part of the stack's gradient before each step.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], stacks: Sequence[Stack] = ()) -> None:
        self.optimizers, self.stacks = tuple(optimizers), tuple(stacks)
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        # The groups and the state are those of the members: what is set or loaded here is what they see.
        self.param_groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for optimizer in self.optimizers:
            optimizer.state = self.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, those of the stacks too."""
        super().zero_grad(set_to_none)
        for stack, matrices in self.stacks:
            stack.grad = None
            for matrix in matrices:
                matrix.grad = None

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no caller has a closure
        """One step of each member."""
        self.spread_gradients()
        self.step_members()

    def spread_gradients(self) -> None:
        """Give the matrices of stacks their part of the stack's gradient."""
        for stack, matrices in self.stacks:
            for index, matrix in enumerate(matrices):
                # A view of the stack's gradient: nothing is copied.
                matrix.grad = None if stack.grad is None else stack.grad[index]

    def step_members(self) -> None:
        """One step of each member over the gradients that are there."""
        for optimizer in self.optimizers:
            optimizer.step()

    @property
    def of_matrices(self) -> torch.optim.Optimizer:
        """The member that takes the matrices, each by itself."""
        return self.optimizers[0]


def matrices_of(group: Group) -> tuple[Group, list[Stack]]:
    """The group of stacks as a group of their matrices, and each stack beside its matrices."""
    stacks = [
        # Views again: a step of a matrix writes into the stack itself.
        (stack, [torch.nn.Parameter(stack.detach()[index]) for index in range(len(stack))])
        for stack in group["params"]
    ]
    return {**group, "params": [matrix for _, matrices in stacks for matrix in matrices]}, stacks
