"""The command that installs what is missing works from where the person stands."""

import tomllib

from scalevec.results.extras import REQUIREMENTS, install_command
from support import CHECKOUT


def test_in_a_checkout_the_extra_is_installed_by_its_path():
    assert install_command("ray") == f"pip install -e '{CHECKOUT}[ray]'"


def test_a_path_with_a_quote_is_one_word_of_the_shell(tmp_path):
    folder = tmp_path / "it's mine"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    assert install_command("ray", folder).endswith("""/it'"'"'s mine[ray]'""")


def test_outside_a_checkout_the_library_is_named_and_never_this_project(tmp_path):
    assert install_command("ray", tmp_path) == "pip install 'ray[default]>=2.40'"
    assert install_command("postgresql", tmp_path) == "pip install 'psycopg[binary]>=3.2'"


def test_the_requirements_are_those_of_the_extras():
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras["train"].remove("scalevec[ray]")  # installed too, and asked for where a profile names it alone
    expected = {name: extras[name] for name in REQUIREMENTS}
    assert {name: list(requirements) for name, requirements in REQUIREMENTS.items()} == expected
