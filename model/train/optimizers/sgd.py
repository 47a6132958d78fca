"""Stochastic gradient descent: plain, as theory has it, or with momentum."""

import torch

from scalevec.model.config import OptimizerConfig
from scalevec.model.train.optimizers.base import Group, WithoutCompilerGuards


class _SGD(WithoutCompilerGuards):
    """Not torch's, whose decay goes through the momentum: p <- p (1 - learning rate * decay) does not."""

    def __init__(self, groups: list[Group], momentum: float, nesterov: bool) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})
        self.momentum, self.nesterov = momentum, nesterov

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no caller has a closure
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(self._update(parameter), alpha=group["lr"])

    def _update(self, parameter: torch.Tensor) -> torch.Tensor:
        gradient = parameter.grad
        assert gradient is not None
        if self.momentum == 0:
            return gradient
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average: torch.Tensor = state["momentum_buffer"].mul_(self.momentum).add_(gradient)
        return gradient + self.momentum * average if self.nesterov else average


def sgd(groups: list[Group], config: OptimizerConfig) -> torch.optim.Optimizer:
    """p <- p - learning rate * m, m <- momentum * m + gradient; with ``nesterov`` gradient + momentum * m.

    With a momentum of zero, the default, m is the gradient.
    """
    return _SGD(groups, config.number("momentum"), config.option("nesterov"))
