"""The largest eigenvalue by products alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalevec.model.theory.lanczos import largest_eigenvalue


def symmetric(eigenvalues: torch.Tensor) -> torch.Tensor:
    """A matrix with these eigenvalues in some basis."""
    size = len(eigenvalues)
    drawn = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    basis, _ = torch.linalg.qr(drawn)
    return basis @ torch.diag(eigenvalues.double()) @ basis.T


def found_of(matrix: torch.Tensor, tolerance: float = 1e-8, most_products: int = 60):
    start = torch.randn(len(matrix), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return largest_eigenvalue(lambda x: matrix @ x, start, tolerance=tolerance, most_products=most_products)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_it_is_the_largest_eigenvalue_however_they_lie(values):
    eigenvalues = torch.tensor(values)
    eigenvalue = found_of(symmetric(eigenvalues), tolerance=1e-12)
    assert eigenvalue.lower_bound == pytest.approx(eigenvalues.max().item(), abs=1e-9)


def test_it_is_not_the_largest_in_magnitude():
    eigenvalue = found_of(symmetric(torch.tensor([-9.0, 1.0, 2.0, 0.5])))
    assert eigenvalue.value == pytest.approx(2.0)


def test_an_outlier_of_a_large_matrix_needs_few_products():
    eigenvalue = found_of(symmetric(torch.cat([torch.linspace(-1, 1, 199), torch.tensor([10.0])])))
    assert eigenvalue.value == pytest.approx(10.0)
    assert eigenvalue.products < 30


def test_a_value_that_has_not_settled_is_not_given():
    """Evenly spaced eigenvalues: five products cannot tell the last from its neighbours."""
    eigenvalue = found_of(symmetric(torch.linspace(0, 1, 200)), tolerance=1e-6, most_products=5)
    assert not eigenvalue.converged
    assert eigenvalue.value is None
    assert eigenvalue.products == 5
    assert eigenvalue.residual > 1e-6
    assert eigenvalue.lower_bound < 1


def test_the_residual_bounds_the_error():
    matrix = symmetric(torch.linspace(0, 1, 50))
    eigenvalues = torch.linalg.eigvalsh(matrix)
    for most in (3, 8, 15):
        eigenvalue = found_of(matrix, most_products=most)
        nearest = (eigenvalues - eigenvalue.lower_bound).abs().min().item()
        assert nearest <= eigenvalue.residual * eigenvalue.lower_bound + 1e-12


def test_a_matrix_of_zeros_has_the_eigenvalue_zero():
    eigenvalue = found_of(torch.zeros(4, 4, dtype=torch.float64))
    assert eigenvalue.converged
    assert eigenvalue.value == 0.0


def test_products_that_are_no_numbers_are_no_eigenvalue():
    eigenvalue = found_of(torch.full((4, 4), float("nan"), dtype=torch.float64))
    assert not eigenvalue.converged
    assert eigenvalue.value is None
