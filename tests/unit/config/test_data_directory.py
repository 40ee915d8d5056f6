"""Where data lies when nobody says."""

from pathlib import Path

import pytest

from pointsman.config.data_directory import default_data_directory


@pytest.mark.parametrize(
    ("environ", "meant"),
    [
        ({"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/pointsman"),
        ({"XDG_DATA_HOME": "x", "HOME": "/h"}, "/h/.local/share/pointsman"),
        ({"XDG_DATA_HOME": "", "HOME": "/h"}, "/h/.local/share/pointsman"),
        ({"HOME": "/h"}, "/h/.local/share/pointsman"),
    ],
)
def test_it_is_the_users_data_directory(environ: dict[str, str], meant: str) -> None:
    assert default_data_directory(environ) == Path(meant)


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_in_the_environment_it_is_the_one_of_the_user(environ: dict[str, str]) -> None:
    assert default_data_directory(environ) == Path.home() / ".local/share/pointsman"
