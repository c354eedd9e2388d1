"""What fits into half a gibibyte is known before the first hash."""

import pytest

from sealmail_pow import Difficulty, fits_memory, machine


@pytest.mark.parametrize(
    ("difficulty", "in_c", "in_python"),
    [
        (Difficulty(256), True, True),
        (Difficulty(30, 3), True, True),
        (Difficulty(37, 3), True, False),
        (Difficulty(38, 3), False, False),
        (Difficulty(48, 3), False, False),
        (Difficulty(25, 16), True, False),
        (Difficulty(8, 16), True, True),
    ],
)
def test_only_more_nonces_than_two_take_memory(
    difficulty: Difficulty, in_c: bool, in_python: bool
) -> None:
    """Pairs are found by walking; a dictionary takes far more than a table in C."""
    assert fits_memory(difficulty, "native") is in_c
    assert fits_memory(difficulty, "python") is in_python
    assert fits_memory(difficulty) is {"native": in_c, "python": in_python}[machine.IMPLEMENTATION]
